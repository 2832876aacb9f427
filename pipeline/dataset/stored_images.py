"""`StoredImages`: the encoded images and masks of a dataset's rows, read by byte range and checked."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..errors import CorruptDataError, UsageError
from .byte_ranges import ByteRangeReader, MissingFileError, Range, RangeReader
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

    def __init__(self, index: Index, ranges: RangeReader | None = None) -> None:
        self._index = index
        self.ranges: RangeReader = ByteRangeReader(index.out) if ranges is None else ranges

    def prefetch(self, rows: Sequence[int], *, masks: bool) -> None:
        """Fetches at once what these rows need, where the dataset is in a store; `masks`: also their masks."""
        columns = ("image", "mask") if masks else ("image",)
        self.ranges.prefetch(range_ for column in columns for range_ in self._ranges_of(column, rows))

    def _ranges_of(self, column: str, rows: Sequence[int]) -> Iterator[Range]:
        index = self._index
        starts, sizes = index.numbers(f"{column}_offset", rows), index.numbers(f"{column}_bytes", rows)
        names = index.categories("file")
        for code, start, size in zip(index.codes("file", rows).tolist(), starts.tolist(), sizes.tolist(), strict=True):
            if start >= 0 and 0 < size <= _MAX_BYTES:
                yield names[code], start, start + size

    def image(self, row: int) -> bytes:
        """The encoded crop of a row, checked by its CRC-32."""
        number = self._index.number
        offset, size = int(number("image_offset", row)), int(number("image_bytes", row))
        crc32 = number("image_crc32", row)
        return self._checked("image", row, lambda data: len(data) == size and zlib.crc32(data) == crc32, offset, size)

    def mask(self, row: int) -> bytes | None:
        """The manipulation mask of a row, a PNG checked by the CRCs of its chunks; None where the row has none."""
        number = self._index.number
        size = int(number("mask_bytes", row))
        if not size:
            return None
        return self._checked("mask", row, _is_complete_png, int(number("mask_offset", row)), size)

    def _checked(self, column: str, row: int, is_sound: Callable[[bytes], bool], offset: int, size: int) -> bytes:
        """The bytes of a range, from the store once more where they are not those that were written."""
        if offset < 0 or not 0 <= size <= _MAX_BYTES:  # it can be no image's; no memory is taken for it
            raise self._damaged(column, row)
        name = str(self._index.text("file", row))
        try:
            data: bytes | None = self.ranges.read(name, offset, size)
            if data is not None and not is_sound(data):
                data = self.ranges.read_again(name, offset, size)
        except MissingFileError as error:
            if self._is_current():
                raise
            raise MissingFileError(changed_text(self.ranges.where)) from error
        if data is None or not is_sound(data):
            raise self._damaged(column, row)
        return data

    def _is_current(self) -> bool:
        """Whether OUT has the state of the index still, as far as can be read."""
        if (is_current := self.ranges.is_current()) is not None:
            return is_current
        try:
            return bool(Manifest.read(self._index.out).fingerprint == self._index.fingerprint)
        except (CorruptDataError, UsageError):
            return True

    def _damaged(self, column: str, row: int) -> CorruptDataError:
        index, offset = self._index, self._index.number(f"{column}_offset", row)
        face = f"{index.text('video_id', row)}, frame {index.number('frame_index', row)}"
        return CorruptDataError(
            f"{self.ranges.where}/{index.text('file', row)}: the {column} at byte {offset} is not the one that was "
            f"written ({face}); {self.ranges.remedy}"
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
