"""`LandmarkColumns`: dense landmarks, pose, hull and regions from stored crops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..dataset.schema import DENSE_COLUMNS, WHOLE_FRAME_HULL, face_schema
from ..errors import UsageError
from ..faces import Faces
from ..faces.geometry.crop import CropSquare
from ..faces.geometry.regions import region_boxes
from ..faces.landmarks import FaceShape, Landmarker
from ..rows.landmark_columns import dense_columns, points_columns
from .maker import LANDMARKS, StoredFaces

REPLACED: Final = ("hull", "hull_method", "regions")
"""Columns of every dataset that the index then has from here."""

_CROP: Final = CropSquare(0, 0, 1)
"""Points are in crop px already."""


@dataclass(frozen=True)
class LandmarkColumns:
    """What `precompute --landmarks mesh` gives, from the stored crops and their five landmarks.

    The landmarker gets each crop as a frame of one face: what it looks at beyond the crop is black. A face that it does
    not fit has its score, and the hull that it had. Of a frame that was cropped already, `hull_method` stays
    "whole_frame".

    `landmarker`: must be dense. Raises `UsageError` where it is not.
    """

    landmarker: Landmarker

    name = LANDMARKS

    def __post_init__(self) -> None:
        if not self.landmarker.is_dense:
            kind = type(self.landmarker).__name__
            raise UsageError(f"landmarker={kind}: gives no dense points (is_dense); there is nothing to add")

    @property
    def fingerprint(self) -> str:
        """That of the landmarker, and the version of this class."""
        return f"crops1-{self.landmarker.fingerprint}"

    @property
    def columns(self) -> pa.Schema:
        """The columns of dense landmarks, and those of `REPLACED`."""
        schema = face_schema((), has_dense_landmarks=True)
        return pa.schema([schema.field(name) for name in (*REPLACED, *DENSE_COLUMNS)])

    def compute(self, faces: StoredFaces) -> dict[str, list[Any]]:
        """See `ColumnMaker`."""
        rows = faces.rows.to_pylist()
        shapes = self.landmarker.locate(faces.images, [_face_in_crop(row) for row in rows])
        made = [_columns(row, shape) for row, (shape,) in zip(rows, shapes, strict=True)]
        return {name: [columns[name] for columns in made] for name in self.columns.names}


def _face_in_crop(row: dict[str, Any]) -> Faces:
    """The detected face of a row, crop px."""
    x0, y0, x1, _ = row["crop_xyxy"]
    square = CropSquare(int(x0), int(y0), int(x1 - x0), row["crop_degrees"])
    scale = row["width"] / square.side
    low, high = np.array(row["box_xyxy"], np.float64).reshape(2, 2)
    centre, half = square.to_crop((low + high) / 2, scale), (high - low) * scale / 2
    return Faces(
        np.concatenate([centre - half, centre + half]).astype(np.float32)[None],
        np.array([row["score"]], np.float32),
        np.array([row["landmarks"]], np.float32),
    )


def _columns(row: dict[str, Any], shape: FaceShape) -> dict[str, Any]:
    landmarks = np.array(row["landmarks"], np.float32)
    columns = {**points_columns(landmarks, shape, _CROP, 1.0), **dense_columns(shape, _CROP, 1.0)}
    if shape.dense is None:
        hull = np.array(row["hull"], np.float32)
        columns |= {"hull": list(hull), "hull_method": row["hull_method"], "regions": region_boxes(landmarks, hull)}
    if row["hull_method"] == WHOLE_FRAME_HULL:
        columns["hull_method"] = WHOLE_FRAME_HULL
    if shape.pose_degrees is not None:
        columns["pose"] = _pose_in_frame(shape.pose_degrees, row["crop_degrees"])
    return columns


def _pose_in_frame(pose_degrees: NDArray[np.float32], crop_degrees: float) -> NDArray[np.float32]:
    """A pose in the crop as a pose in the frame, which the crop was turned out of."""
    roll = (float(pose_degrees[2]) + crop_degrees + 180) % 360 - 180
    return np.array([*pose_degrees[:2], roll], np.float32)
