"""The square that is cut round a face, and the way from `frame` to `crop` pixels.

A point p of the frame lies at (p - (x0, y0)) * scale in the crop, once it is turned back about the square's centre
where the square was turned. A pixel is the unit square right of and below its number, so no .5 is added anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import UsageError


@dataclass(frozen=True, slots=True)
class Square:
    """What is cut round a face: a square of whole `frame` px that may reach past the border, turned or upright.

    `x0`, `y0`: its upper left corner before it is turned; `side`: at least 1. `degrees`: by how many degrees it is
    turned about its centre, clockwise as seen; rounded to float32, so that a row tells exactly what was cut.
    What it cuts where is decided by these four alone, never by pixels: two videos of one scene are cut alike.
    Raises `UsageError` if `side` is below 1 or `degrees` not finite.
    """

    x0: int
    y0: int
    side: int
    degrees: float = 0.0

    def __post_init__(self) -> None:
        if self.side < 1:
            raise UsageError(f"side={self.side}: must be at least 1 px; there is nothing to cut")
        if not math.isfinite(self.degrees):
            raise UsageError(f"degrees={self.degrees}: must be finite; a square cannot be turned by that")
        object.__setattr__(self, "degrees", float(np.float32(self.degrees)) + 0.0)  # no minus zero

    @classmethod
    def around(cls, box_xyxy: ArrayLike, margin: float, degrees: float = 0.0) -> Self:
        """Return the square to cut round a box (4,), `frame` px, turned by `degrees`.

        side = round((1 + 2 * margin) * max(width, height)), at least 1, round the box's centre.
        Raises `UsageError` if the margin is negative or a number is not finite.

        >>> Square.around((10, 20, 30, 60), margin=0.25)
        Square(x0=-10, y0=10, side=60, degrees=0.0)
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
        return cls(x0, y0, side, degrees)

    @property
    def xyxy(self) -> NDArray[np.float32]:
        """The square before it is turned, (4,) float32, `frame` px."""
        return np.array([self.x0, self.y0, self.x0 + self.side, self.y0 + self.side], np.float32)

    def cut(self, rgb: NDArray[np.uint8], size: int) -> tuple[NDArray[np.uint8], float]:
        """Cut it out of a frame (H, W, 3): (crop, scale).

        `crop`: (s, s, 3) uint8 with s = min(side, size), zeros beyond the border, never stretched, resized
        only downwards (by pixel area). `scale` = s / side: `crop` px for one `frame` px.
        Memory stays within a few frames' worth, however large the square is. A turned square, and one of more
        than twice the frame's longer side, is interpolated (bicubic) at up to twice the crop's size; within two
        such pixels of the border its colours fade into the zeros. Raises `UsageError` if `size` is below 1.
        """
        if size < 1:
            raise UsageError(f"size={size}: must be at least 1 px; there is nothing to cut")
        out = min(self.side, size)
        return self._pixels(rgb, out, size), out / self.side

    def to_crop(self, points: ArrayLike, scale: float) -> NDArray[np.float32]:
        """Map points (..., 2) from `frame` px to `crop` px, float32; an upright box goes as its two corners (2, 2)."""
        # In float64: float32 would lose the fraction of a far point before the origin is taken off.
        moved = np.asarray(points, np.float64) - (self.x0, self.y0)
        if self.degrees:
            moved = (moved - self.side / 2) @ _turning(self.degrees) + self.side / 2
        return (moved * scale).astype(np.float32)

    def _pixels(self, rgb: NDArray[np.uint8], out: int, size: int) -> NDArray[np.uint8]:
        if self.degrees or self.side > max(2 * max(rgb.shape[:2]), size):
            # At twice the crop's size, what reading between pixels blurs is finer than a pixel of the crop.
            fine = min(self.side, 2 * out)
            return _shrink(self._turned(rgb, fine), out, out)
        square = np.zeros((self.side, self.side, 3), np.uint8)
        (left, right), (top, bottom) = self._overlaps(rgb)
        if left < right and top < bottom:
            square[top - self.y0 : bottom - self.y0, left - self.x0 : right - self.x0] = rgb[top:bottom, left:right]
        return _shrink(square, out, out)

    def _overlaps(self, rgb: NDArray[np.uint8]) -> tuple[tuple[int, int], tuple[int, int]]:
        height, width = rgb.shape[:2]
        return _overlap(self.x0, self.side, width), _overlap(self.y0, self.side, height)

    def _turned(self, rgb: NDArray[np.uint8], fine: int) -> NDArray[np.uint8]:
        """The turned square at `fine` x `fine` px: what it reaches of the frame, shrunk by area, then turned."""
        step = self.side / fine
        turning = _turning(self.degrees)
        middle = np.array([self.x0, self.y0]) + self.side / 2
        # Bicubic looks two pixels further.
        reach = self.side / 2 * float(np.abs(turning[0]).sum()) + 3 * step
        (left, top), length = (math.floor(v - reach) for v in middle), math.ceil(2 * reach) + 1
        (left, right), (top, bottom) = _overlap(left, length, rgb.shape[1]), _overlap(top, length, rgb.shape[0])
        if left >= right or top >= bottom:
            return np.zeros((fine, fine, 3), np.uint8)
        width, height = (max(1, round(span / step)) for span in (right - left, bottom - top))
        part = _shrink(rgb[top:bottom, left:right], width, height)
        per_px = np.array([width / (right - left), height / (bottom - top)])
        # From the middle of a pixel of the crop to that of `part`, which OpenCV both calls whole numbers.
        linear = per_px[:, None] * turning * step
        start = per_px * (middle + turning @ np.full(2, step / 2 - self.side / 2) - (left, top)) - 0.5
        how = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        turned: NDArray[Any] = cv2.warpAffine(part, np.column_stack([linear, start]), (fine, fine), flags=how)
        return turned


def _turning(degrees: float) -> NDArray[np.float64]:
    """(2, 2) matrix that turns a column (x right, y down) clockwise as seen, and a row back."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cosine, -sine], [sine, cosine]])


def _overlap(start: int, side: int, limit: int) -> tuple[int, int]:
    return max(start, 0), min(start + side, limit)


def _shrink(rgb: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    if rgb.shape[:2] == (height, width):
        return np.ascontiguousarray(rgb)
    small: NDArray[Any] = cv2.resize(np.ascontiguousarray(rgb), (width, height), interpolation=cv2.INTER_AREA)
    return small
