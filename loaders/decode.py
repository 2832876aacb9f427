"""From a row's byte range to its pixels: one `pread`, a checksum, a decoder."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray

from ..pipeline.errors import CorruptDataError


class ByteRanges:
    """Reads byte ranges of files below a folder; one open descriptor a file, none of which is pickled."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptors: dict[str, int] = {}

    def __reduce__(self) -> tuple[type[ByteRanges], tuple[Path]]:
        return type(self), (self._root,)

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def read(self, name: str, offset: int, size: int, crc32: int) -> bytes:
        """Bytes `offset` .. `offset + size` of the file `name`; raises `CorruptDataError` on a wrong CRC-32."""
        try:
            if name not in self._descriptors:
                self._descriptors[name] = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(self._descriptors[name], size, offset)
        except OSError as error:
            raise CorruptDataError(f"{self._root / name}: {error.strerror}; run `facefeed verify {self._root}`") from error
        if len(data) != size or zlib.crc32(data) != crc32:
            raise CorruptDataError(
                f"{self._root / name}: the image at byte {offset} is not the one that was written; "
                f"run `facefeed verify {self._root}`"
            )
        return data


def decode_rgb(data: bytes) -> NDArray[np.uint8]:
    """An encoded crop as RGB uint8 (H, W, 3); JPEG by simplejpeg, which is the fastest, else OpenCV."""
    if data[:2] == b"\xff\xd8":
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colorspace="RGB")
        return pixels
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    if decoded is None:
        raise CorruptDataError("image: cannot be decoded although its CRC-32 is right; was OUT made by facefeed?")
    return decoded.astype(np.uint8, copy=False)
