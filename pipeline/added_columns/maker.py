"""`StoredFaces`, the `ColumnMaker` protocol, and the check of what a maker declares."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from numpy.typing import NDArray

from ..dataset.added_columns import ColumnSet
from ..dataset.reserved_names import RESERVED_NAMES
from ..errors import UsageError

_MEMBERS = ("name", "fingerprint", "columns", "compute")
GUIDE = "docs/guides/added-columns.md shows how"
"""The end of messages about makers."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
LANDMARKS: Final = "landmarks"
"""Name of facefeed's own set of columns."""


@dataclass(frozen=True, eq=False)
class StoredFaces:
    """Some faces of one unit, in the order of its rows.

    images: the stored crops, each uint8 (H, W, 3), RGB. rows: all columns that precompute stored of them but `image`
    and `mask`, and no added ones; points are in crop px, that is in px of the images.
    """

    images: list[NDArray[Any]]
    rows: pa.Table

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        """Shapes, not data."""
        return f"StoredFaces({len(self)} faces, columns={self.rows.column_names})"


class ColumnMaker(Protocol):
    """Computes columns of faces from their stored crops and rows: an embedding, a quality score.

    An implementer promises:

    - deterministic: a face has the same values whatever other faces come with it, and in whatever process;
    - `fingerprint` changes whenever the values may change: weights, settings, code;
    - picklable, where it is passed as an object and there are several workers; it may load its model on first use.
    """

    @property
    def name(self) -> str:
        """Name of the set of columns: letters, digits and underscores; it names the folder in OUT/columns."""

    @property
    def fingerprint(self) -> str:
        """A short text that changes whenever the values may change. Columns of two fingerprints are never mixed."""

    @property
    def columns(self) -> pa.Schema:
        """The columns: numbers, strings, or lists of numbers of one length, as `pa.list_(pa.float32(), 512)`."""

    def compute(self, faces: StoredFaces) -> Mapping[str, Any]:
        """Each column's values, one a face, in order: arrays (faces, lengths...), lists, or Arrow arrays."""


def describe(maker: ColumnMaker) -> str:
    """Name of a maker's class, for messages."""
    return type(maker).__name__


def check_maker(maker: ColumnMaker, faces: pa.Schema, others: Iterable[ColumnSet], own: Collection[str]) -> None:
    """Raises `UsageError` where a maker's name or its columns cannot be used.

    `faces`: schema of the dataset's files. `others`: sets that the dataset has already. `own`: columns of
    facefeed's own that it may have.
    """
    who = describe(maker)
    if missing := [member for member in _MEMBERS if not hasattr(maker, member)]:
        raise UsageError(f"{who}: lacks {', '.join(missing)}; it must have {', '.join(_MEMBERS)}: {GUIDE}")
    if not isinstance(maker.name, str) or not _NAME.fullmatch(maker.name):
        raise UsageError(f"{who}: name={maker.name!r}: must be letters, digits and underscores; try quality")
    if maker.name == LANDMARKS and not own:
        raise UsageError(f"{who}: name={maker.name!r}: is facefeed's own; give it another name")
    if not isinstance(maker.fingerprint, str) or not maker.fingerprint:
        raise UsageError(f"{who}: fingerprint={maker.fingerprint!r}: must be a text; try 'quality-1'")
    _check_columns(who, maker.columns)
    of_others = {name: other for other in others if other.name != maker.name for name in other.schema.names}
    known = {*faces.names, *RESERVED_NAMES} - set(own)
    for field in maker.columns:
        if field.name in known or field.name in of_others:
            conflict = _name_conflict(field.name, faces, of_others.get(field.name))
            raise UsageError(f"{who}: column {field.name!r} is {conflict}")
        if not own and not _is_allowed(field.type):
            raise UsageError(
                f"{who}: column {field.name!r} is {field.type}: must be a number of 8 to 64 bits, a string, or a list "
                "of numbers of one length; try pa.list_(pa.float32(), 512)"
            )


def _check_columns(who: str, columns: object) -> None:
    if not isinstance(columns, pa.Schema) or not columns.names:
        raise UsageError(f"{who}: columns={columns!r}: must be a pyarrow schema; try pa.schema([('quality', 'float')])")
    if len(set(columns.names)) < len(columns.names):
        raise UsageError(f"{who}: columns={columns.names}: must be different names")
    for name in columns.names:
        if not name.isidentifier():
            raise UsageError(f"{who}: column {name!r}: must be letters, digits and underscores")


def _name_conflict(name: str, faces: pa.Schema, other: ColumnSet | None) -> str:
    """Which columns a new name conflicts with, and what to do; `other`: the added set that has it, if any."""
    if name in faces.names:
        return "in this dataset already; give it another name"
    if other is None:
        return "facefeed's own; give it another name"
    return (
        f"of the added columns {other.name!r}; give it another name, or run `{other.remove_command}` first, which "
        "removes that set, finished or not"
    )


def _is_allowed(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size > 0 and _is_allowed(kind.value_type) and not pa.types.is_string(kind.value_type)
    is_number = pa.types.is_float32(kind) or pa.types.is_float64(kind) or pa.types.is_integer(kind)
    return bool(is_number or pa.types.is_string(kind))
