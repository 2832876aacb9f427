"""From a row's byte range to its pixels: one `pread`, a checksum, a decoder."""

from __future__ import annotations

import errno
import io
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

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

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone before this object
        for descriptor in self._descriptors.values():
            close(descriptor)

    def read(self, name: str, offset: int, size: int, crc32: int | None) -> bytes:
        """Bytes `offset` .. `offset + size` of the file `name`.

        `crc32`: what they must have; None for a mask, whose PNG has checksums of its own. Raises `CorruptDataError`
        on a wrong one, and its child `UnreadableFileError` where the system does not hand the file over.
        """
        try:
            data = os.pread(self._descriptor(name), size, offset)
        except OSError as error:
            kind = CorruptDataError if error.errno == errno.EIO else UnreadableFileError
            raise kind(f"{self._root / name}: {error.strerror}; run `facefeed verify {self._root}`") from error
        if len(data) != size or (crc32 is not None and zlib.crc32(data) != crc32):
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


class UnreadableFileError(CorruptDataError):
    """A whole file that is gone or not handed over: not damage of one image that can be passed over."""


def decode_rgb(
    data: bytes, *, min_side_px: int | None = None, into: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """An encoded crop as RGB uint8 (H, W, 3); JPEG by simplejpeg, which is the fastest, else OpenCV.

    `min_side_px`: a JPEG of at least twice that side is decoded at the smallest fraction (in eighths, at most a half)
    that is no smaller; pixels that nobody will see are never computed. `into`: uint8 array, used where the image fits
    it exactly. Raises `CorruptDataError` on bytes that are no image.
    """
    try:
        if data[:2] == b"\xff\xd8":
            return _decode_jpeg(data, min_side_px, into)
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        rgb: NDArray[np.uint8] = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)  # None, where it was no image, is an error
    except (ValueError, cv2.error) as error:
        raise CorruptDataError(
            f"image of {len(data)} bytes: cannot be decoded although its CRC-32 is right; was OUT made by facefeed?"
        ) from error
    return rgb


def _decode_jpeg(data: bytes, min_side_px: int | None, into: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    if min_side_px is not None and min(height, width) >= 2 * min_side_px:
        # Only halves: other fractions, such as 7/8, take longer than the whole image.
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
            data, colorspace="RGB", min_height=min_side_px, min_width=min_side_px, min_factor=2
        )
        return pixels
    buffer = into if into is not None and into.shape == (height, width, 3) else None
    return simplejpeg.decode_jpeg(data, colorspace="RGB", buffer=buffer)  # type: ignore[no-any-return]


def decode_mask(data: bytes) -> NDArray[np.uint8]:
    """A mask of manipulation as 0 and 1: uint8 (H, W). Raises `CorruptDataError` on damage, which PNG notices."""
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as stored:
            return np.asarray(stored.convert("1"), np.uint8)
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise CorruptDataError(f"a mask of {len(data)} bytes does not decode: {error}") from error
