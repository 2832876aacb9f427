"""The check of the index: it says of each row what the files say, and is laid out as `IndexBuilder` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..dataset.added_columns import ColumnSet
from ..dataset.index import Index, current_index_path, index_schema, layout
from ..dataset.index_builder import UnitRows
from ..dataset.manifest import Manifest
from ..dataset.out import OutPaths
from ..errors import CorruptDataError, FacefeedError, StoppedError
from ..files import raise_unless_damage
from .findings import Finding
from .ordered import OrderedMap

_CHUNK_ROWS: Final = 100_000
"""Whose columns a worker compares at a time, or those of one file."""

_CHUNK_FILES: Final = 256

_Verdict = Literal["same", "other", "unreadable"]


@dataclass(frozen=True, kw_only=True)
class IndexedFile:
    """A file of the dataset. `path`: of it, or of its part of the index. `location`: its name, relative to OUT.

    `first_row`: number of its first row in the index.
    """

    path: Path
    location: str
    first_row: int
    rows: int


def check_index(
    paths: OutPaths,
    manifest: Manifest,
    files: Sequence[IndexedFile] | None,
    run: OrderedMap,
    parts: OutPaths | None = None,
) -> Iterator[Finding]:
    """Compares the index with the files; damaged ones are reported elsewhere.

    `files`: of the dataset, in the order of the index; None where their rows are not known. `run`: reads them.
    `parts`: where those of added columns are, if not in OUT.
    """
    out = paths.root
    try:
        index = Index(out)
    except StoppedError:
        raise
    except FacefeedError as error:
        yield Finding("index", "index.arrow", str(error))
        return
    metadata = index.schema.metadata
    is_of_manifest = all(metadata.get(key, text) == text for key, text in manifest.face_schema().metadata.items())
    if not is_of_manifest or index.fingerprint != manifest.fingerprint or index.num_rows != manifest.rows:
        yield Finding("index", "index.arrow", "belongs to another state of the dataset")
        return
    if files is None:
        return
    try:
        added = [
            replace(column_set, paths=parts or paths)
            for name in index.added
            if (column_set := ColumnSet.read(paths, name)) is not None
        ]
    except CorruptDataError:
        return
    schema = index_schema(manifest.face_schema(), manifest.fingerprint, added)
    compare = partial(_compare_rows, UnitRows(schema, added))
    verdicts = [*chain.from_iterable(run(compare, _chunks(files)))] if index.schema.equals(schema) else ["other"]
    if "unreadable" in verdicts:
        return
    if "other" in verdicts or sum(file.rows for file in files) != index.num_rows or not _has_own_dictionaries(out):
        yield Finding("index", "index.arrow", "does not say what the files say")
        return
    try:
        index.check_bytes()
    except CorruptDataError as error:  # of the checksums themselves: readers take them for those of other bytes
        yield Finding("index", "index.arrow", str(error))


def _chunks(files: Sequence[IndexedFile]) -> Iterator[list[IndexedFile]]:
    chunk: list[IndexedFile] = []
    for file in files:
        chunk.append(file)
        if file.first_row + file.rows - chunk[0].first_row >= _CHUNK_ROWS or len(chunk) == _CHUNK_FILES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _compare_rows(unit_rows: UnitRows, paths: OutPaths, files: Sequence[IndexedFile]) -> list[_Verdict]:
    """Compares some files with the index, where they are."""
    path = current_index_path(paths.root)
    try:
        with pa.memory_map(str(path)) as mapped:
            stored = pa.ipc.open_file(mapped)
            for column in stored.get_batch(0).columns:
                if pa.types.is_dictionary(column.type):
                    column.dictionary.validate(full=True)  # once: all batches have the same
            return [_compare_file(unit_rows, stored, file) for file in files]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise_unless_damage(path, error)
        return ["other"] * len(files)


def _compare_file(unit_rows: UnitRows, stored: pa.RecordBatchFileReader, file: IndexedFile) -> _Verdict:
    try:
        table = unit_rows.read_all(file.path, file.location)
    except CorruptDataError:
        return "unreadable"
    compared = 0
    for batch in _stored_rows(stored, file.first_row, len(table)):
        if not all(
            _plain(batch.column(name)).equals(_plain(table.column(name).slice(compared, len(batch)).combine_chunks()))
            for name in unit_rows.schema.names
        ):
            return "other"
        compared += len(batch)
    return "same" if compared == len(table) == file.rows else "other"


def _stored_rows(stored: pa.RecordBatchFileReader, first: int, count: int) -> Iterator[pa.RecordBatch]:
    """Rows of the index, in pieces that do not span its batches; fewer where it has no more."""
    while count > 0 and first // layout.BATCH_ROWS < stored.num_record_batches:
        number, position = divmod(first, layout.BATCH_ROWS)
        rows = stored.get_batch(number).slice(position, count)
        if not len(rows):
            return
        yield rows
        first, count = first + len(rows), count - len(rows)


def _plain(values: Any) -> Any:
    """Values without a dictionary, and with the bits of floats as integers: a NaN does not equal itself.

    Raises `ArrowException` where offsets or codes lead out of their buffers.
    """
    if pa.types.is_dictionary(values.type):
        return pc.take(values.dictionary, values.indices, boundscheck=True)
    values.validate(full=True)
    type_ = _with_float_bits(values.type)
    return values if values.type == type_ else values.view(type_)


def _with_float_bits(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(type_):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bit_width]
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_with_float_bits(type_.value_type), type_.list_size)
    return pa.list_(_with_float_bits(type_.value_type)) if pa.types.is_list(type_) else type_


def _has_own_dictionaries(out: Path) -> bool:
    """Whether each dictionary has the values of its column once, as they come first: in another one, or with others, a
    value that is sought by its code would not be found.
    """
    used: dict[str, int] = {}
    dictionaries: dict[str, pa.Array] = {}
    with pa.memory_map(str(current_index_path(out))) as mapped:
        stored = pa.ipc.open_file(mapped)
        for number in range(stored.num_record_batches):
            batch = stored.get_batch(number)
            for name in (field.name for field in stored.schema if pa.types.is_dictionary(field.type)):
                column, before = batch.column(name), used.get(name, 0)
                codes = pc.unique(column.indices.drop_null()).to_numpy()
                new = codes[codes >= before]
                if not np.array_equal(new, np.arange(before, before + len(new))):
                    return False
                used[name], dictionaries[name] = before + len(new), column.dictionary
        return all(
            used[name] == len(values) == pc.count_distinct(values, mode="only_valid").as_py()
            for name, values in dictionaries.items()
        )
