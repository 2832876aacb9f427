"""Which of the mesh's 468 points is what; image-left is the viewer's left."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ..landmarker import Points

NUM_POINTS: Final = 468

LEFT_EYE_OUTER, RIGHT_EYE_OUTER = 33, 263
"""Outer corners of the image-left and the image-right eye."""

_FOREHEAD, _CHIN = 10, 152
_MIRRORED_PAIRS: Final = np.array(
    [(234, 454), (127, 356), (93, 323), (33, 263), (133, 362), (61, 291), (70, 300), (50, 280), (172, 397)]
)
"""Image-left and image-right points that are each other's mirror image: ears, eyes, mouth, brows, cheeks, jaw."""

# Peizhi Yan's "Mediapipe_2_Dlib_Landmarks" (MIT): a point of the 68, or the mean of two.
_POINTS_68: Final = (
    (127,), (234,), (93,), (132, 58), (58, 172), (136,), (150,), (176,), (152,), (400,), (379,), (365,), (397, 288),
    (361,), (323,), (454,), (356,),
    (70,), (63,), (105,), (66,), (107,), (336,), (296,), (334,), (293,), (300,),
    (168, 6), (197, 195), (5,), (4,), (75,), (97,), (2,), (326,), (305,),
    (33,), (160,), (158,), (133,), (153,), (144,), (362,), (385,), (387,), (263,), (373,), (380,),
    (61,), (39,), (37,), (0,), (267,), (269,), (291,), (321,), (314,), (17,), (84,), (91,),
    (78,), (82,), (13,), (312,), (308,), (317,), (14,), (87,),
)  # fmt: skip
_FIRST_68: Final = np.array([group[0] for group in _POINTS_68])
_LAST_68: Final = np.array([group[-1] for group in _POINTS_68])


def points_68(dense: Points) -> Points:
    """The 68 points, (68, 2) float32, of the mesh's (468, 3)."""
    means: Points = (dense[_FIRST_68, :2] + dense[_LAST_68, :2]) / np.float32(2)
    return means


def convex_hull(dense: Points) -> Points:
    """Convex hull (M, 2) float32 of the mesh's points (468, 3)."""
    hull: Points = cv2.convexHull(np.ascontiguousarray(dense[:, :2]))[:, 0]
    return hull


def pose_degrees(dense: Points) -> Points:
    """Yaw, pitch and roll of the head, (3,) float32, from points (468, 3); signs as in `FaceShape`.

    The head's axes: across, the mean of the lines between mirrored points; down, from the forehead to the chin; both
    lie in the plane of a face that looks straight ahead. The rotation is roll after yaw after pitch, so yaw and pitch
    are the same however the picture is turned.
    """
    points = dense.astype(np.float64)
    left, right = points[_MIRRORED_PAIRS].mean(axis=0)
    across = _unit(right - left)
    down = points[_CHIN] - points[_FOREHEAD]
    down = _unit(down - (down @ across) * across)
    away = np.cross(across, down)
    yaw, pitch = np.arctan2(across[2], np.hypot(across[0], across[1])), np.arctan2(-down[2], away[2])
    roll = np.arctan2(across[1], across[0])
    return np.rad2deg([yaw, pitch, roll]).astype(np.float32)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = vector / max(float(np.linalg.norm(vector)), 1e-12)
    return unit
