"""What a form reads of OUT: light columns from the index, images and masks by byte range, checked by CRC-32."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..dataset.index import INDEX_COLUMNS, Index
from ..dataset.manifest import Manifest
from ..errors import CorruptDataError, StoppedError

Rows = NDArray[np.uint32]
"""Row numbers in the index (rows,), ascending."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_CHUNK_OVERHEAD: Final = 12  # length, type and CRC of a PNG chunk


class DamagedRowError(CorruptDataError):
    """The stored bytes of one image or mask are not those that were written."""


class StoredRows:
    """The rows of a finished dataset; images are read in the order of the index, from one open file at a time.

    `index`: of OUT. `suffix`: of the stored images, such as ".jpg". Not thread-safe.
    Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where its index is damaged or belongs
    to another state of it.
    """

    def __init__(self, out: Path) -> None:
        self.manifest = Manifest.read(out)
        self.index = Index(out)
        if self.index.fingerprint != self.manifest.fingerprint:
            raise CorruptDataError(
                f"{out}: the index belongs to another state of the dataset; run `facefeed verify {out} --rebuild-index`"
            )
        self.suffix = {"jpeg": ".jpg"}.get(format_ := self.manifest.config["format"], f".{format_}")
        self.light_columns = [name for name in self.index.schema.names if name not in INDEX_COLUMNS]
        self._descriptor: int | None = None
        self._open_file: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = self._open_file = None

    def select(self, split: str | None) -> Rows:
        """Rows of a split, or all."""
        return np.arange(len(self.index), dtype=np.uint32) if split is None else self.index.rows_where("split", split)

    def by_file(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        """`rows` by the Parquet file that holds them: its name relative to OUT, and the rows."""
        names = self.index.categories("file")
        codes = self.index.codes("file", rows)
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(rows) else np.empty(0, np.int64)
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            yield names[codes[start]], rows[start:end]

    def rows_of(self, face_ids: Set[str]) -> Rows:
        """Rows of some faces."""
        if not face_ids:
            return np.empty(0, np.uint32)
        wanted, found, start = pa.array(face_ids, pa.string()), [], 0
        for batch in self.index.batches(["face_id"]):
            is_wanted = pc.is_in(batch.column("face_id"), value_set=wanted).to_numpy(zero_copy_only=False)
            found.append(np.flatnonzero(is_wanted) + start)
            start += batch.num_rows
        return np.concatenate(found).astype(np.uint32)

    def label_name(self, row: int) -> str | None:
        """Name of a row's label; None where it is unknown."""
        number = int(self.index.number("label", row))
        return self.index.labels[number] if 0 <= number < len(self.index.labels) else None

    def batches(self, rows: Rows, max_rows: int) -> Iterator[tuple[Rows, pa.RecordBatch]]:
        """The light columns of `rows`, at most `max_rows` at a time, with their row numbers."""
        start = 0
        for batch in self.index.batches(self.light_columns):
            first, end = np.searchsorted(rows, [start, start + batch.num_rows])
            for position in range(first, end, max_rows):
                chunk = rows[position : min(position + max_rows, end)]
                yield chunk, batch.take(pa.array(chunk.astype(np.int64) - start))
            start += batch.num_rows

    def image(self, row: int) -> bytes:
        """The encoded crop; raises `DamagedRowError` where it is not the one that was written."""
        data = self._read(row, "image")
        if zlib.crc32(data) != self.index.number("image_crc32", row):
            raise DamagedRowError(f"{self.index.value('face_id', row)}: its image's CRC-32 is not the stored one")
        return data

    def mask(self, row: int) -> bytes | None:
        """The mask as 1-bit PNG, None where the row has none; raises `DamagedRowError` where it is damaged."""
        if not self.index.number("mask_bytes", row):
            return None
        data = self._read(row, "mask")
        if not is_whole_png(data):
            raise DamagedRowError(f"{self.index.value('face_id', row)}: its mask is damaged")
        return data

    def _read(self, row: int, column: str) -> bytes:
        name = self.index.text("file", row)
        assert name is not None
        path = self.index.out / name
        try:
            if self._descriptor is None or name != self._open_file:
                self._close()
                self._descriptor, self._open_file = os.open(path, os.O_RDONLY | os.O_CLOEXEC), name
            size, offset = int(self.index.number(f"{column}_bytes", row)), self.index.number(f"{column}_offset", row)
            return os.pread(self._descriptor, size, int(offset))
        except FileNotFoundError as error:
            raise CorruptDataError(f"{path}: missing; run `facefeed verify {self.index.out}`") from error
        except OSError as error:
            raise StoppedError(f"{path}: {error.strerror}; see to the disk and run the same command again") from error


def is_whole_png(data: bytes) -> bool:
    """Whether a PNG has all of its chunks, each with the right CRC."""
    position = len(_PNG)
    if data[:position] != _PNG:
        return False
    while position + _CHUNK_OVERHEAD <= len(data):
        end = position + _CHUNK_OVERHEAD + int.from_bytes(data[position : position + 4], "big")
        kind_and_content, stored = data[position + 4 : end - 4], data[end - 4 : end]
        if end > len(data) or zlib.crc32(kind_and_content).to_bytes(4, "big") != stored:
            return False
        if kind_and_content[:4] == b"IEND":
            return end == len(data)
        position = end
    return False
