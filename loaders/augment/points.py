"""The points of a face as one array that Albumentations transforms as keypoints, and the conversion back.

Albumentations represents points as rows of x, y, z, angle, scale. Landmarks, the corners of the regions' boxes, the
hull and the 68 points, where there are any, are rows of one such array, in this order, under the key `POINTS`. No row
changes its name on the way: whether "left" has become "right" follows from comparing the current points with the
initial ones, so it holds at every step of a pipeline and for any transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..face import BOX_CORNERS

POINTS: Final = "face_points"
"""Key of the current points: float32 (N, 5), px from the first pixel's centre in the first two columns."""

INITIAL_POINTS: Final = "face_initial_points"
"""Key of the `InitialPoints` that they are compared with."""

MIRRORED_LANDMARKS_68: Final = np.array([
    *range(16, -1, -1), *range(26, 16, -1), *range(27, 31), *range(35, 30, -1), 45, 44, 43, 42, 47, 46, 39, 38, 37, 36,
    41, 40, *range(54, 47, -1), *range(59, 54, -1), *range(64, 59, -1), 67, 66, 65,
])  # fmt: skip
"""For each of the 68 points the index of the one that takes its name after a reflection."""

FACE_KEYS: Final = ("image", "landmarks", "hull", "regions")

MIRRORED_LANDMARKS: Final = np.array([1, 0, 2, 4, 3])
"""For each landmark the index of the one that takes its name after a reflection."""

HALF_PX: Final = np.float32(0.5)
"""Rows and files count crop px from the corner of the first pixel, so its centre is at .5. Albumentations and OpenCV
count from its centre. `InitialPoints` converts from the first to the second, `FacePoints.in_crop` back."""

_NUM_LANDMARKS: Final = 5
_MIN_ASPECT: Final = 0.1  # of the variances of the five, about; less has a face in profile, which a warp may turn over


class InitialPoints:
    """The points of a face before any transform, and the names of its regions; `landmarks_68` may be none."""

    __slots__ = ("hull_end", "hull_offset", "is_dense", "points", "region_names")

    def __init__(
        self,
        landmarks: NDArray[np.float32],
        hull: NDArray[np.float32],
        regions: Mapping[str, NDArray[np.float32]],
        landmarks_68: NDArray[np.float32] | None = None,
    ) -> None:
        self.region_names = tuple(regions)
        self.hull_offset = _NUM_LANDMARKS + 4 * len(self.region_names)
        if np.shape(landmarks) != (_NUM_LANDMARKS, 2):
            raise UsageError(f"landmarks of shape {np.shape(landmarks)}: must be (5, 2), crop px")
        if np.ndim(hull) != 2 or np.shape(hull)[1] != 2:
            raise UsageError(f"hull of shape {np.shape(hull)}: must be (M, 2), crop px")
        num_68 = 0 if landmarks_68 is None else len(landmarks_68)
        if landmarks_68 is not None and np.shape(landmarks_68) not in {(68, 2), (0, 2)}:
            raise UsageError(f"landmarks_68 of shape {np.shape(landmarks_68)}: must be (68, 2), crop px, or (0, 2)")
        self.hull_end = self.hull_offset + len(hull)
        self.is_dense = landmarks_68 is not None
        self.points: NDArray[np.float32] = np.zeros((self.hull_end + num_68, 5), np.float32)
        xy = self.points[:, :2]
        xy[:_NUM_LANDMARKS] = landmarks
        if self.region_names:
            boxes = np.array([*regions.values()], np.float32)
            if boxes.shape != (len(self.region_names), 4):
                names = ", ".join(self.region_names)
                raise UsageError(f"regions {names}: each must be a box xyxy of shape (4,), crop px")
            xy[_NUM_LANDMARKS : self.hull_offset] = boxes[:, BOX_CORNERS].reshape(-1, 2)
        xy[self.hull_offset : self.hull_end] = hull
        if num_68:
            xy[self.hull_end :] = landmarks_68
        xy -= HALF_PX

    def is_reflected(self, current: NDArray[np.float32]) -> bool:
        """Whether the affine map that fits these points to the `current` ones (N, 2) contains a reflection.

        The map of the five landmarks: of others some may be unknown (NaN), and a strong perspective may take some that
        lie outside the image beyond its horizon. Of all known points where the five are near a line, or not known.
        """
        xy = self.points[:, :2]
        determinant, size = _determinant(xy[:_NUM_LANDMARKS], current[:_NUM_LANDMARKS])
        if not abs(determinant) > _MIN_ASPECT * size:  # NaN, too
            known = np.isfinite(xy).all(axis=1) & np.isfinite(current).all(axis=1)
            determinant, _ = _determinant(xy[known], current[known])
        return determinant < 0


def _determinant(initial: NDArray[np.float32], current: NDArray[np.float32]) -> tuple[float, float]:
    """A number with the sign of the determinant of the least-squares affine map between points (N, 2); its scale.

    The map is C S^-1 with C the cross-covariance and S the covariance of the initial points. S is positive definite, so
    the sign of the map's determinant is that of C's; for C it suffices to centre one side.
    """
    if not len(initial):
        return 0.0, 0.0
    (a, b), (c, d) = (current.T @ (initial - np.add.reduce(initial) / len(initial))).tolist()
    return a * d - b * c, a * a + b * b + c * c + d * d


class FacePoints:
    """The points of a face at one step of a pipeline, in px from the first pixel's centre, as OpenCV draws.

    Left and right are as the viewer sees them on the upright face. `mirrored`: whether an odd number of reflections
    has been applied since the initial points.
    """

    __slots__ = ("_initial", "_xy", "mirrored")

    def __init__(self, points: NDArray[np.float32], initial: InitialPoints) -> None:
        self._initial = initial
        self._xy: NDArray[np.float32] = points[:, :2]
        self.mirrored = points is not initial.points and initial.is_reflected(self._xy)

    def in_crop(self) -> FacePoints:
        """The same face in crop px, counted from the first pixel's corner."""
        return type(self)(self._xy + HALF_PX, self._initial)

    @property
    def landmarks(self) -> NDArray[np.float32]:
        """float32 (5, 2): left and right eye, nose, left and right mouth corner."""
        landmarks = self._xy[:_NUM_LANDMARKS]
        return landmarks[MIRRORED_LANDMARKS] if self.mirrored else landmarks.copy()

    @property
    def hull(self) -> NDArray[np.float32]:
        """float32 (M, 2)."""
        return self._xy[self._initial.hull_offset : self._initial.hull_end].copy()

    @property
    def is_dense(self) -> bool:
        """Whether `landmarks_68` were given, if only none of this face."""
        return self._initial.is_dense

    @property
    def landmarks_68(self) -> NDArray[np.float32]:
        """float32 (68, 2), or (0, 2) where there were none."""
        points = self._xy[self._initial.hull_end :]
        return points[MIRRORED_LANDMARKS_68] if self.mirrored and len(points) else points.copy()

    @property
    def regions(self) -> dict[str, NDArray[np.float32]]:
        """Name -> float32 (4,), xyxy: the bounding box of the transformed corners of the region's box."""
        names = self._initial.region_names
        if not names:
            return {}
        corners = self._xy[_NUM_LANDMARKS : self._initial.hull_offset].reshape(-1, 4, 2)
        boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        indices = _mirrored_indices(names) if self.mirrored else range(len(names))
        return {name: boxes[index] for name, index in zip(names, indices, strict=True)}


@lru_cache(maxsize=16)
def _mirrored_indices(names: tuple[str, ...]) -> tuple[int, ...]:
    """For each region name the index of the region that takes this name after a reflection."""
    opposite = {"left": "right", "right": "left"}
    indices = []
    for index, name in enumerate(names):
        side, _, part = name.partition("_")
        mirrored_name = f"{opposite.get(side, side)}_{part}"
        indices.append(names.index(mirrored_name) if mirrored_name in names else index)
    return tuple(indices)
