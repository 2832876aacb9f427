"""The columns of a row that come from a face's landmarks and shape."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..faces.geometry.crop import CropSquare
from ..faces.geometry.regions import mouth_openness, region_boxes, region_boxes_68
from ..faces.landmarks import FaceShape


def points_columns(
    landmarks5: NDArray[np.float32], shape: FaceShape, square: CropSquare, scale: float
) -> dict[str, Any]:
    """Landmarks, hull and regions of a face, `crop` px."""
    landmarks, hull = square.to_crop(landmarks5, scale), square.to_crop(shape.hull, scale)
    if shape.points_68 is None:
        regions = region_boxes(landmarks, hull)
    else:
        regions = region_boxes_68(square.to_crop(shape.points_68, scale), hull)
    return {"landmarks": list(landmarks), "hull": list(hull), "hull_method": shape.method, "regions": regions}


_STEPS_PER_PX: Final = np.float32(64)
"""Dense points are rounded to 1/64 px, far below what a landmarker knows: they then take half the space."""


def dense_columns(shape: FaceShape, square: CropSquare, scale: float) -> dict[str, Any]:
    """What only a dense landmarker gives, `crop` px; all but the score None where its points do not fit the face."""
    points_68, dense = shape.points_68, shape.dense
    return {
        "landmark_score": shape.score,
        "landmarks_68": None if points_68 is None else list(square.to_crop(points_68, scale)),
        "landmarks_dense": None if dense is None else list(_rounded(square.to_crop(dense[:, :2], scale))),
        "landmarks_depth": None if dense is None else _rounded(dense[:, 2] * np.float32(scale)),
        "pose": shape.pose_degrees,
        "mouth_open": None if points_68 is None else mouth_openness(points_68),
    }


def _rounded(px: NDArray[np.float32]) -> NDArray[np.float32]:
    rounded: NDArray[np.float32] = np.round(px * _STEPS_PER_PX).astype(np.float32) / _STEPS_PER_PX
    return rounded
