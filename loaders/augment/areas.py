"""Shapes that blackout transforms draw. Each sets its pixels to 0 in an image or a mask; parts outside are clipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

FRACTION_BITS: Final = 4
"""OpenCV draws with a precision of 2^-4 px."""

_SUBPIXELS: Final = 1 << FRACTION_BITS
_MAX_COORDINATE_PX: Final = 1e5  # OpenCV's limit; a steep perspective may move a point beyond it
_MAX_THICKNESS_PX: Final = 32767


class Area(Protocol):
    """A part of a crop that can be blacked out."""

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """Sets the area to 0 in an array (H, W) or (H, W, C), in place."""
        ...


@dataclass(frozen=True)
class Stroke:
    """All pixels within `radius_px` of the line between two points (2,), crop px."""

    start: NDArray[np.float32]
    end: NDArray[np.float32]
    radius_px: float

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """Draws a thick line with round ends; nothing where a coordinate is not finite."""
        coordinates = *self.start.tolist(), *self.end.tolist()
        if not all(map(math.isfinite, (*coordinates, self.radius_px))):
            return
        x, y, x_end, y_end = (round(_clamp(coordinate) * _SUBPIXELS) for coordinate in coordinates)
        thickness = min(max(1, round(2 * self.radius_px)), _MAX_THICKNESS_PX)
        cv2.line(pixels, (x, y), (x_end, y_end), (0, 0, 0), thickness, shift=FRACTION_BITS)


@dataclass(frozen=True)
class PolygonPart:
    """The part of a polygon (M, 2), crop px, inside a window: slices of rows and columns."""

    polygon: NDArray[np.float32]
    window: tuple[slice, slice]

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """Fills the polygon in the view of the window."""
        view = pixels[self.window]
        if not view.size:
            return
        rows, columns = self.window
        clamped = np.clip(self.polygon - (columns.start or 0, rows.start or 0), -_MAX_COORDINATE_PX, _MAX_COORDINATE_PX)
        cv2.fillPoly(view, [np.rint(clamped * _SUBPIXELS).astype(np.int32)], (0, 0, 0), shift=FRACTION_BITS)


@dataclass(frozen=True)
class Blocks:
    """Rectangles, each a window: slices of rows and columns."""

    windows: tuple[tuple[slice, slice], ...]

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """Fills every rectangle."""
        for window in self.windows:
            pixels[window] = 0


def eyes_area(landmarks: NDArray[np.float32]) -> Stroke:
    """The line between the eyes, and everything within a quarter of its length."""
    left, right = landmarks[:2]
    return Stroke(left, right, math.dist(left, right) / 4)


def nose_area(landmarks: NDArray[np.float32]) -> Stroke:
    """The line from the midpoint of the eyes to the tip of the nose, and all within a quarter of the eye distance."""
    left, right, tip = landmarks[:3]
    return Stroke((left + right) / 2, tip, math.dist(left, right) / 4)


def mouth_area(landmarks: NDArray[np.float32]) -> Stroke:
    """The line between the corners of the mouth, and everything within a third of its length."""
    left, right = landmarks[3:]
    return Stroke(left, right, math.dist(left, right) / 3)


def hull_halves(hull: NDArray[np.float32]) -> tuple[PolygonPart, ...]:
    """Top, bottom, left and right half of a hull (M, 2), cut through its centroid; empty where it has no area."""
    moments = cv2.moments(hull)
    if not abs(moments["m00"]) >= 1:  # also true where a coordinate is NaN
        return ()
    x = _first_pixel_from(moments["m10"] / moments["m00"])
    y = _first_pixel_from(moments["m01"] / moments["m00"])
    everything = slice(None)
    return (
        PolygonPart(hull, (slice(0, y), everything)),
        PolygonPart(hull, (slice(y, None), everything)),
        PolygonPart(hull, (everything, slice(0, x))),
        PolygonPart(hull, (everything, slice(x, None))),
    )


def half_image_blocks(height: int, width: int) -> tuple[Blocks, ...]:
    """The six ways to cover half of an image: top, bottom, left, right, and two pairs of opposite quarters."""
    top, bottom = slice(0, height // 2), slice(height // 2, height)
    left, right = slice(0, width // 2), slice(width // 2, width)
    everything = slice(None)
    return (
        Blocks(((top, everything),)),
        Blocks(((bottom, everything),)),
        Blocks(((everything, left),)),
        Blocks(((everything, right),)),
        Blocks(((top, left), (bottom, right))),
        Blocks(((top, right), (bottom, left))),
    )


def box_area(box_xyxy: NDArray[np.float32]) -> Blocks:
    """The pixels whose centres, at integer coordinates, lie in a box."""
    left, top, right, bottom = box_xyxy.tolist()
    rows = slice(_first_pixel_from(top), _first_pixel_after(bottom))
    return Blocks(((rows, slice(_first_pixel_from(left), _first_pixel_after(right))),))


def count_uncovered(mask: NDArray[np.uint8], area: Area) -> int:
    """Number of non-zero pixels of a mask (H, W) outside the area."""
    uncovered = mask.copy()
    area.blacken(uncovered)
    return int(np.count_nonzero(uncovered))


def _first_pixel_from(coordinate: float) -> int:
    """Index of the first pixel whose centre is at or after the coordinate; at least 0."""
    return max(0, math.ceil(_clamp(coordinate)))


def _first_pixel_after(coordinate: float) -> int:
    """Index of the first pixel whose centre is after the coordinate; at least 0."""
    return max(0, math.floor(_clamp(coordinate)) + 1)


def _clamp(coordinate: float) -> float:
    """The coordinate within OpenCV's limits; 0 where it is not finite."""
    if not math.isfinite(coordinate):
        return 0.0
    return min(max(coordinate, -_MAX_COORDINATE_PX), _MAX_COORDINATE_PX)
