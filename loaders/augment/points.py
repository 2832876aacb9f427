"""A face's points in one array that follows the transforms, and back again.

Albumentations carries points as rows of x, y, z, angle, scale. Landmarks, the corners of the regions' boxes and the
hull lie in one such array, in this order, under the key `POINTS`. Nothing is renamed on the way: whether "left" has
become "right" is read from how the points lie now against how they lay at the start, so that it holds at every step
of a pipeline and for any transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError

POINTS: Final = "face_points"
"""The key of the points as they lie now: float32 (N, 5), px from the first pixel's centre in the first two columns."""

START: Final = "face_start"
"""The key of the `Start` they are read against."""

FACE_KEYS: Final = ("image", "landmarks", "hull", "regions")

MIRRORED_LANDMARKS: Final = np.array([1, 0, 2, 4, 3])
"""For each landmark the one that takes its name after a reflection."""

HALF_PX: Final = np.float32(0.5)
"""Rows and files count crop px from the corner of the first pixel, so its centre is at .5. Albumentations and OpenCV
count from its centre. `Start` goes from the first to the second, `FacePoints.in_crop` back."""

_LANDMARKS: Final = 5
_CORNERS: Final = np.array([0, 1, 2, 1, 2, 3, 0, 3])  # of an xyxy box, round it


class Start:
    """The points of a face before any transform, and the names of its regions."""

    __slots__ = ("hull_at", "names", "points")

    def __init__(
        self, landmarks: NDArray[np.float32], hull: NDArray[np.float32], regions: Mapping[str, NDArray[np.float32]]
    ) -> None:
        self.names = tuple(regions)
        self.hull_at = _LANDMARKS + 4 * len(self.names)
        if np.shape(landmarks) != (_LANDMARKS, 2):
            raise UsageError(f"landmarks of shape {np.shape(landmarks)}: must be (5, 2), crop px")
        if np.ndim(hull) != 2 or np.shape(hull)[1] != 2:
            raise UsageError(f"hull of shape {np.shape(hull)}: must be (M, 2), crop px")
        self.points: NDArray[np.float32] = np.zeros((self.hull_at + len(hull), 5), np.float32)
        xy = self.points[:, :2]
        xy[:_LANDMARKS] = landmarks
        if self.names:
            boxes = np.array([*regions.values()], np.float32)
            if boxes.shape != (len(self.names), 4):
                raise UsageError(f"regions {', '.join(self.names)}: each must be a box xyxy of shape (4,), crop px")
            xy[_LANDMARKS : self.hull_at] = boxes[:, _CORNERS].reshape(-1, 2)
        xy[self.hull_at :] = hull
        xy -= HALF_PX

    def mirrors(self, now: NDArray[np.float32]) -> bool:
        """Whether the affine map that best takes these points to where they are `now`, (N, 2), reflects.

        The map is C S^-1 with C the cross-covariance and S the covariance of the start. S is positive, so the sign
        of the map's determinant is that of C's; and C needs but one of its sides centred.
        """
        xy = self.points[:, :2]
        (a, b), (c, d) = (now.T @ (xy - np.add.reduce(xy) / len(xy))).tolist()
        return bool(a * d - b * c < 0)


class FacePoints:
    """The face where it lies now, in px from the first pixel's centre, as OpenCV draws.

    Named as the viewer sees it once its head is upright. `mirrored`: whether an odd number of reflections has happened
    since the start.
    """

    __slots__ = ("_start", "_xy", "mirrored")

    def __init__(self, points: NDArray[np.float32], start: Start) -> None:
        self._start = start
        self._xy: NDArray[np.float32] = points[:, :2]
        self.mirrored = points is not start.points and start.mirrors(self._xy)

    def in_crop(self) -> FacePoints:
        """The same face in crop px, from the first pixel's corner."""
        return type(self)(self._xy + HALF_PX, self._start)

    @property
    def landmarks(self) -> NDArray[np.float32]:
        """float32 (5, 2): left and right eye, nose, left and right mouth corner."""
        landmarks = self._xy[:_LANDMARKS]
        return landmarks[MIRRORED_LANDMARKS] if self.mirrored else landmarks.copy()

    @property
    def hull(self) -> NDArray[np.float32]:
        """float32 (M, 2)."""
        return self._xy[self._start.hull_at :].copy()

    @property
    def regions(self) -> dict[str, NDArray[np.float32]]:
        """Name -> float32 (4,), xyxy: the box that holds the turned corners of the region's box."""
        names = self._start.names
        if not names:
            return {}
        corners = self._xy[_LANDMARKS : self._start.hull_at].reshape(-1, 4, 2)
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        places = _mirrored_places(names) if self.mirrored else range(len(names))
        return {name: boxes[place] for name, place in zip(names, places, strict=True)}


def face_in(data: Mapping[str, Any], who: str) -> FacePoints:
    """The face among a transform's data; raises `UsageError` where none is carried along."""
    try:
        return FacePoints(data[POINTS], data[START])
    except KeyError:
        raise UsageError(
            f"{who}: there is no face in the data; use it within FaceCompose, called with "
            f"{', '.join(FACE_KEYS)} (in FaceDataset: face_transform=FaceCompose([...]))"
        ) from None


@lru_cache(maxsize=16)
def _mirrored_places(names: tuple[str, ...]) -> tuple[int, ...]:
    """For each name the place of the one it is called after a reflection."""
    other = {"left": "right", "right": "left"}
    places = []
    for place, name in enumerate(names):
        side, _, part = name.partition("_")
        twin = f"{other.get(side, side)}_{part}"
        places.append(names.index(twin) if twin in names else place)
    return tuple(places)
