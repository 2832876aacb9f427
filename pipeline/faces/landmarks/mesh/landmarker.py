"""`MeshLandmarker`: the face mesh on the faces of frames."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...detection import Faces
from ...geometry.alignment import tilt_degrees
from ...geometry.crop import CropSquare
from ..landmarker import FaceShape, Points
from ..template import template_shapes
from .network import INPUT_PX, MeshNetwork
from .pixels import square_pixels
from .topology import LEFT_EYE_OUTER, RIGHT_EYE_OUTER, convex_hull, points_68, pose_degrees

_MARGIN: Final = 0.25
"""On each side of the points: the network was trained on squares of 1.5 x the face (Kartynnik et al. 2019)."""
_TEMPLATE_MARGIN: Final = 0.125
"""The same squares, around the template's hull: it is larger than the mesh by this."""
_MAX_PASSES: Final = 5
_MAX_SHIFT: Final = 0.03  # of the square's side
_MAX_RATIO: Final = 1.05
_MAX_DEGREES: Final = 3.0
_MIN_SCORE: Final = 0.5
"""Below, the points do not fit, and the face gets the template's hull; MediaPipe's own threshold."""


@dataclass(frozen=True)
class MeshLandmarker:
    """Google's face mesh: 468 points of each face by `face_landmark.tflite`, on OpenVINO.

    The network gets an upright square around the hull of `TemplateLandmarker`, and another one around the points that
    it gives, until the two are alike: 1.7 passes a face on MTCNN's landmarks, more where these are rough. A face that
    scores below 0.5 gets the template's hull, a score, and nothing else.

    `weights`: the bytes of the file (1.2 MB). They are pickled with the landmarker, so that a worker on another host
    does not need the file. Deterministic on one machine; not thread-safe. It runs on one core.
    """

    weights: bytes

    is_dense = True

    def __repr__(self) -> str:
        return f"MeshLandmarker({self.fingerprint})"

    def __getstate__(self) -> dict[str, Any]:
        return {"weights": self.weights}

    @cached_property
    def fingerprint(self) -> str:
        """Name of the method and SHA-256 over the weights."""
        return f"mesh2-{hashlib.sha256(self.weights).hexdigest()[:16]}"

    @cached_property
    def _network(self) -> MeshNetwork:
        return MeshNetwork(self.weights)

    def locate(self, frames: Sequence[NDArray[np.uint8]], faces: Sequence[Faces]) -> list[list[FaceShape]]:
        """Return the shapes of each frame's faces."""
        return [self._shapes(rgb, in_frame) for rgb, in_frame in zip(frames, faces, strict=True)]

    def _shapes(self, rgb: NDArray[np.uint8], faces: Faces) -> list[FaceShape]:
        shapes = []
        for landmarks, fallback in zip(faces.landmarks, template_shapes(faces), strict=True):
            dense, score = self._settled_points(
                rgb, _square_around(fallback.hull, tilt_degrees(landmarks), _TEMPLATE_MARGIN)
            )
            if score < _MIN_SCORE:
                shapes.append(FaceShape(hull=fallback.hull, method=fallback.method, score=score))
            else:
                shapes.append(FaceShape(
                    hull=convex_hull(dense), method="mesh", score=score, dense=dense, points_68=points_68(dense),
                    pose_degrees=pose_degrees(dense),
                ))  # fmt: skip
        return shapes

    def _settled_points(self, rgb: NDArray[np.uint8], square: CropSquare) -> tuple[Points, float]:
        """Points (468, 3) float32, `frame` px, and their score, once the square around them is the one looked at."""
        for _ in range(_MAX_PASSES):
            dense, score = self._locate(rgb, square)
            following = _square_around(dense, _eyes_degrees(dense), _MARGIN)
            if score < _MIN_SCORE or _are_alike(square, following):
                break
            square = following
        return dense, score

    def _locate(self, rgb: NDArray[np.uint8], square: CropSquare) -> tuple[Points, float]:
        points, score = self._network(square_pixels(rgb, square))
        scale = INPUT_PX / square.side
        return np.column_stack([square.to_frame(points[:, :2], scale), points[:, 2:] / np.float32(scale)]), score


def _square_around(points: Points, degrees: float, margin: float) -> CropSquare:
    """The square, turned by `degrees`, around the points (N, 2 or 3), `frame` px, with a margin."""
    upright = CropSquare(0, 0, 1, degrees)  # turns points about the frame's origin
    turned = upright.to_crop(points[:, :2], 1.0)
    low, high = turned.min(axis=0), turned.max(axis=0)
    centre, half = upright.to_frame((low + high) / 2, 1.0), (high - low) / 2
    return CropSquare.around(np.concatenate([centre - half, centre + half]), margin, degrees)


def _eyes_degrees(dense: Points) -> float:
    """Angle of the line between the outer corners of the eyes, clockwise as seen."""
    across = dense[RIGHT_EYE_OUTER, :2] - dense[LEFT_EYE_OUTER, :2]
    return math.degrees(math.atan2(across[1], across[0]))


def _are_alike(square: CropSquare, other: CropSquare) -> bool:
    shift_px = math.hypot(
        square.x0 - other.x0 + (square.side - other.side) / 2, square.y0 - other.y0 + (square.side - other.side) / 2
    )
    turn_degrees = abs((square.degrees - other.degrees + 180) % 360 - 180)
    ratio = max(square.side, other.side) / min(square.side, other.side)
    return shift_px <= _MAX_SHIFT * other.side and ratio <= _MAX_RATIO and turn_degrees <= _MAX_DEGREES
