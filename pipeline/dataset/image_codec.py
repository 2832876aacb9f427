"""Encodes and decodes images, RGB arrays as jpeg, png or webp bytes, and masks, bool arrays as png bytes."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import Final, Literal, get_args

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from ..errors import CorruptDataError, UsageError

ImageFormat = Literal["jpeg", "png", "webp"]
Chroma = Literal["420", "444"]

# Raised by simplejpeg and Pillow on damaged bytes; Pillow's parsers leak exceptions of the modules they use.
DECODE_ERRORS: Final = (
    ValueError,
    OSError,
    SyntaxError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

_CHROMA: Final = {
    "420": (16, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420),
    "444": (8, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444),
}
"""Width of the blocks in which JPEG codes an image, px, and OpenCV's name of the chroma subsampling."""

MAX_PIXELS: Final = 4096**2
"""Of the largest crop that can be precomputed."""


@dataclass(frozen=True, kw_only=True)
class ImageEncoder:
    """Encodes a crop; the same pixels and settings give the same bytes.

    Args:
        format: "jpeg", "png" or "webp".
        quality: 1 (smallest) to 100 (best); png is lossless and ignores it.
        chroma: chroma subsampling of jpeg, "420" (half resolution) or "444" (full); png is always full, webp always
            half.

    Raises:
        UsageError: a value is out of range, or the format does not support it.

    """

    format: ImageFormat = "jpeg"
    quality: int = 95
    chroma: Chroma = "420"

    def __post_init__(self) -> None:
        if self.format not in get_args(ImageFormat):
            raise UsageError(f"format={self.format!r}: must be jpeg, png or webp; try jpeg")
        if not (type(self.quality) is int and 1 <= self.quality <= 100):
            raise UsageError(f"quality={self.quality!r}: must lie in 1..100; try 95")
        if self.chroma not in get_args(Chroma):
            raise UsageError(f"chroma={self.chroma!r}: must be 420 or 444; try 420")
        if self.format == "webp" and self.chroma == "444":
            raise UsageError("chroma='444': lossy webp always halves its colour; take jpeg or png for 444")

    def __call__(self, rgb: NDArray[np.uint8]) -> bytes:
        """Encode an RGB image (H, W, 3) uint8. Raises `UsageError` if it is no such image."""
        if rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or 0 in rgb.shape:
            raise UsageError(f"image={rgb.shape} {rgb.dtype}: must be (H, W, 3) uint8 and not empty")
        if self.format == "jpeg":
            return _encode_jpeg(rgb, self.quality, self.chroma)
        settings = [cv2.IMWRITE_WEBP_QUALITY, self.quality] if self.format == "webp" else []
        return _encode_cv2(rgb, "." + self.format, settings)


def decode_rgb_strictly(data: bytes, *, max_pixels: int | None = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode jpeg, png or webp bytes to RGB (H, W, 3) uint8; damage that decoders can bridge is an error, too.

    Raises `CorruptDataError` if the bytes are none of these, are damaged in a way that the format detects, or say that
    they are of more than `max_pixels`.
    """
    try:
        if data[:2] == b"\xff\xd8":
            return _decode_jpeg(data, max_pixels)
        return _decode_pillow(data, max_pixels)
    except DECODE_ERRORS as error:
        raise CorruptDataError(f"image of {len(data)} bytes does not decode: {error}") from error


def encode_mask(mask: NDArray[np.bool_]) -> bytes:
    """Encodes a manipulation mask (H, W) as PNG with one bit per pixel."""
    buffer = io.BytesIO()
    Image.fromarray(mask).save(buffer, "PNG", optimize=False)
    return buffer.getvalue()


def decode_mask(data: bytes) -> NDArray[np.bool_]:
    """Decodes the PNG of `encode_mask` to bool (H, W); viewed as uint8, it is 0 and 1.

    Raises `CorruptDataError` on anything else, and where the PNG says that it is of more than `MAX_PIXELS`.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            refuse_huge(*image.size)
            return np.asarray(image.convert("1"), np.uint8).view(np.bool_)  # Pillow's own bool has bytes of 255
    except DECODE_ERRORS as error:
        raise CorruptDataError(f"mask of {len(data)} bytes does not decode: {error}") from error


def refuse_huge(width: int, height: int, max_pixels: int | None = MAX_PIXELS) -> None:
    """Raises `CorruptDataError`, before memory is taken, where a header says a size that no crop has."""
    if max_pixels is not None and width * height > max_pixels:
        raise CorruptDataError(
            f"an image says it is {width} x {height} px, crops have at most {max_pixels:,}; was OUT made by facefeed?"
        )


def _encode_jpeg(rgb: NDArray[np.uint8], quality: int, chroma: Chroma) -> bytes:
    block_px, sampling = _CHROMA[chroma]
    # A restart marker after every row of blocks: a loader that needs a part of a crop decodes its rows alone.
    blocks_per_row = -(-rgb.shape[1] // block_px)
    settings = [
        *(cv2.IMWRITE_JPEG_QUALITY, quality),
        *(cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling),
        *(cv2.IMWRITE_JPEG_RST_INTERVAL, blocks_per_row),
    ]
    return _encode_cv2(rgb, ".jpg", settings)


def _encode_cv2(rgb: NDArray[np.uint8], suffix: str, settings: list[int]) -> bytes:
    encoded, data = cv2.imencode(suffix, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), settings)
    if not encoded:
        raise UsageError(f"image={rgb.shape}: too large for {suffix}; take a smaller size or png")
    image: bytes = data.tobytes()
    return image


def _decode_jpeg(data: bytes, max_pixels: int | None) -> NDArray[np.uint8]:
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    refuse_huge(width, height, max_pixels)
    rgb: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colorspace="RGB", strict=True)
    return rgb


def _decode_pillow(data: bytes, max_pixels: int | None) -> NDArray[np.uint8]:
    # OpenCV would decode these too, but on damage libpng writes to standard error directly.
    with Image.open(io.BytesIO(data), formats=("PNG", "WEBP")) as image:
        refuse_huge(*image.size, max_pixels)
        return np.asarray(image.convert("RGB"))
