"""Still pictures: one upright RGB frame each."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from ...errors import InputError
from .sniffing import Content, unreadable

Rgb = npt.NDArray[np.uint8]

_FORMATS = {
    "jpeg": ("JPEG",),
    "png": ("PNG",),
    "webp": ("WEBP",),
    "bmp": ("BMP",),
    "tiff": ("TIFF",),
    "ppm": ("PPM",),
}
_BROKEN = (UnidentifiedImageError, OSError, ValueError, SyntaxError, EOFError, IndexError, TypeError, struct.error)
Image.MAX_IMAGE_PIXELS = None  # our own limit below is checked first


def read_image(content: Content, max_pixels: int) -> Rgb:
    """Return uint8 (H, W, 3), upright by its EXIF orientation; of several pages, the first.

    Alpha is ignored (the stored colour counts), 16 bits keep their upper 8, CMYK is converted without a profile,
    floats are taken as 0..1. Raises InputError: too_large, truncated or decode_error.
    """
    with _opened(content) as image:
        _check_size(image, max_pixels)
        return _to_rgb(image)


def image_size(content: Content, max_pixels: int) -> tuple[int, int]:
    """Return width and height of the upright picture, from its header alone; raises as `read_image`."""
    with _opened(content) as image:
        _check_size(image, max_pixels)
        turned = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
        return (image.height, image.width) if turned else (image.width, image.height)


@contextmanager
def _opened(content: Content) -> Iterator[Image.Image]:
    with os.fdopen(os.dup(content.fd), "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd EXIF is not worth a word
        file.seek(0)
        try:
            with Image.open(file, formats=_FORMATS[content.kind]) as image:
                yield image
        except MemoryError:
            raise InputError("too_large", "the picture needs more memory than the decoder may use") from None
        except _BROKEN as error:
            if isinstance(error, OSError) and error.errno:  # Pillow's own have none
                raise unreadable(error) from None
            raise InputError(_why_broken(content, error), f"{content.kind}: {error}") from None


def _check_size(image: Image.Image, max_pixels: int) -> None:
    """Refuse by the header alone, before pixels are decoded; raises InputError: too_large."""
    if image.width * image.height > max_pixels:
        raise InputError(
            "too_large",
            f"{image.width} x {image.height} pixels: more than the {max_pixels} that are allowed",
        )


def _to_rgb(image: Image.Image) -> Rgb:
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        grey = _eight_bits(np.asarray(upright))
        return np.repeat(grey[:, :, None], 3, axis=2)
    if upright.mode in ("LA", "La"):  # convert("RGB") would do, but blends some modes
        upright = upright.getchannel(0)
    return np.ascontiguousarray(np.asarray(upright.convert("RGB")))


def _eight_bits(grey: npt.NDArray[np.generic]) -> Rgb:
    """Scale (H, W) of 16-bit, 32-bit or float samples to 0..255; 32-bit ones hold 16 bits in practice."""
    if grey.dtype.kind == "f":
        unit = np.nan_to_num(grey.astype(np.float32))
        return np.rint(np.clip(unit, 0, 1) * 255).astype(np.uint8)
    return (np.clip(grey.astype(np.int64), 0, 65535) >> 8).astype(np.uint8)


def _why_broken(content: Content, error: Exception) -> Literal["truncated", "decode_error"]:
    """Tell a picture that was cut off from one with damage inside, by its format's end."""
    tail = os.pread(content.fd, 64, max(0, content.size_bytes - 64)).rstrip(b"\0")
    announced_bytes = {
        "webp": 8 + int.from_bytes(content.head[4:8], "little"),
        "bmp": int.from_bytes(content.head[2:6], "little"),
        "tiff": _tiff_directory(content.head),
    }.get(content.kind, 0)
    ends = {"jpeg": tail.endswith(b"\xff\xd9"), "png": b"IEND" in tail}.get(content.kind, True)
    said = str(error).lower()
    cut = announced_bytes > content.size_bytes or not ends or "truncated" in said or "eof" in said
    return "truncated" if cut or isinstance(error, EOFError) else "decode_error"


def _tiff_directory(head: bytes) -> int:
    return int.from_bytes(head[4:8], "little" if head[:2] == b"II" else "big")
