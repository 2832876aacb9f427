"""`CropSquare`: the square that is cropped around a face, and the mapping from `frame` to `crop` pixels.

A point p of the frame maps to (p - (x0, y0)) * scale in the crop, after it is rotated back about the square's centre if
the square is rotated. Pixel i covers the interval [i, i + 1), so no offset of .5 is added anywhere.
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
class CropSquare:
    """The square to crop around a face, in whole `frame` px; it may reach past the border and be rotated.

    `x0`, `y0`: upper left corner before rotation. `side`: at least 1. `degrees`: rotation about the centre, clockwise
    as seen; rounded to float32, as it is stored in a row.
    The crop's geometry depends on these four alone, never on pixels: two videos of one scene are cropped alike.
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
            raise UsageError(f"degrees={self.degrees}: must be finite; it is no rotation angle")
        object.__setattr__(self, "degrees", float(np.float32(self.degrees)) + 0.0)  # no minus zero

    @classmethod
    def around(cls, box_xyxy: ArrayLike, margin: float, degrees: float = 0.0) -> Self:
        """Return the square around the centre of a box (4,), `frame` px, rotated by `degrees`.

        side = round((1 + 2 * margin) * max(width, height)), at least 1.
        Raises `UsageError` if the margin is negative or a number is not finite.

        >>> CropSquare.around((10, 20, 30, 60), margin=0.25)
        CropSquare(x0=-10, y0=10, side=60, degrees=0.0)
        """
        left, top, right, bottom = (float(v) for v in np.asarray(box_xyxy, np.float64))
        if not (math.isfinite(margin) and margin >= 0):
            raise UsageError(f"margin={margin}: must be at least 0; try 0.3")
        if not all(map(math.isfinite, (left, top, right, bottom))):
            raise UsageError(f"box_xyxy={(left, top, right, bottom)}: must be finite; there is nothing to cut")
        # floor(v + .5), not round(): halves always round up, so a box moved by a pixel moves its square by a pixel.
        side = max(1, math.floor((1 + 2 * margin) * max(right - left, bottom - top) + 0.5))
        x0 = math.floor((left + right - side) / 2 + 0.5)
        y0 = math.floor((top + bottom - side) / 2 + 0.5)
        return cls(x0, y0, side, degrees)

    @property
    def xyxy(self) -> NDArray[np.float32]:
        """The square before rotation, (4,) float32, `frame` px."""
        return np.array([self.x0, self.y0, self.x0 + self.side, self.y0 + self.side], np.float32)

    def crop(self, rgb: NDArray[np.uint8], size: int) -> tuple[NDArray[np.uint8], float]:
        """Crop the square from a frame (H, W, 3) uint8; return (crop, scale).

        `crop`: (s, s, 3) uint8 with s = min(side, size), zeros beyond the border, aspect ratio kept, resized
        only downwards (by pixel area). `scale` = s / side: `crop` px per `frame` px.
        Memory is bounded by a few frames, however large the square is. A rotated square, and one of more than twice
        the frame's longer side, is interpolated (bicubic) at up to twice the crop's size; within two such pixels of
        the border its colours fade into the zeros. Raises `UsageError` if `size` is below 1.
        """
        if size < 1:
            raise UsageError(f"size={size}: must be at least 1 px; there is nothing to cut")
        crop_side = min(self.side, size)
        return self._resampled(rgb, crop_side, size), crop_side / self.side

    def to_crop(self, points: ArrayLike, scale: float) -> NDArray[np.float32]:
        """Map points (..., 2) from `frame` px to `crop` px, float32; pass an upright box as its two corners (2, 2)."""
        # In float64: float32 would lose the fraction of a far point before the origin is subtracted.
        offsets = np.asarray(points, np.float64) - (self.x0, self.y0)
        if self.degrees:
            offsets = (offsets - self.side / 2) @ rotation_matrix(self.degrees) + self.side / 2
        return (offsets * scale).astype(np.float32)

    def to_frame(self, points: ArrayLike, scale: float) -> NDArray[np.float32]:
        """Map points (..., 2) from `crop` px to `frame` px, float32: the inverse of `to_crop`."""
        offsets = np.asarray(points, np.float64) / scale
        if self.degrees:
            offsets = (offsets - self.side / 2) @ rotation_matrix(self.degrees).T + self.side / 2
        points_in_frame: NDArray[np.float32] = (offsets + np.array([self.x0, self.y0])).astype(np.float32)
        return points_in_frame

    def _resampled(self, rgb: NDArray[np.uint8], crop_side: int, size: int) -> NDArray[np.uint8]:
        if self.degrees or self.side > max(2 * max(rgb.shape[:2]), size):
            # At twice the crop's size, the blur of the interpolation is finer than a pixel of the crop.
            fine_side = min(self.side, 2 * crop_side)
            return _resize_area(self._rotated(rgb, fine_side), crop_side, crop_side)
        square = np.zeros((self.side, self.side, 3), np.uint8)
        (left, right), (top, bottom) = self._overlaps(rgb)
        if left < right and top < bottom:
            square[top - self.y0 : bottom - self.y0, left - self.x0 : right - self.x0] = rgb[top:bottom, left:right]
        return _resize_area(square, crop_side, crop_side)

    def _overlaps(self, rgb: NDArray[np.uint8]) -> tuple[tuple[int, int], tuple[int, int]]:
        height, width = rgb.shape[:2]
        return _overlap(self.x0, self.side, width), _overlap(self.y0, self.side, height)

    def _rotated(self, rgb: NDArray[np.uint8], fine_side: int) -> NDArray[np.uint8]:
        """Return the rotated square at `fine_side` px: the region of the frame, shrunk by area, then rotated."""
        step_px = self.side / fine_side
        rotation = rotation_matrix(self.degrees)
        centre = np.array([self.x0, self.y0]) + self.side / 2
        # Bicubic interpolation reads two pixels further.
        reach = self.side / 2 * float(np.abs(rotation[0]).sum()) + 3 * step_px
        (left, top), length = (math.floor(v - reach) for v in centre), math.ceil(2 * reach) + 1
        (left, right), (top, bottom) = _overlap(left, length, rgb.shape[1]), _overlap(top, length, rgb.shape[0])
        if left >= right or top >= bottom:
            return np.zeros((fine_side, fine_side, 3), np.uint8)
        width, height = (max(1, round(span / step_px)) for span in (right - left, bottom - top))
        region = _resize_area(rgb[top:bottom, left:right], width, height)
        per_px = np.array([width / (right - left), height / (bottom - top)])
        # From pixel centres of the output to those of `region`; in OpenCV both have integer coordinates.
        linear = per_px[:, None] * rotation * step_px
        start = per_px * (centre + rotation @ np.full(2, step_px / 2 - self.side / 2) - (left, top)) - 0.5
        flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        rotated: NDArray[Any] = cv2.warpAffine(
            region, np.column_stack([linear, start]), (fine_side, fine_side), flags=flags
        )
        return rotated


def rotation_matrix(degrees: float) -> NDArray[np.float64]:
    """Matrix (2, 2) that rotates column vectors (x right, y down) clockwise as seen, and row vectors back."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return np.array([[cosine, -sine], [sine, cosine]])


def _overlap(start: int, side: int, length: int) -> tuple[int, int]:
    return max(start, 0), min(start + side, length)


def _resize_area(rgb: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    if rgb.shape[:2] == (height, width):
        return np.ascontiguousarray(rgb)
    small: NDArray[Any] = cv2.resize(np.ascontiguousarray(rgb), (width, height), interpolation=cv2.INTER_AREA)
    return small
