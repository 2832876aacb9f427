"""`Faces` of one frame, the `FaceDetector` protocol, and `FaceFilter`, which selects the faces to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Faces:
    """The N faces of one frame.

    Args:
        boxes_xyxy: (N, 4) float32, `frame` px, may reach past the border; x0 <= x1 and y0 <= y1.
        scores: (N,) float32, the detector's confidence, 0 to 1.
        landmarks: (N, 5, 2) float32, `frame` px: image-left eye, image-right eye, nose tip, image-left and image-right
            mouth corner; left and right as the viewer sees them on an upright face.

    Raises:
        UsageError: a wrong shape, dtype or value.

    >>> Faces.empty()
    Faces(boxes_xyxy=(0, 4), scores=(0,), landmarks=(0, 5, 2))

    """

    boxes_xyxy: NDArray[np.float32]
    scores: NDArray[np.float32]
    landmarks: NDArray[np.float32]

    def __post_init__(self) -> None:
        count = len(self.scores)
        _check_array("boxes_xyxy", self.boxes_xyxy, (count, 4))
        _check_array("scores", self.scores, (count,))
        _check_array("landmarks", self.landmarks, (count, 5, 2))
        if not ((self.scores >= 0) & (self.scores <= 1)).all():
            raise UsageError(f"scores={self.scores}: must lie in 0..1; a filter by score would mislead")
        if (self.boxes_xyxy[:, :2] > self.boxes_xyxy[:, 2:]).any():
            raise UsageError(f"boxes_xyxy={self.boxes_xyxy}: must be x0 <= x1, y0 <= y1; is it xywh?")

    @classmethod
    def empty(cls) -> Self:
        """Return zero faces."""
        zeros = np.zeros
        return cls(zeros((0, 4), np.float32), zeros(0, np.float32), zeros((0, 5, 2), np.float32))

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        shapes = f"boxes_xyxy={self.boxes_xyxy.shape}, scores={self.scores.shape}"
        return f"Faces({shapes}, landmarks={self.landmarks.shape})"

    def select(self, index: NDArray[np.bool_] | NDArray[np.intp]) -> Faces:
        """Return the faces selected by a mask (N,) or by indices (M,), in the order of `index`."""
        return Faces(self.boxes_xyxy[index], self.scores[index], self.landmarks[index])

    def scaled(self, factor: float) -> Faces:
        """Return the same faces in a frame that is `factor` times as large."""
        factor32 = np.float32(factor)
        return Faces(self.boxes_xyxy * factor32, self.scores, self.landmarks * factor32)


def _check_array(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.float32:
        actual = f"{name}={array.shape} {array.dtype}"
        raise UsageError(f"{actual}: must be {shape} float32, one row for each score; cast or reshape it")
    if not np.isfinite(array).all():
        raise UsageError(f"{name} holds nan or inf: must be finite; drop such faces before")


class FaceDetector(Protocol):
    """Finds the faces of frames; the extension point for detection models.

    An implementer promises:

    - deterministic: the same frames give the same `Faces` on the same machine, up to rounding, in every call
      (no state is kept between calls);
    - total: upright uint8 RGB frames of any size, 1x1 included, and of several sizes in one call, give one `Faces`
      per frame, in order, and never an exception; no frames give an empty list;
    - bounded: its memory does not grow with the number of frames per call;
    - ordered: by descending score;
    - picklable, so that it can be sent to a worker process; it may load its model there, on first use;
    - not necessarily thread-safe: facefeed calls it from one thread of a process at a time.
    """

    @property
    def fingerprint(self) -> str:
        """A short text that changes whenever the result may change: weights, settings, library version.

        It is part of the job's configuration hash, so that rows of two detectors are never mixed. It must be cheap and
        must not need the device, since the driver reads it on a machine that may have none.
        """
        ...

    @property
    def frames_at_once(self) -> int:
        """The preferred number of frames per call of `detect`, at least 1; facefeed passes no more.

        1 suits a detector that processes frames one by one. It may depend on the device and is read only in the
        process that detects.
        """
        ...

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        """Find the faces of upright RGB frames, each (H, W, 3) uint8; boxes and points in `frame` px.

        facefeed passes sampled frames of one video in order: the result for one may depend on the others.
        """
        ...


def run_detector(detector: FaceDetector, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
    """The faces of frames (H, W, 3) uint8; raises `UsageError` where the detector does not answer for each of them."""
    detections = detector.detect(frames)
    if len(detections) != len(frames):
        problem = f"{type(detector).__name__} gave {len(detections)} answers for {len(frames)} frames"
        raise UsageError(f"{problem}: must give one for each, in their order")
    return detections


@dataclass(frozen=True, kw_only=True)
class FaceFilter:
    """Selects which faces of a frame become rows; their order is kept.

    Args:
        max_faces: at most this many, by highest score (ties: the earlier one); None keeps all.
        min_face_px: minimum of the box's shorter side, `frame` px.
        min_score: minimum score, 0..1.

    Raises:
        UsageError: a value is out of range.

    """

    max_faces: int | None = None
    min_face_px: int = 40
    min_score: float = 0.9

    def __post_init__(self) -> None:
        if self.max_faces is not None and not (type(self.max_faces) is int and self.max_faces >= 1):
            raise UsageError(f"max_faces={self.max_faces!r}: must be at least 1; leave it out to keep all")
        if not (isinstance(self.min_face_px, Real) and self.min_face_px >= 0):
            raise UsageError(f"min_face_px={self.min_face_px!r}: must be at least 0 px; try 40")
        if not (isinstance(self.min_score, Real) and 0 <= self.min_score <= 1):
            raise UsageError(f"min_score={self.min_score!r}: must lie in 0..1; try 0.9")

    def __call__(self, faces: Faces) -> Faces:
        """Return the faces that pass, in their given order."""
        return faces.select(self.passing_indices(faces))

    def passing_indices(self, faces: Faces) -> NDArray[np.intp]:
        """Return the indices (M,) of the faces that pass, in their given order."""
        sides = (faces.boxes_xyxy[:, 2:] - faces.boxes_xyxy[:, :2]).min(axis=1, initial=np.inf)
        # Scores are float32: compared with 0.9 as a float64, a score of exactly 0.9 would not pass.
        is_passing = (sides >= self.min_face_px) & (faces.scores >= np.float32(self.min_score))
        keep = np.flatnonzero(is_passing)
        if self.max_faces is not None:
            best_first = keep[np.argsort(-faces.scores[keep], kind="stable")]
            keep = np.sort(best_first[: self.max_faces])
        return keep
