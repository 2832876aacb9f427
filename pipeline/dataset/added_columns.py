"""Added columns: sets of columns that were computed for a finished dataset, from its own rows.

OUT/columns/<name>/_set.json               what the set is; written before its first file
OUT/columns/<name>/<unit>.parquet          face_id and the set's columns, row by row those of the unit's file
OUT/columns/<name>/_receipts/<unit>.json   written after its file

The index has the sets of which every unit has its file; a set that lacks any is named in the index's metadata.
"""

from __future__ import annotations

import base64
import builtins
import hashlib
import json
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from ..errors import CorruptDataError, RefusedError
from ..files import raise_unless_damage, stop_on_disk_error, sync_folder
from ..json_records import parse_json, record_of
from .manifest import Receipt
from .out import OutPaths
from .schema import UNINDEXED_COLUMNS, face_schema, recorded_schema

SET_VERSION = 1
MAX_INDEXED_VALUES = 512
"""Columns of more values a row stay out of the index, as do columns of bytes and of lists without a fixed length."""

ADDED = b"facefeed.added"
"""Metadata of an index: of a field, the name of its set; of the schema, the fingerprints of all sets by name, JSON."""

_FACES = face_schema((), has_dense_landmarks=True)
_MAGIC = b"ARROW1\0\0"
_SCHEMA_BYTES = 1 << 20
"""Of the start of an index, which has its schema after the magic bytes."""


@dataclass(frozen=True, kw_only=True)
class ColumnReceipt:
    """Receipt of one column file, written after it. `state`: see `ColumnSet.state_of`. `bytes`: size of the file."""

    unit: str
    state: str
    rows: int
    bytes: int
    sha256: str

    def to_json(self) -> str:
        """The JSON text of the receipt's file."""
        return json.dumps({"version": SET_VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str | builtins.bytes, *, where: str) -> Self:
        """Parses a receipt; raises `CorruptDataError` naming `where`, its path."""
        try:
            data = parse_json(text)
            if data.pop("version") != SET_VERSION:
                raise ValueError("unknown version")
            return record_of(cls, data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(f"{where}: not a receipt of added columns ({error})") from error


@dataclass(frozen=True, kw_only=True)
class ColumnSet:
    """One set of added columns: what its ``_set.json`` records.

    `paths`: of OUT. `fingerprint`: of the maker. `source`: what `facefeed add OUT` takes for it, an absolute path; of
    an object, "Class(...)". `schema`: its columns, without `face_id`. `is_being_removed`: `facefeed remove` has begun.
    """

    paths: OutPaths
    name: str
    fingerprint: str
    source: str
    schema: pa.Schema
    is_being_removed: bool = False

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return self.paths.columns / self.name

    @property
    def record(self) -> Path:
        """The file that says what the set is."""
        return self.paths.columns_record(self.name)

    def unit_file(self, unit: str) -> Path:
        """Its Parquet file for the rows of a unit."""
        return self.folder / f"{unit}.parquet"

    def receipt_file(self, unit: str) -> Path:
        """Receipt of its file for a unit."""
        return self.folder / "_receipts" / f"{unit}.json"

    @property
    def command(self) -> str:
        """What computes what is missing of it: a command or, where the maker was an object, a call."""
        if self.source.endswith("(...)"):
            return f"add_columns(OUT, {self.source})"
        return f"{_add_to(self.paths.place)}{shlex.quote(self.source)}"

    @property
    def remove_command(self) -> str:
        """The command that removes it."""
        return f"facefeed remove {shlex.quote(self.paths.place)} {self.name}"

    @cached_property
    def file_schema(self) -> pa.Schema:
        """Schema of its files."""
        return pa.schema([_FACES.field("face_id"), *self.schema])

    @property
    def indexed_fields(self) -> list[pa.Field]:
        """Those of its columns that the index has."""
        return [field for field in self.schema if _is_indexed(field)]

    def state_of(self, unit: Receipt) -> str:
        """A hash, 16 hex digits, that changes whenever the set's file for a unit could be another."""
        fields = [(field.name, str(field.type), field.nullable) for field in self.schema]
        parts = json.dumps([self.name, self.fingerprint, fields, unit.sha256])
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def receipt(self, unit: str) -> ColumnReceipt | None:
        """The receipt for a unit, None where there is none; raises `CorruptDataError` where it is damaged."""
        path = self.receipt_file(unit)
        try:
            return ColumnReceipt.from_json(self.paths.files.read(path), where=str(path))
        except FileNotFoundError:
            return None

    def has_file_for(self, unit: Receipt) -> bool:
        """Whether it has a complete file for the rows of a unit as they are now, by receipt and size."""
        try:
            receipt = self.receipt(unit.unit)
        except CorruptDataError:
            return False
        size_bytes = self.paths.files.size_bytes(self.unit_file(unit.unit))
        return receipt is not None and (receipt.state, receipt.bytes) == (self.state_of(unit), size_bytes)

    def to_json(self) -> str:
        """The JSON text of `record`."""
        data = {
            "version": SET_VERSION,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "source": self.source,
            "columns": {field.name: str(field.type) for field in self.schema},
            "arrow_schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "is_being_removed": self.is_being_removed,
        }
        return json.dumps(data, indent=1)

    @classmethod
    def read(cls, paths: OutPaths, name: str) -> Self | None:
        """The set `name` of OUT; None where there is none, or it has not begun. Raises `CorruptDataError` on damage."""
        path = paths.columns_record(name)
        remedy = f"run `facefeed remove {shlex.quote(paths.place)} {shlex.quote(name)}`"
        try:
            data: dict[str, Any] = parse_json(paths.files.read(path))
            if data["version"] != SET_VERSION or data["name"] != name:
                raise ValueError(f"is of version {data['version']} and of {data['name']!r}")
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data["arrow_schema"])))
            texts = {key: data[key] for key in ("fingerprint", "source", "is_being_removed")}
            return cls(paths=paths, name=name, schema=schema, **asdict(record_of(_SetTexts, texts)))
        except FileNotFoundError as error:
            if units_of_set(paths, name):  # it had begun
                raise CorruptDataError(f"{path}: not there, but files of its columns are; {remedy}") from error
            return None
        except (AttributeError, KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
            raise_unless_damage(path, error)
            raise CorruptDataError(f"{path}: does not describe added columns ({error}); {remedy}") from error


@dataclass(frozen=True, kw_only=True)
class _SetTexts:
    """What of a set's record becomes fields of `ColumnSet` as it is."""

    fingerprint: str
    source: str
    is_being_removed: bool


@dataclass(frozen=True)
class IncompleteSet:
    """A set of added columns that lacks `units` of the dataset's units, with `rows` rows; with 0 only the index lacks
    it.
    """

    column_set: ColumnSet
    units: int
    rows: int

    def __str__(self) -> str:
        state = "1 row lacks them" if self.rows == 1 else f"{self.rows:,} rows lack them"
        state = state if self.units else "not in the index yet"
        return f"added columns {self.column_set.name!r}: {state}; run `{self.column_set.command}`"

    @property
    def portable(self) -> str:
        """The same with the word OUT for the folder, for a file within it, which may be moved."""
        return str(replace(self, column_set=replace(self.column_set, paths=OutPaths(Path("OUT")))))


def with_folder(portable: str, out: Path) -> str:
    """A text of `IncompleteSet.portable` for the dataset in `out`."""
    return portable.replace(_add_to("OUT"), _add_to(str(out)), 1)


def read_column_sets(paths: OutPaths) -> list[ColumnSet]:
    """The sets of added columns of OUT, by name; raises `CorruptDataError` where one does not say what it is."""
    sets = (ColumnSet.read(paths, name) for name in names_of_sets(paths))
    return [column_set for column_set in sets if column_set is not None]


def names_of_sets(paths: OutPaths) -> list[str]:
    """Names of the folders of added columns, sorted, whatever is in them."""
    with stop_on_disk_error(paths.columns):
        names = sorted(paths.files.names(paths.columns))
        return [name for name in names if paths.files.is_remote or (paths.columns / name).is_dir()]


def units_of_set(paths: OutPaths, name: str) -> list[str]:
    """Ids of the units for which a set has files of columns, sorted, whether or not its record can be read."""
    folder = paths.columns / name
    with stop_on_disk_error(folder):
        files = paths.files.names(folder) if paths.files.is_remote or folder.is_dir() else set()
        return sorted(file.removesuffix(".parquet") for file in files if file.endswith(".parquet"))


def complete_sets(
    paths: OutPaths, units: Iterable[Receipt], *, other_than: Container[str] = ()
) -> tuple[list[ColumnSet], list[IncompleteSet]]:
    """The sets of OUT that have a file for each of `units` with rows, which the index has, and those that do not.

    One that is being removed is neither. `other_than`: names of sets to leave out.
    """
    complete, incomplete = [], []
    sets = [each for each in read_column_sets(paths) if not each.is_being_removed and each.name not in other_than]
    receipts = [unit for unit in units if unit.file] if sets else []
    for column_set in sets:
        missing = [unit for unit in receipts if not column_set.has_file_for(unit)]
        if missing:
            incomplete.append(IncompleteSet(column_set, len(missing), sum(unit.rows for unit in missing)))
        else:
            complete.append(column_set)
    return complete, incomplete


def lost_sets(paths: OutPaths) -> list[str]:
    """Names of the sets that the index has, but of which OUT has no file, as a copy that was made without them.

    The next index would lack them. None of an index that cannot be read.
    """
    try:
        start = paths.files.read_start(paths.index, _SCHEMA_BYTES)
        indexed = fingerprints_of_sets(pa.ipc.read_schema(pa.py_buffer(start[len(_MAGIC) :])))
        return sorted(indexed.keys() - {*names_of_sets(paths)})
    except (AttributeError, CorruptDataError, FileNotFoundError, ValueError, pa.ArrowException):
        return []


def lost_set_warnings(paths: OutPaths) -> list[str]:
    """One sentence for each of `lost_sets`, for a run that writes the next index."""
    return [
        f"added columns {name!r}: the index has them, but {paths.place}/columns/{name} is not there, so the next index "
        "lacks them: copy that folder there before this run ends, or run `facefeed add` again after it, unless they "
        "were to be removed"
        for name in lost_sets(paths)
    ]


def refuse_lost_sets(paths: OutPaths, *, other_than: Container[str] = ()) -> None:
    """Raises `RefusedError` where OUT has `lost_sets` besides those named."""
    if lost := [name for name in lost_sets(paths) if name not in other_than]:
        raise RefusedError(
            f"{paths.place}: the index has the added columns {lost[0]!r}, but columns/{lost[0]} is not there, so the "
            "next index would lack them; nothing was written: copy that folder there or, to go on without them, run "
            f"`facefeed remove {shlex.quote(str(paths.place))} {shlex.quote(lost[0])}`"
        )


def fingerprints_of_sets(schema: pa.Schema) -> dict[str, str]:
    """The fingerprints of the sets that an index has, by name."""
    fingerprints: dict[str, str] = json.loads((schema.metadata or {}).get(ADDED, b"{}"))
    return fingerprints


def column_origins(schema: pa.Schema) -> dict[str, str]:
    """The set, with its fingerprint, of each column of an index that is an added one, by the column's name."""
    fingerprints = fingerprints_of_sets(schema)
    sets = {field.name: field.metadata[ADDED].decode() for field in schema if ADDED in (field.metadata or {})}
    return {column: f"{name} {fingerprints[name]}" for column, name in sets.items()}


def keeps_columns(schema: pa.Schema, origins: Mapping[str, str]) -> bool:
    """Whether an index has the columns that it had when they were of `origins`; others may have come since."""
    current = column_origins(schema)
    has_new_in_place_of_stored = not {*current} & {*recorded_schema(schema).names} <= origins.keys()
    return origins.items() <= current.items() and not has_new_in_place_of_stored


def column_files(paths: OutPaths) -> list[Path]:
    """All files of added columns, also those for former units."""
    names = names_of_sets(paths)
    return [paths.columns / name / f"{unit}.parquet" for name in names for unit in units_of_set(paths, name)]


def remove_files_of(paths: OutPaths, units: Sequence[str]) -> None:
    """Removes receipts and files of added columns for units that are no longer part of the dataset.

    Durably: a file that came back after a power failure would be of rows that are not there.
    """
    for name in names_of_sets(paths) if units else ():
        folder = paths.columns / name
        paths.files.remove_all([[folder / "_receipts" / f"{unit}.json", folder / f"{unit}.parquet"] for unit in units])
        if not paths.files.is_remote:
            sync_folder(folder)


def _add_to(place: str) -> str:
    return f"facefeed add {shlex.quote(place)} "


def _is_indexed(field: pa.Field) -> bool:
    if field.name in _FACES.names:
        return field.name not in UNINDEXED_COLUMNS
    values = _values_a_row(field.type)
    return values is not None and values <= MAX_INDEXED_VALUES


def _values_a_row(kind: pa.DataType) -> int | None:
    """Number of values in a cell; None where it differs from row to row."""
    if pa.types.is_fixed_size_list(kind):
        inner = _values_a_row(kind.value_type)
        return None if inner is None else kind.list_size * inner
    return None if pa.types.is_nested(kind) or pa.types.is_binary(kind) else 1
