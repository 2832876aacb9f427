"""Columns of a table: which are known, and their cells as text; those of the source's own with their kind."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ....errors import UsageError
from ....files import raise_unless_damage
from ...metadata.own_columns import Value, typed_values
from .class_names import EMPTY_CELLS

_MIN_SIMILARITY = 0.8  # 0..1: `labels` and `splitt` are misspelt columns, `label_id` is not
_START_BYTES = 256
_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "source", "mask", "identity", "footage", "method", "compression", "dataset", "fake_segments",
             "whole_frame")  # fmt: skip


def read_columns(src: Path) -> tuple[list[dict[str, str]], dict[str, tuple[str, list[Value]]]]:
    """The cells of each row by name of the column, of known columns as text; kind and values of each other column.

    Raises `UsageError` where the file cannot be read as a table, or lacks a column or has one twice or misspelt.
    """
    table = _read_table(src)
    unknown = _unknown_columns(src, table.column_names)
    names = [name for name in (*_REQUIRED, *_OPTIONAL) if name in table.column_names]
    duplicates = [name for name in names if table.column_names.count(name) > 1]
    if duplicates:
        raise UsageError(f"{src}: has the column {', '.join(duplicates)} more than once; keep the one that is meant")
    with _reading(src):
        rows = [{key: _text(key, value) for key, value in row.items()} for row in table.select(names).to_pylist()]
        own = {
            name: typed_values(table.column(name).to_pylist())
            for name in unknown
            if table.column_names.count(name) == 1
        }
    return rows, own


def _read_table(src: Path) -> pa.Table:
    if src.suffix.lower() == ".csv":
        _refuse_utf16(src)
    with _reading(src):
        if src.suffix.lower() == ".csv":
            # Read everything as text: a path like 007 must not become a number.
            with pa.csv.open_csv(src) as head:
                types = {name: pa.string() for name in head.schema.names}
            options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            return pa.csv.read_csv(src, convert_options=options)
        return pq.read_table(src, partitioning=None)


@contextmanager
def _reading(src: Path) -> Iterator[None]:
    """Context in which what Arrow raises on a table, such as on a date that Python does not have, is a `UsageError`."""
    try:
        yield
    except (OSError, OverflowError, ValueError, pa.ArrowException) as error:
        raise_unless_damage(src, error)
        remedy = "; save it as CSV in UTF-8, it is in another encoding" if "UTF8" in str(error) else ""
        raise UsageError(f"{src}: cannot be read as a table ({error}){remedy}") from error


def _refuse_utf16(src: Path) -> None:
    """Raises `UsageError` where a CSV is in UTF-16, as spreadsheets may save it: half of its bytes are zeros then."""
    with _reading(src), src.open("rb") as file:
        start = file.read(_START_BYTES)
    if start[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in start:
        raise UsageError(f"{src}: is encoded in UTF-16, or is no text; must be UTF-8: save it as CSV in UTF-8")


def _unknown_columns(src: Path, names: list[str]) -> tuple[str, ...]:
    """Columns without a meaning here; raises `UsageError` where a required one is absent or one looks misspelt."""
    absent = [name for name in (*_REQUIRED, *_OPTIONAL) if name not in names]
    unknown = [name for name in names if name not in (*_REQUIRED, *_OPTIONAL)]
    likely = {
        name: near[0]
        for name in unknown
        if (near := get_close_matches(name.strip().lower(), absent, 1, _MIN_SIMILARITY))
    }
    if missing := [name for name in _REQUIRED if name in absent]:
        guesses = [f"found {name!r}, did you mean {near!r}?" for name, near in likely.items()]
        separator = next((sign for sign in ";\t|" if len(names) == 1 and sign in names[0]), None)
        if separator:
            guesses = [f"it looks separated by {'a tab' if separator == chr(9) else repr(separator)}, must be by ','"]
        raise UsageError(
            f"{src}: lacks the column {', '.join(missing)}; it has {', '.join(map(repr, names))}, must have "
            f"{', '.join(_REQUIRED)} and may have {', '.join(_OPTIONAL)}{''.join(f'; {guess}' for guess in guesses)}"
        )
    if likely:
        name, known = next(iter(likely.items()))
        raise UsageError(
            f"{src}: has a column {name!r}, did you mean {known!r}? It would be ignored; rename it, or take it out"
        )
    return tuple(unknown)


def _text(column: str, value: object) -> str:
    is_empty = value is None or (isinstance(value, float) and math.isnan(value))  # NaN is pandas' empty number
    text = "" if is_empty else str(value).strip()
    # A label may be a class of that name, which the file of classes then lists.
    return "" if text in EMPTY_CELLS and column not in _REQUIRED else text
