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

_MOST_OPEN = 128  # a process may often open no more than 1024 files, a dataset has any number of them


class ByteRanges:
    """Reads byte ranges of files below a folder; keeps the last used ones open, pickles no descriptor.

    For one thread at a time.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptors: dict[str, int] = {}  # in the order of their last use

    def __reduce__(self) -> tuple[type[ByteRanges], tuple[Path]]:
        return type(self), (self._root,)

    def __del__(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def read(self, name: str, offset: int, size: int, crc32: int) -> bytes:
        """Bytes `offset` .. `offset + size` of the file `name`; raises `CorruptDataError` on a wrong CRC-32."""
        try:
            data = os.pread(self._descriptor(name), size, offset)
        except OSError as error:
            raise CorruptDataError(
                f"{self._root / name}: {error.strerror}; run `facefeed verify {self._root}`"
            ) from error
        if len(data) != size or zlib.crc32(data) != crc32:
            raise CorruptDataError(
                f"{self._root / name}: the image at byte {offset} is not the one that was written; "
                f"run `facefeed verify {self._root}`"
            )
        return data

    def _descriptor(self, name: str) -> int:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is None:
            if len(self._descriptors) >= _MOST_OPEN:
                os.close(self._descriptors.pop(next(iter(self._descriptors))))
            descriptor = os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC)
        self._descriptors[name] = descriptor
        return descriptor


def decode_rgb(data: bytes) -> NDArray[np.uint8]:
    """An encoded crop as RGB uint8 (H, W, 3); JPEG by simplejpeg, which is the fastest, else OpenCV."""
    try:
        if data[:2] == b"\xff\xd8":
            pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colorspace="RGB")
            return pixels
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        rgb: NDArray[np.uint8] = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)  # None, where it was no image, is an error
    except (ValueError, cv2.error) as error:
        raise CorruptDataError(
            f"image of {len(data)} bytes: cannot be decoded although its CRC-32 is right; was OUT made by facefeed?"
        ) from error
    return rgb
