"""Where each image's bytes lie in a Parquet file, read from the page headers.

pyarrow does not show page headers, so the few fields that are needed are read here, after the Parquet format's
`PageHeader` struct in Thrift's compact protocol
(https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from .errors import CorruptDataError

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_DATA_PAGE_V1 = 0
_PLAIN = 0


class _CompactReader:
    """Reads one Thrift compact struct as nested dicts of field id to value; what is not an integer is skipped."""

    def __init__(self, data: mmap.mmap, position: int) -> None:
        self.data, self.position = data, position

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _value(self, kind: int) -> object:
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in {_I16, _I32, _I64}:
            return self._integer()
        if kind == _STRUCT:
            return self.struct()
        if kind == _BINARY:
            self.position += self._varint()
        elif kind in {_BYTE, _DOUBLE}:
            self.position += 1 if kind == _BYTE else 8
        else:
            raise CorruptDataError(f"page header: unexpected Thrift type {kind}")
        return None

    def struct(self) -> dict[int, object]:
        fields: dict[int, object] = {}
        field_id = 0
        while (head := self.data[self.position]) != _STOP:
            self.position += 1
            field_id = field_id + (head >> 4) if head >> 4 else self._integer()
            fields[field_id] = self._value(head & 0x0F)
        self.position += 1
        return fields


def image_ranges(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and sizes in bytes of every value of the column `image`, in row order.

    Returns `(offset int64 (rows,), size int32 (rows,))`; offsets count from the start of the file. Only page
    headers and the 4-byte lengths are touched. Raises `CorruptDataError` where the file is not laid out as
    `schema.parquet_writer_options` says, or a length leads out of its page.
    """
    try:
        footer = pq.read_metadata(path)
    except (OSError, ValueError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise CorruptDataError(f"{path.name}: footer cannot be read ({error})") from error
    column = footer.schema.names.index("image")
    offsets = np.empty(footer.num_rows, np.int64)
    sizes = np.empty(footer.num_rows, np.int32)
    done = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        data.madvise(mmap.MADV_RANDOM)
        for group in range(footer.num_row_groups):
            chunk = footer.row_group(group).column(column)
            position, end = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size
            while position < end:
                try:
                    position, rows = _walk_page(data, position, end, offsets[done:], sizes[done:])
                except (IndexError, KeyError, ValueError) as error:
                    raise CorruptDataError(f"{path.name}: image page at byte {position}: {error}") from error
                done += rows
    if done != footer.num_rows:
        raise CorruptDataError(f"{path.name}: pages hold {done} images, the footer says {footer.num_rows} rows")
    return offsets, sizes


def _walk_page(
    data: mmap.mmap, position: int, end: int, offsets: NDArray[np.int64], sizes: NDArray[np.int32]
) -> tuple[int, int]:
    reader = _CompactReader(data, position)
    header = reader.struct()
    page = header.get(5)
    if header[1] != _DATA_PAGE_V1 or not isinstance(page, dict) or page[2] != _PLAIN or header[2] != header[3]:
        raise ValueError("is not a PLAIN, uncompressed data page")
    value, rows, page_size = reader.position, page[1], header[3]
    page_end = value + page_size if isinstance(page_size, int) else 0
    if not value <= page_end <= end or not isinstance(rows, int) or not 0 <= rows <= len(offsets):
        raise ValueError("does not fit its column chunk")
    for row in range(rows):
        size = int.from_bytes(data[value : value + 4], "little")
        offsets[row], sizes[row] = value + 4, min(size, 1 << 30)
        value += 4 + size
        if value > page_end:
            raise ValueError("holds a length that leads out of it")
    return page_end, rows
