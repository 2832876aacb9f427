"""The index: the small columns of every row and the byte range of its image and mask; Arrow IPC, memory-mapped.

Derived from the receipts' files alone, so it can be rebuilt at any time. It holds every column of the schema but
the large ones (`UNINDEXED_COLUMNS`), and for each image: `file` (relative to OUT), `image_offset`, `image_bytes`,
`image_crc32`; for each mask `mask_offset` and `mask_bytes`, both 0 where there is none (PNG has its own checksums).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from ..errors import CorruptDataError, FacefeedError, UsageError
from .manifest import Manifest, OutPaths
from .parquet_pages import image_byte_ranges, mask_byte_ranges
from .schema import UNINDEXED_COLUMNS, labels_of, recorded_schema

_BATCH_ROWS = 65_536  # every batch but the last: a row's batch is found by division


INDEX_COLUMNS = ("file", "image_offset", "image_bytes", "mask_offset", "mask_bytes")
"""Columns of the index alone: where the image and the mask of a row lie."""


def index_schema(faces: pa.Schema, fingerprint: str) -> pa.Schema:
    """Schema of ``OUT/index.arrow`` for files of the schema `faces`; strings that repeat are dictionary-encoded."""
    columns = []
    for column in faces:
        if column.name in UNINDEXED_COLUMNS:
            continue
        repeats = pa.types.is_string(column.type) and column.name != "face_id"
        columns.append(column.with_type(pa.dictionary(pa.int32(), pa.string())) if repeats else column)
    columns += [
        pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("image_offset", pa.int64(), nullable=False),
        pa.field("image_bytes", pa.int32(), nullable=False),
        pa.field("mask_offset", pa.int64(), nullable=False),
        pa.field("mask_bytes", pa.int32(), nullable=False),
    ]
    metadata = {**faces.metadata, b"facefeed.fingerprint": fingerprint.encode()}
    return pa.schema(columns, metadata=metadata)


class IndexBuilder:
    """Builds the index in bounded memory, in two passes over the files: one for the dictionaries, one for the rows.

    `files`: the dataset's files as `(path, name relative to OUT)`. Raises `CorruptDataError` on a file that cannot be
    read or has other columns.
    """

    def __init__(self, schema: pa.Schema, files: Sequence[tuple[Path, str]]) -> None:
        self._schema = schema
        self._files = files
        self._stored = [field for field in recorded_schema(schema) if field.name not in UNINDEXED_COLUMNS]
        self._dictionaries = self._build_dictionaries()

    def _build_dictionaries(self) -> dict[str, pa.Array]:
        columns = [field for field in self._stored if pa.types.is_dictionary(self._schema.field(field.name).type)]
        distinct: dict[str, dict[str, None]] = {field.name: {} for field in columns}
        for path, _ in self._files:
            table = _read(path, columns)
            for name, values in distinct.items():
                unique = table.column(name).unique().to_pylist()
                values.update(dict.fromkeys(value for value in unique if value is not None))
        distinct["file"] = dict.fromkeys(name for _, name in self._files)
        return {name: pa.array(values, pa.string()) for name, values in distinct.items()}

    def _rows(self) -> Iterator[pa.Table]:
        for path, name in self._files:
            table = _read(path, self._stored)
            table = table.append_column("file", pa.array([name] * len(table), pa.string()))
            for column, (offsets, sizes) in (("image", image_byte_ranges(path)), ("mask", mask_byte_ranges(path))):
                table = table.append_column(f"{column}_offset", pa.array(offsets))
                table = table.append_column(f"{column}_bytes", pa.array(sizes))
            yield table

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
        for table in self._rows():
            buffered.append(table)
            count += len(table)
            while count >= _BATCH_ROWS:
                joined = pa.concat_tables(buffered)
                yield self._encode(joined.slice(0, _BATCH_ROWS))
                buffered, count = [joined.slice(_BATCH_ROWS)], count - _BATCH_ROWS
        if count:
            yield self._encode(pa.concat_tables(buffered))

    def write(self, path: Path) -> int:
        """Writes the index to `path`; returns its number of rows."""
        total = 0
        with pa.ipc.new_file(path, self._schema) as writer:
            for batch in self.batches():
                writer.write_batch(batch)
                total += batch.num_rows
        return total


def _read(path: Path, columns: Sequence[pa.Field]) -> pa.Table:
    """Reads some columns of a Parquet file and verifies their page checksums."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read(columns=[column.name for column in columns])
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CorruptDataError(f"{path.name}: {error}") from error
    if not table.schema.equals(pa.schema(columns)):
        raise CorruptDataError(f"{path.name}: its columns are not those of the schema")
    return table


def current_index_path(out: Path) -> Path:
    """Path of the index that belongs to OUT's manifest.

    The next index is written before the manifest and renamed after it, so that the current manifest has an index at any
    moment, even if a run is killed.
    """
    paths = OutPaths(out)
    try:
        with pa.memory_map(str(paths.next_index)) as stored:
            fingerprint = pa.ipc.open_file(stored).schema.metadata[b"facefeed.fingerprint"].decode()
        return paths.next_index if fingerprint == Manifest.read(out).fingerprint else paths.index
    except (FacefeedError, KeyError, OSError, TypeError, ValueError, pa.ArrowException):
        return paths.index


class Index:
    """Every row of a dataset, memory-mapped: opening it reads no rows, and processes share its pages.

    All batches but the last have the same length, so the batch of a row is found by division. Pickled as its path.
    """

    def __init__(self, out: Path) -> None:
        self.out = Path(out)
        path = current_index_path(self.out)
        remedy = f"run `facefeed verify {out} --rebuild-index`"
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
            self.schema: pa.Schema = reader.schema
            self.labels, faces = labels_of(self.schema), recorded_schema(self.schema)
            self.fingerprint = self.schema.metadata[b"facefeed.fingerprint"].decode()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UsageError(f"{path}: not there; finish `facefeed precompute`, or {remedy}") from error
        except (CorruptDataError, KeyError, OSError, ValueError, pa.ArrowException) as error:
            raise CorruptDataError(f"{path}: cannot be read ({error}); {remedy}") from error
        self._views: dict[tuple[str, int], Any] = {}
        self._categories: dict[str, list[str]] = {}
        self.num_rows: int = sum(batch.num_rows for batch in self._batches)
        # Rows are located by division, so all batches but the last must have the expected length.
        has_expected_schema = self.schema.equals(index_schema(faces, self.fingerprint))
        if not has_expected_schema or any(batch.num_rows != _BATCH_ROWS for batch in self._batches[:-1]):
            raise CorruptDataError(f"{path}: is not laid out as this facefeed lays it out; {remedy}")

    def __reduce__(self) -> tuple[type[Self], tuple[Path]]:
        return type(self), (self.out,)

    def __len__(self) -> int:
        return self.num_rows

    @property
    def categorical_columns(self) -> list[str]:
        """Names of the dictionary-encoded columns of strings."""
        return [field.name for field in self.schema if pa.types.is_dictionary(field.type)]

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows, zero-copy."""
        return pa.chunked_array([batch.column(name) for batch in self._batches], self.schema.field(name).type)

    def value(self, name: str, row: int) -> Any:
        """One cell as a Python value."""
        batch, position = divmod(row, _BATCH_ROWS)
        return self._batches[batch].column(name)[position].as_py()

    def rows_where(self, name: str, value: str) -> NDArray[np.uint32]:
        """Numbers uint32 (rows,) of the rows whose dictionary column `name` equals `value`, ascending."""
        categories = self.categories(name)
        code = categories.index(value) if value in categories else None
        rows = [
            np.flatnonzero(_codes(batch.column(name)) == code).astype(np.uint32) + np.uint32(number * _BATCH_ROWS)
            for number, batch in enumerate(self._batches)
            if code is not None
        ]
        return np.concatenate(rows) if rows else np.empty(0, np.uint32)

    def numbers(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """Cells of a numeric column at `rows`, in that order; null is 0 for integers, NaN for floats."""
        return self._gather(rows, lambda batch: self._cached(name, batch, _numbers))

    def number(self, name: str, row: int) -> Any:
        """One cell of a numeric column; null as in `numbers`."""
        batch, position = divmod(row, _BATCH_ROWS)
        return self._cached(name, batch, _numbers)[position]

    def text(self, name: str, row: int) -> str | None:
        """One cell of a dictionary column; None where null."""
        batch, position = divmod(row, _BATCH_ROWS)
        code = self._cached(name, batch, _codes)[position]
        return None if code < 0 else self.categories(name)[code]

    def codes(self, name: str, rows: ArrayLike) -> NDArray[np.int32]:
        """Cells of a dictionary column at `rows`, as positions in `categories(name)`; -1 where null."""
        codes: NDArray[np.int32] = self._gather(rows, lambda batch: self._cached(name, batch, _codes))
        return codes

    def categories(self, name: str) -> list[str]:
        """The distinct strings of a dictionary column; `codes` are positions in this list."""
        if not self._batches:
            return []
        if name not in self._categories:
            self._categories[name] = self._batches[0].column(name).dictionary.to_pylist()
        return self._categories[name]

    def points(self, name: str, row: int) -> NDArray[np.float32]:
        """One cell of `landmarks` or `hull`: float32 (points, 2), crop px; read-only."""
        batch, position = divmod(row, _BATCH_ROWS)
        offsets, values = self._cached(name, batch, _points)
        return values[offsets[position] : offsets[position + 1]]  # type: ignore[no-any-return]

    def boxes(self, name: str, rows: ArrayLike) -> NDArray[np.float32]:
        """Cells of a column of boxes at `rows`, in that order: float32 (rows, 4), xyxy."""
        return self._gather(rows, lambda batch: self._cached(name, batch, _boxes))

    def landmarks(self, rows: ArrayLike) -> NDArray[np.float32]:
        """The landmarks at `rows`, in that order: float32 (rows, 5, 2), crop px."""
        return self._gather(rows, lambda batch: self._cached("landmarks", batch, _points)[1].reshape(-1, 5, 2))

    def regions(self, row: int) -> dict[str, NDArray[np.float32]]:
        """Boxes of a face's regions: name -> float32 (4,), xyxy, crop px; read-only."""
        batch, position = divmod(row, _BATCH_ROWS)
        boxes: dict[str, NDArray[np.float32]] = self._cached("regions", batch, _regions)
        return {name: values[position] for name, values in boxes.items()}

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in order, zero-copy."""
        for batch in self._batches:
            yield batch.select(columns)

    def _cached(self, name: str, batch: int, view: Callable[[pa.Array], Any]) -> Any:
        key = (name, batch)
        if key not in self._views:
            self._views[key] = view(self._batches[batch].column(name))
        return self._views[key]

    def _gather(self, rows: ArrayLike, column: Callable[[int], NDArray[Any]]) -> NDArray[Any]:
        row_numbers = np.atleast_1d(np.asarray(rows, np.int64))
        batches, positions = np.divmod(row_numbers, _BATCH_ROWS)
        if not len(row_numbers):
            return column(0)[:0].copy() if self._batches else np.empty(0)
        first = column(int(batches[0]))
        values = np.empty((len(row_numbers), *first.shape[1:]), first.dtype)
        for batch in np.unique(batches):
            in_batch = batches == batch
            values[in_batch] = column(int(batch))[positions[in_batch]]
        return values


def _numbers(column: pa.Array) -> NDArray[Any]:
    filled = column if not column.null_count else column.fill_null(np.nan if pa.types.is_floating(column.type) else 0)
    return _view(filled)


def _codes(column: pa.DictionaryArray) -> NDArray[np.int32]:
    indices = column.indices
    return _view(indices.fill_null(-1) if indices.null_count else indices)


def _points(column: pa.ListArray) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Offsets of a batch's lists of points, and all points, float32 (points, 2)."""
    return _view(column.offsets), _view(column.values.flatten()).reshape(-1, 2)


def _boxes(column: pa.FixedSizeListArray) -> NDArray[np.float32]:
    return _view(column.flatten()).reshape(-1, 4)


def _regions(column: pa.StructArray) -> dict[str, NDArray[np.float32]]:
    return {field.name: _boxes(column.field(field.name)) for field in column.type}


def _view(numbers: pa.Array) -> NDArray[Any]:
    """A read-only view. By DLPack: `to_numpy` would import pandas, which takes 0.5 s in every worker."""
    view: NDArray[Any] = np.from_dlpack(numbers)
    return view
