"""Decodes the encoded image of a row."""

from __future__ import annotations

import io

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from ...pipeline.dataset.image_codec import DECODE_ERRORS, refuse_huge
from ...pipeline.errors import CorruptDataError
from .jpeg_rows import rows_of_jpeg


def decode_rgb(
    data: bytes,
    *,
    min_side_px: int | None = None,
    rows: tuple[int, int] | None = None,
    into: NDArray[np.uint8] | None = None,
) -> NDArray[np.uint8]:
    """Decodes a crop to RGB uint8 (H, W, 3); JPEG by simplejpeg, which is the fastest, else OpenCV.

    Args:
        data: The encoded image.
        min_side_px: A JPEG of at least twice that side is decoded at the smallest scale (in eighths, at most a half)
            that is no smaller, so that no pixels are computed in vain; see `filled_px`.
        rows: Start and end of the px rows that are needed; of a JPEG at full size that can be decoded in part, others
            hold anything.
        into: uint8 array, written to where the whole image fits it exactly.

    Raises:
        CorruptDataError: The bytes are no image.

    """
    try:
        if data[:2] == b"\xff\xd8":
            return _decode_jpeg(data, min_side_px, rows, into)
        with Image.open(io.BytesIO(data), formats=("PNG", "WEBP")) as header:
            refuse_huge(*header.size)
        bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        rgb: NDArray[np.uint8] = cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)  # raises on None, the result for no image
    except (*DECODE_ERRORS, cv2.error) as error:
        raise CorruptDataError(
            f"image of {len(data)} bytes: cannot be decoded although its CRC-32 is right; was OUT made by facefeed?"
        ) from error
    return rgb


def filled_px(stored_px: int, decoded_px: int) -> float:
    """How much of the side of a decoded JPEG its image fills: all but a part of the last px.

    Scaled decoding rounds up: 257 px at one eighth fill 32.125 of 33 px, and are not stretched to 33.
    """
    eighths = 8 * decoded_px // stored_px
    return stored_px * eighths / 8


def _decode_jpeg(
    data: bytes, min_side_px: int | None, rows: tuple[int, int] | None, into: NDArray[np.uint8] | None
) -> NDArray[np.uint8]:
    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    refuse_huge(width, height)
    if min_side_px is not None and min(height, width) >= 2 * min_side_px:
        # Only scales up to 1/2: others, such as 7/8, take longer than the whole image.
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(
            data, colorspace="RGB", min_height=min_side_px, min_width=min_side_px, min_factor=2
        )
        return pixels
    if rows is not None and (part := rows_of_jpeg(data, *rows)) is not None:
        pixels = np.empty((height, width, 3), np.uint8)
        simplejpeg.decode_jpeg(part.jpeg, colorspace="RGB", buffer=pixels[part.top : part.bottom])
        return pixels
    buffer = into if into is not None and into.shape == (height, width, 3) else None
    return simplejpeg.decode_jpeg(data, colorspace="RGB", buffer=buffer)  # type: ignore[no-any-return]
