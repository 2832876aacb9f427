"""The shapes that are blacked out. Each draws 0 into an image or a mask; what lies outside of it is left out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

_SHIFT: Final = 4  # OpenCV draws to 2^-4 of a pixel
_SIXTEENTHS: Final = 1 << _SHIFT
_FARTHEST_PX: Final = 1e5  # what OpenCV can draw to; a steep perspective may throw a point farther
_THICKEST_PX: Final = 32767


class Area(Protocol):
    """A part of a crop."""

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """Sets the area to 0 in an array (H, W) or (H, W, C), in place."""
        ...


@dataclass(frozen=True)
class Stroke:
    """All that lies within `radius_px` of the line between two points (2,), crop px."""

    start: NDArray[np.float32]
    end: NDArray[np.float32]
    radius_px: float

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """A thick line with round ends; none to a point that is nowhere."""
        places = *self.start.tolist(), *self.end.tolist()
        if not all(map(math.isfinite, (*places, self.radius_px))):
            return
        x, y, x_end, y_end = (round(_near(place) * _SIXTEENTHS) for place in places)
        thickness = min(max(1, round(2 * self.radius_px)), _THICKEST_PX)
        cv2.line(pixels, (x, y), (x_end, y_end), (0, 0, 0), thickness, shift=_SHIFT)


@dataclass(frozen=True)
class PolygonPart:
    """What of a polygon (M, 2), crop px, lies in a window: rows, columns."""

    polygon: NDArray[np.float32]
    window: tuple[slice, slice]

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """The polygon filled, as seen through the window."""
        view = pixels[self.window]
        if not view.size:
            return
        rows, columns = self.window
        near = np.clip(self.polygon - (columns.start or 0, rows.start or 0), -_FARTHEST_PX, _FARTHEST_PX)
        cv2.fillPoly(view, [np.rint(near * _SIXTEENTHS).astype(np.int32)], (0, 0, 0), shift=_SHIFT)


@dataclass(frozen=True)
class Blocks:
    """Rectangles: each rows, columns."""

    windows: tuple[tuple[slice, slice], ...]

    def blacken(self, pixels: NDArray[np.uint8]) -> None:
        """Every one of them."""
        for window in self.windows:
            pixels[window] = 0


def eyes_of(landmarks: NDArray[np.float32]) -> Stroke:
    """The line between the eyes, a quarter of its length to every side."""
    left, right = landmarks[:2]
    return Stroke(left, right, math.dist(left, right) / 4)


def nose_of(landmarks: NDArray[np.float32]) -> Stroke:
    """The line from between the eyes to the tip of the nose, a quarter of the eyes' distance to every side."""
    left, right, tip = landmarks[:3]
    return Stroke((left + right) / 2, tip, math.dist(left, right) / 4)


def mouth_of(landmarks: NDArray[np.float32]) -> Stroke:
    """The line between the corners of the mouth, a third of its length to every side."""
    left, right = landmarks[3:]
    return Stroke(left, right, math.dist(left, right) / 3)


def halves_of(hull: NDArray[np.float32]) -> tuple[PolygonPart, ...]:
    """The top, bottom, left and right half of a hull (M, 2), cut through its centroid; none where it has no area."""
    moments = cv2.moments(hull)
    if not abs(moments["m00"]) >= 1:  # also where a point is nowhere
        return ()
    x = _whole(moments["m10"] / moments["m00"])
    y = _whole(moments["m01"] / moments["m00"])
    everything = slice(None)
    return (
        PolygonPart(hull, (slice(0, y), everything)),
        PolygonPart(hull, (slice(y, None), everything)),
        PolygonPart(hull, (everything, slice(0, x))),
        PolygonPart(hull, (everything, slice(x, None))),
    )


def blocks_of(height: int, width: int) -> tuple[Blocks, ...]:
    """The six ways to take half of an image away: top, bottom, left, right, and two pairs of opposite quarters."""
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


def box_of(box_xyxy: NDArray[np.float32]) -> Blocks:
    """The pixels whose centres, at whole numbers, lie in a box."""
    left, top, right, bottom = box_xyxy.tolist()
    return Blocks(((slice(_whole(top), _after(bottom)), slice(_whole(left), _after(right))),))


def remaining(mask: NDArray[np.uint8], area: Area) -> int:
    """How many pixels of a mask (H, W) are not 0 once an area of it is black."""
    left = mask.copy()
    area.blacken(left)
    return int(np.count_nonzero(left))


def _whole(place: float) -> int:
    """The first pixel at or after a place; none lies before 0."""
    return max(0, math.ceil(_near(place)))


def _after(place: float) -> int:
    """The first pixel after a place."""
    return max(0, math.floor(_near(place)) + 1)


def _near(place: float) -> float:
    return min(max(place, -_FARTHEST_PX), _FARTHEST_PX) if math.isfinite(place) else 0.0
