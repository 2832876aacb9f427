"""`StoredImages`: the encoded images and masks of a dataset's rows, read by byte range and checked."""

from __future__ import annotations

import zlib
from typing import Final

from ..errors import CorruptDataError, UsageError
from .byte_ranges import ByteRangeReader, MissingFileError, Storage
from .index import Index
from .index_like import changed_text
from .manifest import Manifest

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_CHUNK_OVERHEAD: Final = 12  # length, type and CRC of a PNG chunk
_MAX_BYTES: Final = 1 << 27  # the largest crop as a PNG of noise takes less than half


class StoredImages:
    """Reads the images and masks of the rows of `index`; files stay open. Picklable. Not thread-safe.

    Both raise `CorruptDataError` where the bytes are not those that were written, its subclass `MissingFileError` where
    the row's file is not there, and `StoppedError` where storage does not return it.
    """

    def __init__(self, index: Index, storage: Storage | None = None) -> None:
        self._index, self._ranges = index, ByteRangeReader(index.out, storage)

    def image(self, row: int) -> bytes:
        """The encoded crop of a row, checked by its CRC-32."""
        number = self._index.number
        offset, size = int(number("image_offset", row)), int(number("image_bytes", row))
        data = self._read(row, offset, size)
        if len(data) != size or zlib.crc32(data) != number("image_crc32", row):
            raise self._damaged("image", row)
        return data

    def mask(self, row: int) -> bytes | None:
        """The manipulation mask of a row, a PNG checked by the CRCs of its chunks; None where the row has none."""
        number = self._index.number
        size = int(number("mask_bytes", row))
        if not size:
            return None
        data = self._read(row, int(number("mask_offset", row)), size)
        if not _is_complete_png(data):
            raise self._damaged("mask", row)
        return data

    def _read(self, row: int, offset: int, size: int) -> bytes:
        """The bytes of a range; none where it can be no image's, so that no memory is taken for it."""
        if offset < 0 or not 0 <= size <= _MAX_BYTES:
            return b""
        try:
            return self._ranges.read(str(self._index.text("file", row)), offset, size)
        except MissingFileError as error:
            if self._is_current():
                raise
            raise MissingFileError(changed_text(self._index.out)) from error

    def _is_current(self) -> bool:
        """Whether OUT has the state of the index still, as far as can be read."""
        try:
            return bool(Manifest.read(self._index.out).fingerprint == self._index.fingerprint)
        except (CorruptDataError, UsageError):
            return True

    def _damaged(self, column: str, row: int) -> CorruptDataError:
        index, offset = self._index, self._index.number(f"{column}_offset", row)
        face = f"{index.text('video_id', row)}, frame {index.number('frame_index', row)}"
        return CorruptDataError(
            f"{index.out / str(index.text('file', row))}: the {column} at byte {offset} is not the one that was "
            f"written ({face}); run `facefeed verify {index.out}`"
        )


def _is_complete_png(data: bytes) -> bool:
    """Whether a PNG has all of its chunks, each with the right CRC."""
    position = len(_PNG)
    if data[:position] != _PNG:
        return False
    while position + _CHUNK_OVERHEAD <= len(data):
        end = position + _CHUNK_OVERHEAD + int.from_bytes(data[position : position + 4], "big")
        kind_and_content, crc = data[position + 4 : end - 4], data[end - 4 : end]
        if end > len(data) or zlib.crc32(kind_and_content).to_bytes(4, "big") != crc:
            return False
        if kind_and_content[:4] == b"IEND":
            return end == len(data)
        position = end
    return False
