"""The default landmarker: hulls by a mean face that is fitted to the five landmarks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..detection import Faces
from ..detectors.fixed import landmarks_in_box
from ..geometry.hull import template_hull
from .landmarker import FaceShape, Points


class TemplateLandmarker:
    """`template_hull` of the five landmarks; pixels are not used.

    Deterministic, picklable, thread-safe. If landmarks coincide, typical ones for the box are used instead.
    """

    fingerprint = "template5"
    is_dense = False

    def locate(self, frames: Sequence[NDArray[np.uint8]], faces: Sequence[Faces]) -> list[list[FaceShape]]:  # noqa: ARG002
        """Return the shapes of each frame's faces: hulls alone."""
        return [template_shapes(in_frame) for in_frame in faces]


def template_shapes(faces: Faces) -> list[FaceShape]:
    """The shapes of one frame's faces: hulls alone, `frame` px."""
    typical = landmarks_in_box(faces.boxes_xyxy)
    return [
        FaceShape(hull=_hull_with_fallback(landmarks, typical_landmarks), method="template5")
        for landmarks, typical_landmarks in zip(faces.landmarks, typical, strict=True)
    ]


def _hull_with_fallback(landmarks: Points, typical: Points) -> Points:
    try:
        return template_hull(landmarks)
    except UsageError:
        pass
    try:
        return template_hull(typical)
    except UsageError:  # a box without area: the smallest polygon with an interior is one pixel
        pixel: Points = typical[:1] + np.array([(0, 0), (1, 0), (1, 1), (0, 1)], np.float32)
        return pixel
