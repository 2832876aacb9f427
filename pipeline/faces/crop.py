"""The square that is cut round a face, and the way from `frame` to `crop` pixels.

A point p of the frame lies at (p - (x0, y0)) * scale in the crop; pixel centres are not moved by .5.
"""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError


def crop_square(box_xyxy: ArrayLike, margin: float) -> tuple[int, int, int]:
    """Return the square to cut round a box: (x0, y0, side), whole `frame` px, may reach past the border.

    side = round((1 + 2 * margin) * max(width, height)), at least 1, round the box's centre.
    Raises `UsageError` if the margin is negative or a number is not finite.

    >>> crop_square((10, 20, 30, 60), margin=0.25)
    (-10, 10, 60)
    """
    left, top, right, bottom = (float(v) for v in np.asarray(box_xyxy, np.float64))
    if not (math.isfinite(margin) and margin >= 0):
        raise UsageError(f"margin={margin}: must be at least 0; try 0.3")
    if not all(map(math.isfinite, (left, top, right, bottom))):
        raise UsageError(f"box_xyxy={(left, top, right, bottom)}: must be finite; there is nothing to cut")
    # floor(v + .5), not round(): halves go one way, so that a box moved by a pixel moves its square by one.
    side = max(1, math.floor((1 + 2 * margin) * max(right - left, bottom - top) + 0.5))
    x0 = math.floor((left + right - side) / 2 + 0.5)
    y0 = math.floor((top + bottom - side) / 2 + 0.5)
    return x0, y0, side


def cut(rgb: NDArray[np.uint8], x0: int, y0: int, side: int, size: int) -> tuple[NDArray[np.uint8], float]:
    """Cut the square (x0, y0, side), `frame` px, out of a frame (H, W, 3): (crop, scale).

    `crop`: (s, s, 3) uint8 with s = min(side, size), zeros beyond the border, never stretched, resized
    only downwards (by pixel area). `scale` = s / side: `crop` px for one `frame` px.
    Memory stays within a few frames' worth, however large the square is: one of more than twice the
    frame's longer side is resized before it is padded, which moves its content by at most one `crop` px.
    Raises `UsageError` if `side` or `size` is below 1.
    """
    if side < 1 or size < 1:
        raise UsageError(f"side={side}, size={size}: must both be at least 1 px; there is nothing to cut")
    out = min(side, size)
    if side > max(2 * max(rgb.shape[:2]), size):
        return _cut_huge(rgb, x0, y0, side, out), out / side
    square = np.zeros((side, side, 3), np.uint8)
    (left, right), (top, bottom) = _overlap(x0, side, rgb.shape[1]), _overlap(y0, side, rgb.shape[0])
    if left < right and top < bottom:
        square[top - y0 : bottom - y0, left - x0 : right - x0] = rgb[top:bottom, left:right]
    return (square if out == side else _shrink(square, out, out)), out / side


def to_crop(points: ArrayLike, x0: int, y0: int, scale: float) -> NDArray[np.float32]:
    """Map points (..., 2) from `frame` px to `crop` px, float32; a box goes as its two corners (2, 2)."""
    # In float64: float32 would lose the fraction of a far point before the origin is taken off.
    moved = (np.asarray(points, np.float64) - (x0, y0)) * scale
    return moved.astype(np.float32)


def _overlap(start: int, side: int, limit: int) -> tuple[int, int]:
    return max(start, 0), min(start + side, limit)


def _cut_huge(rgb: NDArray[np.uint8], x0: int, y0: int, side: int, out: int) -> NDArray[np.uint8]:
    crop = np.zeros((out, out, 3), np.uint8)
    (left, right), (top, bottom) = _overlap(x0, side, rgb.shape[1]), _overlap(y0, side, rgb.shape[0])
    if left >= right or top >= bottom:
        return crop
    cx, cw = _placed(left - x0, right - x0, out, side)
    cy, ch = _placed(top - y0, bottom - y0, out, side)
    crop[cy : cy + ch, cx : cx + cw] = _shrink(rgb[top:bottom, left:right], cw, ch)
    return crop


def _placed(start: int, stop: int, out: int, side: int) -> tuple[int, int]:
    """Where [start, stop) of the square lies in the crop: (offset, length >= 1), integers throughout."""
    offset = min((2 * start * out + side) // (2 * side), out - 1)
    end = (2 * stop * out + side) // (2 * side)
    return offset, max(1, min(end, out) - offset)


def _shrink(rgb: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    small: NDArray[Any] = cv2.resize(np.ascontiguousarray(rgb), (width, height), interpolation=cv2.INTER_AREA)
    return small
