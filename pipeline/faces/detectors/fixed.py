"""`FixedBoxDetector`: a fake detector that returns the same boxes for every frame, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..detection import Faces

RelativeBox = tuple[float, float, float, float]

# MTCNN's landmarks of a frontal face in its box, in fractions of width and height.
_POINTS_IN_BOX: Final = ((0.30, 0.40), (0.70, 0.40), (0.50, 0.58), (0.33, 0.76), (0.67, 0.76))


def landmarks_in_box(boxes_xyxy: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return typical landmarks of a frontal face in each box: (N, 4) -> (N, 5, 2) float32, in the boxes' frame.

    The positions are those of facenet-pytorch's MTCNN on frontal faces, rounded and made symmetric.
    """
    boxes = np.asarray(boxes_xyxy, np.float64)
    sides = boxes[:, None, 2:] - boxes[:, None, :2]
    points: NDArray[np.float64] = boxes[:, None, :2] + sides * np.array(_POINTS_IN_BOX)
    return points.astype(np.float32)


@dataclass(frozen=True)
class FixedBoxDetector:
    """Returns the same boxes for every frame: for tests, dry runs and videos that are already cropped.

    `boxes`: each (x0, y0, x1, y1) relative to the frame's width and height, 0..1; values outside put the
    box past the border. Every score is 1. Deterministic, picklable and thread-safe.
    Raises `UsageError` for a box that is not finite or has no area.

    >>> FixedBoxDetector([(0.25, 0.0, 0.75, 1.0)]).detect([np.zeros((10, 40, 3), np.uint8)])[0].boxes_xyxy
    array([[10.,  0., 30., 10.]], dtype=float32)
    """

    boxes: Sequence[RelativeBox] = ((0.3, 0.2, 0.7, 0.8),)

    def __post_init__(self) -> None:
        object.__setattr__(self, "boxes", tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in self.boxes))
        for box in self.boxes:
            if not np.isfinite(box).all() or box[0] >= box[2] or box[1] >= box[3]:
                raise UsageError(f"box={box}: must be x0 < x1, y0 < y1, shares of the frame; is it xywh?")

    @property
    def fingerprint(self) -> str:
        """Changes with the boxes."""
        return "fixed-" + hashlib.sha256(json.dumps(self.boxes).encode()).hexdigest()[:16]

    @property
    def frames_at_once(self) -> int:
        """One: batches are not faster."""
        return 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        """Return the fixed faces of frames (H, W, 3), in `frame` px."""
        return [self._faces(rgb) for rgb in frames]

    def _faces(self, rgb: NDArray[np.uint8]) -> Faces:
        if not self.boxes:
            return Faces.empty()
        height, width = rgb.shape[:2]
        boxes = (np.array(self.boxes) * (width, height, width, height)).astype(np.float32)
        return Faces(boxes, np.ones(len(boxes), np.float32), landmarks_in_box(boxes))
