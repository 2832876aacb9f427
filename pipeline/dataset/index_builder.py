"""`IndexBuilder`: builds the index from the dataset's files, and from those of its added columns; `UnitRows`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptDataError
from .added_columns import ColumnSet
from .index import INDEX_COLUMNS, checksums, layout
from .index.part import PART_SUFFIX, location_columns, read_columns, read_part
from .schema import UNINDEXED_COLUMNS, recorded_schema
from .stores.concurrent import MAX_REQUESTS

_MOST_TABLES = 256
"""Of files with few rows, before they become one: a table of one row takes as much memory as one of a hundred."""


class UnitRows:
    """Reads what an index of `schema` says of the rows of a unit.

    `added`: the sets of added columns that `schema` has too. Raises `CorruptDataError` on a file that cannot be read,
    has other columns or, of added ones, other faces.
    """

    def __init__(self, schema: pa.Schema, added: Sequence[ColumnSet] = ()) -> None:
        self.schema, self._added = schema, added
        replaced = {field.name for column_set in added for field in column_set.indexed_fields}
        self._stored = [field for field in recorded_schema(schema) if field.name not in {*UNINDEXED_COLUMNS, *replaced}]

    def read(self, path: Path, names: Collection[str]) -> pa.Table:
        """Those of the unit's columns that are among `names`; `path`: of its file, or of its part of the index."""
        table = _read_unit(path, [field for field in self._stored if field.name in names])
        for column_set in self._added:
            if fields := [field for field in column_set.indexed_fields if field.name in names]:
                added_path = column_set.unit_file(path.stem)
                added = _read_added(column_set, added_path, [column_set.file_schema.field("face_id"), *fields])
                if "face_id" in names and not added.column("face_id").equals(table.column("face_id")):
                    raise CorruptDataError(f"{added_path}: its faces are not those of {path.name}, in their order")
                for field in fields:
                    table = table.append_column(field, added.column(field.name))
        return table

    def read_all(self, path: Path, name: str) -> pa.Table:
        """All columns of the index, strings as they are; `name`: of the unit's file, relative to OUT."""
        table = self.read(path, self.schema.names)
        table = table.append_column("file", pa.array([name] * len(table), pa.string()))
        for column, values in _location(path).items():
            table = table.append_column(column, values)
        return table.select(self.schema.names)


class IndexBuilder:
    """Builds the index in bounded memory, in two passes over the files: one for the dictionaries, one for the rows.

    `files`: the dataset's files as `(path, name relative to OUT)`; a path may be that of a unit's part of the index
    instead. `added`, errors: see `UnitRows`.
    """

    def __init__(self, schema: pa.Schema, files: Sequence[tuple[Path, str]], added: Sequence[ColumnSet] = ()) -> None:
        self._schema = schema
        self._files = files
        self._added = added
        self._unit_rows = UnitRows(schema, added)
        self._dictionaries = self._build_dictionaries()

    def _build_dictionaries(self) -> dict[str, pa.Array]:
        names = [field.name for field in self._schema if pa.types.is_dictionary(field.type) and field.name != "file"]
        distinct: dict[str, dict[str, None]] = {name: {} for name in names}
        for path, _ in self._files_with_added(names):
            table = self._unit_rows.read(path, names)
            for name, values in distinct.items():
                unique = table.column(name).unique().to_pylist()
                values.update(dict.fromkeys(value for value in unique if value is not None))
        distinct["file"] = dict.fromkeys(name for _, name in self._files)
        return {name: pa.array(values, pa.string()) for name, values in distinct.items()}

    def _files_with_added(self, names: Collection[str]) -> Iterator[tuple[Path, str]]:
        """All files; those of added columns among `names`, of a store, are fetched some at a time and then removed."""
        sets = [each for each in self._added if any(field.name in names for field in each.indexed_fields)]
        for start in range(0, len(self._files), MAX_REQUESTS):
            files = self._files[start : start + MAX_REQUESTS]
            with ExitStack() as stack:
                for column_set in sets:
                    added = [column_set.unit_file(path.stem) for path, _ in files]
                    stack.enter_context(column_set.paths.files.fetched(added))
                yield from files

    def _encode(self, table: pa.Table) -> pa.RecordBatch:
        columns = []
        for column in self._schema:
            values = table.column(column.name).combine_chunks()
            if column.name in self._dictionaries:
                dictionary = self._dictionaries[column.name]
                codes = pc.index_in(values, value_set=dictionary)
                values = pa.DictionaryArray.from_arrays(codes, dictionary)
            columns.append(values)
        return pa.record_batch(columns, schema=self._schema)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in batches of equal length but the last."""
        buffered: list[pa.Table] = []
        count = 0
        for path, name in self._files_with_added(self._schema.names):
            table = self._unit_rows.read_all(path, name)
            buffered.append(table)
            count += len(table)
            if len(buffered) == _MOST_TABLES:
                buffered = [pa.concat_tables(buffered).combine_chunks()]
            while count >= layout.BATCH_ROWS:
                joined = pa.concat_tables(buffered)
                yield self._encode(joined.slice(0, layout.BATCH_ROWS))
                buffered, count = [joined.slice(layout.BATCH_ROWS)], count - layout.BATCH_ROWS
        if count:
            yield self._encode(pa.concat_tables(buffered))

    def write(self, path: Path) -> int:
        """Writes the index to `path`; returns its number of rows."""
        total = 0
        with pa.ipc.new_file(path, self._schema) as writer:
            for batch in self.batches():
                writer.write_batch(batch, custom_metadata=checksums.metadata_of(batch, is_first=total == 0))
                total += batch.num_rows
        return total


def faces_of(path: Path) -> pa.ChunkedArray:
    """Ids of the faces of a unit; `path`: of its file, or of its part of the index. Raises `CorruptDataError`."""
    return _read_unit(path, [pa.field("face_id", pa.string(), nullable=False)]).column(0)


def _read_added(column_set: ColumnSet, path: Path, columns: Sequence[pa.Field]) -> pa.Table:
    try:
        with column_set.paths.files.local(path) as local:
            return read_columns(local, columns)
    except FileNotFoundError as error:
        raise CorruptDataError(f"{path}: missing") from error


def _read_unit(path: Path, columns: Sequence[pa.Field]) -> pa.Table:
    """Some columns of a unit, from its file or its part of the index."""
    if path.suffix != PART_SUFFIX:
        return read_columns(path, columns)
    table = _whole_part(path)
    names = [column.name for column in columns]
    if not {*names} <= {*table.schema.names} or not table.select(names).schema.equals(pa.schema(columns)):
        raise CorruptDataError(f"{path.name}: its columns are not those of the schema")
    return table.select(names)


def _location(path: Path) -> dict[str, pa.Array]:
    if path.suffix != PART_SUFFIX:
        return location_columns(path)
    table = _whole_part(path)
    return {name: table.column(name) for name in INDEX_COLUMNS if name != "file"}


def _whole_part(path: Path) -> pa.Table:
    if (table := read_part(path)) is None:
        raise CorruptDataError(f"{path.name}: is damaged")
    return table
