"""Byte ranges of each image and each mask in a Parquet file, read from the page headers.

pyarrow does not expose page headers, and it ends the process where a damaged footer contradicts itself on a column
chunk (it throws a C++ exception past Python). So the few fields that are needed of either are parsed here: the Parquet
format's `PageHeader` and `FileMetaData` structs in Thrift's compact protocol
(https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptDataError
from ..files import raise_unless_damage
from .thrift_compact import CompactReader

# Field ids of FileMetaData, SchemaElement, RowGroup, ColumnChunk and ColumnMetaData.
_SCHEMA, _FILE_ROWS, _ROW_GROUPS = 2, 3, 4
_REPETITION, _NAME = 3, 4
_COLUMNS = 1
_COLUMN_METADATA = 3
_PATH, _CHUNK_SIZE, _CHUNK_OFFSET = 3, 7, 9
_REQUIRED, _OPTIONAL = 0, 1
# Field ids of PageHeader and DataPageHeader, and the values that the schema's writer options guarantee.
_PAGE_TYPE, _UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _DATA_PAGE_HEADER = 1, 2, 3, 5
_NUM_VALUES, _ENCODING = 1, 2
_DATA_PAGE_V1 = 0
_PLAIN = 0

_MAX_HEADER_BYTES = 1024  # headers take some 40: damage is detected within these, not at the end of a long file
_FOOTER_END = b"PAR1"
_FOOTER_SUFFIX_BYTES = 8  # the footer's length, then `_FOOTER_END`
_LENGTH_BYTES = 4


ByteRanges = tuple[NDArray[np.int64], NDArray[np.int32]]


_MAY_BE_NULL = {"image": False, "mask": True}


def byte_ranges(path: Path, *columns: str) -> list[ByteRanges]:
    """Offset and size in bytes of every value of the columns `image` and `mask`, in row order, for each that is given.

    Each is `(offset int64 (rows,), size int32 (rows,))`; offsets count from the start of the file; both are 0 where a
    row has no mask. Only the footer, page headers and the 4-byte lengths are read. Raises `CorruptDataError` where the
    file is not laid out as `schema.parquet_writer_options` says, or the lengths do not fill their page exactly.
    """
    column = columns[0]
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            data.madvise(mmap.MADV_RANDOM)
            footer, ranges = _read_footer(data), []
            for column in columns:
                ranges.append(_scan_file(data, footer, column, nullable=_MAY_BE_NULL[column]))
            return ranges
    except (OSError, ValueError) as error:
        raise_unless_damage(path, error)
        raise CorruptDataError(f"{path.name}: column {column}: {error}") from error


def _read_footer(data: mmap.mmap) -> dict[int, object]:
    """Returns the file's `FileMetaData` by field id."""
    size = int.from_bytes(data[-_FOOTER_SUFFIX_BYTES : -len(_FOOTER_END)], "little")
    start = len(data) - _FOOTER_SUFFIX_BYTES - size
    if data[-len(_FOOTER_END) :] != _FOOTER_END or start < len(_FOOTER_END):
        raise ValueError("the file does not end as a Parquet file does")
    try:
        return CompactReader(data[start : start + size]).struct()
    except (IndexError, ValueError) as error:
        raise ValueError(f"the file's footer is damaged: {error}") from error


def _scan_file(data: mmap.mmap, footer: dict[int, object], column: str, *, nullable: bool) -> ByteRanges:
    rows = footer.get(_FILE_ROWS)
    if not isinstance(rows, int) or not 0 <= rows <= len(data):
        raise ValueError(f"the footer says {rows} rows, more than {len(data)} bytes can hold")
    offsets, sizes = np.zeros(rows, np.int64), np.zeros(rows, np.int32)
    rows_read = 0
    for start, end in _chunks(footer, column, nullable=nullable):
        if not 0 <= start <= end <= len(data):
            raise ValueError(f"the footer puts it at bytes {start} to {end} of {len(data)}")
        position = start
        while position < end:
            try:
                page = _parse_page(data, position, end, nullable=nullable, max_rows=rows - rows_read)
                position = _scan_page(data, page, offsets[rows_read:], sizes[rows_read:])
            except IndexError as error:
                raise ValueError(f"page at byte {position}: its header does not end") from error
            except ValueError as error:
                raise ValueError(f"page at byte {position}: {error}") from error
            rows_read += len(page.present)
    if rows_read != rows:
        raise ValueError(f"its pages hold {rows_read} values, the footer says {rows} rows")
    return offsets, sizes


def _chunks(footer: dict[int, object], column: str, *, nullable: bool) -> Iterator[tuple[int, int]]:
    """Byte range (start, end) of the column in every row group."""
    name, repetition = column.encode(), _OPTIONAL if nullable else _REQUIRED
    if (name, repetition) not in [
        (element.get(_NAME), element.get(_REPETITION)) for element in _structs(footer, _SCHEMA)
    ]:
        raise ValueError("is not there" if nullable else "is not there, or may hold nulls")
    for group in _structs(footer, _ROW_GROUPS):
        chunks = [chunk.get(_COLUMN_METADATA) for chunk in _structs(group, _COLUMNS)]
        chunk = next((chunk for chunk in chunks if isinstance(chunk, dict) and chunk.get(_PATH) == [name]), {})
        start, size = chunk.get(_CHUNK_OFFSET), chunk.get(_CHUNK_SIZE)
        if not isinstance(start, int) or not isinstance(size, int):
            raise ValueError("the footer does not say where it lies")
        yield start, start + size


def _structs(parent: dict[int, object], field_id: int) -> list[dict[int, object]]:
    """The list of structs in a field; refused where it holds anything else."""
    values = parent.get(field_id)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ValueError(f"the file's footer is damaged: its field {field_id} is not a list of structs")
    return values


@dataclass(frozen=True, slots=True)
class _Page:
    """One data page. `present`: which rows have a value, bool (rows,); the values are the bytes `first` to `end`."""

    present: NDArray[np.bool_]
    first: int
    end: int


def _parse_page(data: mmap.mmap, position: int, end: int, *, nullable: bool, max_rows: int) -> _Page:
    reader = CompactReader(data[position : min(position + _MAX_HEADER_BYTES, end)])
    header = reader.struct()
    page, page_size = header.get(_DATA_PAGE_HEADER), header.get(_COMPRESSED_SIZE)
    is_plain_v1 = header.get(_PAGE_TYPE) == _DATA_PAGE_V1 and header.get(_UNCOMPRESSED_SIZE) == page_size
    if not is_plain_v1 or not isinstance(page, dict) or page.get(_ENCODING) != _PLAIN:
        raise ValueError("is not a PLAIN, uncompressed data page of version 1")
    rows = page.get(_NUM_VALUES)
    first = position + reader.position
    page_end = first + page_size if isinstance(page_size, int) else -1
    if not first <= page_end <= end or not isinstance(rows, int) or not 0 <= rows <= max_rows:
        raise ValueError("does not fit its column chunk")
    if not nullable:
        return _Page(np.ones(rows, np.bool_), first, page_end)
    size = int.from_bytes(data[first : first + _LENGTH_BYTES], "little")
    values = first + _LENGTH_BYTES + size
    if values > page_end:
        raise ValueError("its levels lead out of it")
    return _Page(_decode_levels(data[first + _LENGTH_BYTES : values], rows), values, page_end)


def _decode_levels(data: bytes, rows: int) -> NDArray[np.bool_]:
    """Decodes definition levels of one bit, bool (rows,), from Parquet's RLE/bit-packing hybrid encoding."""
    reader = CompactReader(data)
    runs: list[NDArray[np.bool_]] = []
    remaining = rows
    while remaining > 0:
        head = reader.varint()
        if head & 1:
            count = head >> 1
            packed = np.frombuffer(data[reader.position : reader.position + count], np.uint8)
            run = np.unpackbits(packed, bitorder="little").astype(np.bool_)
            reader.position += count
        else:
            run = np.full(min(head >> 1, remaining), data[reader.position] == 1)
            reader.position += 1
        if not len(run):
            raise ValueError("its levels end too early")
        runs.append(run[:remaining])
        remaining -= len(runs[-1])
    return np.concatenate(runs) if runs else np.empty(0, np.bool_)


def _scan_page(data: mmap.mmap, page: _Page, offsets: NDArray[np.int64], sizes: NDArray[np.int32]) -> int:
    """Fills in offset and size of the values of a page; returns its end."""
    position = page.first
    for row in np.flatnonzero(page.present).tolist():
        size = int.from_bytes(data[position : position + _LENGTH_BYTES], "little")
        offsets[row], sizes[row] = position + _LENGTH_BYTES, min(size, 1 << 30)
        position += _LENGTH_BYTES + size
        if position > page.end:
            raise ValueError("holds a length that leads out of it")
    if position != page.end:
        raise ValueError("is longer than its values")
    return page.end
