"""A source's own columns: their kinds, their values, and the selection of those that are stored in each row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...dataset.reserved_names import RESERVED_NAMES
from ...errors import UsageError
from ..listing import Listing

Value = str | int | float | None

_MAX_INT = 2**63 - 1
_MAX_EXACT = 2**53
_INT = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_WHOLE_NUMBER = re.compile(r"[+-]?([0-9]+)")
_FLOAT = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def with_columns(listing: Listing, names: Sequence[str]) -> Listing:
    """The listing with these of its own columns alone, in this order; the others count as ignored.

    Raises `UsageError` on a name that the source does not have, that is one of `RESERVED_NAMES`, or that is one of the
    listing's `unusable_columns`.
    """
    available = list(listing.columns)
    for name in names:
        if name not in available:
            there = f"it has {', '.join(map(repr, available))}" if available else f"layout {listing.layout} has none"
            raise UsageError(f"--columns {name}: is no column of the source's own; {there}")
        if name in RESERVED_NAMES or not name.isidentifier():
            why = "is facefeed's own" if name in RESERVED_NAMES else "must be letters, digits and underscores"
            raise UsageError(f"--columns {name}: {why}; rename it in the table")
        if name in listing.unusable_columns:
            raise UsageError(f"--columns {name}: {listing.unusable_columns[name]}")
    positions = [available.index(name) for name in dict.fromkeys(names)]
    return replace(
        listing,
        columns={available[position]: listing.columns[available[position]] for position in positions},
        entries=[
            replace(entry, values=tuple(entry.values[position] for position in positions)) if entry.values else entry
            for entry in listing.entries
        ],
        ignored_columns=tuple(name for name in available if name not in names),
    )


def typed_values(cells: Iterable[Any]) -> tuple[str, list[Value]]:
    """The kind of a column and its values, None where a cell is empty.

    Whole numbers are "int" where every cell has one, other numbers "float". Texts that are no plain decimal number,
    such as 007 and 071_054, and whole numbers that a float would round make the column "string".

    >>> typed_values(["3", "14"]), typed_values(["0.5", ""]), typed_values(["007", "8"])
    (('int', [3, 14]), ('float', [0.5, None]), ('string', ['007', '8']))
    """
    given = [None if _is_empty(cell) else cell for cell in cells]
    parsers: dict[str, Callable[[Any], Value]] = {"int": _parse_int, "float": _parse_float}
    for kind, parse in parsers.items():
        parsed = [None if cell is None else parse(cell) for cell in given]
        missing = sum(value is None for value in parsed)
        if parsed and missing < len(parsed) and missing == (0 if kind == "int" else given.count(None)):
            return kind, parsed
    return "string", [None if cell is None else str(cell).strip() for cell in given]


def _is_empty(cell: Any) -> bool:
    is_nan = isinstance(cell, float) and math.isnan(cell)  # pandas' empty number
    return cell is None or is_nan or (isinstance(cell, str) and not cell.strip())


def _parse_int(cell: Any) -> int | None:
    if isinstance(cell, str):
        cell = int(cell) if _INT.fullmatch(cell.strip()) else None
    return int(cell) if isinstance(cell, int) and abs(cell) <= _MAX_INT else None  # booleans are 0 and 1


def _parse_float(cell: Any) -> float | None:
    if isinstance(cell, str):
        cell = float(cell) if _FLOAT.fullmatch(cell.strip()) and not _is_long_int(cell.strip()) else None
    elif isinstance(cell, int) and abs(cell) > _MAX_EXACT:
        return None
    return float(cell) if isinstance(cell, (int, float)) and math.isfinite(cell) else None


def _is_long_int(text: str) -> bool:
    """Whether it is a whole number that a float would round: the id of something."""
    whole = _WHOLE_NUMBER.fullmatch(text)
    # Their number first: int() refuses thousands of digits.
    return whole is not None and (len(whole[1]) > len(str(_MAX_EXACT)) or int(whole[1]) > _MAX_EXACT)
