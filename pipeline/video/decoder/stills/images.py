"""Decode still pictures to one upright RGB frame each."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps
from PIL.TiffImagePlugin import TiffImageFile

from ....errors import InputError
from ..sniffing import MediaFile, unreadable_error

Rgb = npt.NDArray[np.uint8]

_PILLOW_ERRORS = (OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, struct.error)
Image.MAX_IMAGE_PIXELS = None  # our own limit below is checked first


def read_image(file: MediaFile, max_pixels: int) -> Rgb:
    """Decode a picture to uint8 (H, W, 3), upright by its EXIF orientation; of several pages, the first.

    Colour profiles, pixel aspect ratios and alpha are ignored (colours are not blended), 16-bit samples keep their
    upper 8 bits, floats are taken as 0..1. Raises InputError: too_large, truncated, decode_error or unreadable.
    """
    with _open_image(file) as image:
        _check_size(image, max_pixels)
        return _to_rgb(image)


def image_size(file: MediaFile, max_pixels: int) -> tuple[int, int]:
    """Return width and height of the upright picture from its header; raises the errors of `read_image`."""
    with _open_image(file) as image:
        _check_size(image, max_pixels)
        stored = image.width, image.height
        if isinstance(image, TiffImageFile):  # its width and height are upright in some versions of Pillow
            stored = image.tag_v2[ExifTags.Base.ImageWidth], image.tag_v2[ExifTags.Base.ImageLength]
        is_transposed = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
        return (stored[1], stored[0]) if is_transposed else stored


@contextmanager
def _open_image(file: MediaFile) -> Iterator[Image.Image]:
    with os.fdopen(os.dup(file.fd), "rb") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # malformed EXIF data
        stream.seek(0)
        try:
            with Image.open(stream, formats=[file.kind.upper()]) as image:
                yield image
        except MemoryError:
            raise InputError("too_large", "the picture needs more memory than the decoder may use") from None
        except _PILLOW_ERRORS as error:
            if isinstance(error, OSError) and error.errno:  # Pillow's own errors have no errno
                raise unreadable_error(error) from None
            raise InputError(_failure_reason(file, error), f"{file.kind}: {error}") from None


def _check_size(image: Image.Image, max_pixels: int) -> None:
    """Raise InputError: too_large if the header states too many pixels, before any is decoded."""
    if image.width * image.height > max_pixels:
        raise InputError(
            "too_large",
            f"{image.width} x {image.height} pixels: more than the {max_pixels} that are allowed",
        )


def _to_rgb(image: Image.Image) -> Rgb:
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        grey = _to_uint8(np.asarray(upright))
        return np.repeat(grey[:, :, None], 3, axis=2)
    if upright.mode in ("LA", "La"):  # convert("RGB") would do, but blends some modes
        upright = upright.getchannel(0)
    return np.ascontiguousarray(np.asarray(upright.convert("RGB")))


def _to_uint8(grey: npt.NDArray[np.generic]) -> Rgb:
    """Scale (H, W) samples to 0..255: floats from 0..1, integers from 16 bits, which 32-bit files hold in practice."""
    if grey.dtype.kind == "f":
        values = np.nan_to_num(grey.astype(np.float32))
        return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    return (np.clip(grey.astype(np.int64), 0, 65535) >> 8).astype(np.uint8)


def _failure_reason(file: MediaFile, error: Exception) -> Literal["truncated", "decode_error"]:
    """Return "truncated" if the format's end marker or declared size shows that the end is missing."""
    tail = os.pread(file.fd, 64, max(0, file.size_bytes - 64)).rstrip(b"\0")
    declared_bytes = {
        "webp": 8 + int.from_bytes(file.head[4:8], "little"),
        "bmp": int.from_bytes(file.head[2:6], "little"),
        "tiff": _tiff_directory_offset(file.head),
    }.get(file.kind, 0)
    has_end_marker = {"jpeg": tail.endswith(b"\xff\xd9"), "png": b"IEND" in tail}.get(file.kind, True)
    message = str(error).lower()
    is_truncated = declared_bytes > file.size_bytes or not has_end_marker or "truncated" in message or "eof" in message
    return "truncated" if is_truncated or isinstance(error, EOFError) else "decode_error"


def _tiff_directory_offset(head: bytes) -> int:
    return int.from_bytes(head[4:8], "little" if head[:2] == b"II" else "big")
