"""The pixels that the network takes."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from ...geometry.crop import CropSquare, rotation_matrix
from .network import INPUT_PX


def square_pixels(rgb: NDArray[np.uint8], square: CropSquare) -> NDArray[np.uint8]:
    """The square's pixels of a frame (H, W, 3), resized to (192, 192, 3) uint8; zeros beyond the border.

    Bilinear, after a square that is more than twice as large was shrunk by whole pixels' means. `CropSquare.crop`, for
    pictures that are stored, takes 3 to 10 times as long.
    """
    step_px = square.side / INPUT_PX
    rotation = rotation_matrix(square.degrees)
    centre = np.array([square.x0, square.y0]) + square.side / 2
    factor = max(1, math.floor(step_px))
    reach_px = square.side / 2 * float(np.abs(rotation[0]).sum()) + 2 * factor
    (left, right), (top, bottom) = (
        _whole_steps(middle - reach_px, middle + reach_px, length, factor)
        for middle, length in zip(centre.tolist(), rgb.shape[1::-1], strict=True)
    )
    if left >= right or top >= bottom:
        return np.zeros((INPUT_PX, INPUT_PX, 3), np.uint8)
    region = rgb[top:bottom, left:right]
    if factor > 1:
        size = ((right - left) // factor, (bottom - top) // factor)
        region = np.asarray(cv2.resize(region, size, interpolation=cv2.INTER_AREA), np.uint8)
    # From pixel centres of the square to those of `region`; in OpenCV both have integer coordinates.
    linear = rotation * step_px / factor
    start = (centre + rotation @ np.full(2, step_px / 2 - square.side / 2) - (left, top)) / factor - 0.5
    pixels: NDArray[np.uint8] = cv2.warpAffine(
        region,
        np.column_stack([linear, start]),
        (INPUT_PX, INPUT_PX),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
    )
    return pixels


def _whole_steps(start: float, end: float, length: int, factor: int) -> tuple[int, int]:
    """The part of `start` .. `end` within 0 .. `length`, in whole px, as long as a multiple of `factor`."""
    first, last = max(math.floor(start), 0), min(math.ceil(end), length)
    return first, first + max(last - first, 0) // factor * factor
