"""The faces of one frame, the contract of whoever finds them, and the choice of which to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Faces:
    """The N faces of one frame.

    `boxes_xyxy`: (N, 4) float32, `frame` px, may reach past the border; x0 <= x1 and y0 <= y1.
    `scores`: (N,) float32, the detector's confidence, 0 (surely none) to 1 (surely a face).
    `landmarks`: (N, 5, 2) float32, `frame` px: image-left eye, image-right eye, nose tip, image-left and
    image-right mouth corner; left and right as the viewer sees them on an upright face.
    Raises `UsageError` where a shape, a dtype or a value breaks this.

    >>> Faces.empty()
    Faces(boxes_xyxy=(0, 4), scores=(0,), landmarks=(0, 5, 2))
    """

    boxes_xyxy: NDArray[np.float32]
    scores: NDArray[np.float32]
    landmarks: NDArray[np.float32]

    def __post_init__(self) -> None:
        count = len(self.scores)
        _check("boxes_xyxy", self.boxes_xyxy, (count, 4))
        _check("scores", self.scores, (count,))
        _check("landmarks", self.landmarks, (count, 5, 2))
        if not ((self.scores >= 0) & (self.scores <= 1)).all():
            raise UsageError(f"scores={self.scores}: must lie in 0..1; a filter by score would mislead")
        if (self.boxes_xyxy[:, :2] > self.boxes_xyxy[:, 2:]).any():
            raise UsageError(f"boxes_xyxy={self.boxes_xyxy}: must be x0 <= x1, y0 <= y1; is it xywh?")

    @classmethod
    def empty(cls) -> Self:
        """No face at all."""
        zeros = np.zeros
        return cls(zeros((0, 4), np.float32), zeros(0, np.float32), zeros((0, 5, 2), np.float32))

    def __len__(self) -> int:
        return len(self.scores)

    def __repr__(self) -> str:
        shapes = f"boxes_xyxy={self.boxes_xyxy.shape}, scores={self.scores.shape}"
        return f"Faces({shapes}, landmarks={self.landmarks.shape})"

    def select(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Faces:
        """Keep the faces that a mask (N,) or indices (M,) name, in the order they are named."""
        return Faces(self.boxes_xyxy[which], self.scores[which], self.landmarks[which])

    def scaled(self, factor: float) -> Faces:
        """The same faces in a frame that is `factor` times as large."""
        by = np.float32(factor)
        return Faces(self.boxes_xyxy * by, self.scores, self.landmarks * by)


def _check(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape or array.dtype != np.float32:
        found = f"{name}={array.shape} {array.dtype}"
        raise UsageError(f"{found}: must be {shape} float32, one row for each score; cast or reshape it")
    if not np.isfinite(array).all():
        raise UsageError(f"{name} holds nan or inf: must be finite; drop such faces before")


class FaceDetector(Protocol):
    """Finds the faces of frames; the seam between facefeed and a detection model.

    An implementer promises:

    - deterministic: the same frames give the same `Faces` on the same machine, up to rounding, call after call,
      whatever came before (no state from call to call);
    - total: upright uint8 RGB frames of any size, 1x1 included, and of several sizes in one call, give `Faces`,
      one for each frame and in their order, never an exception; no frames give none;
    - bounded: its memory does not grow with the number of frames, whatever it is given at once;
    - ordered: by falling score;
    - picklable, so that it can be sent to a worker process; it may load its model there, on first use;
    - not necessarily thread-safe: facefeed calls it from one thread of a process at a time.
    """

    @property
    def fingerprint(self) -> str:
        """A short text that changes whenever the result could: weights, settings, library version.

        It goes into the hash of a job's configuration: rows of two detectors are never mixed. It must be
        cheap and must not need the device, since the driver asks for it on a machine without one.
        """
        ...

    @property
    def frames_at_once(self) -> int:
        """How many frames of a video it likes to be given in one call, at least 1; facefeed gives no more.

        1 is right for whoever works through them one by one. It may depend on the device, and may be asked for
        only where the work is done.
        """
        ...

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        """Find the faces of upright RGB frames, each (H, W, 3) uint8; boxes and points in `frame` px.

        facefeed gives wanted frames of one video, in their order: what is found in one may depend on the others.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class FaceFilter:
    """Which faces of a frame become rows; what is kept keeps its order.

    `max_faces`: at most so many, the most confident first (ties: the earlier one); None keeps all.
    `min_face_px`: least shorter side of the box, `frame` px. `min_score`: least score, 0..1.
    Raises `UsageError` on values that cannot be meant.
    """

    max_faces: int | None = None
    min_face_px: int = 40
    min_score: float = 0.9

    def __post_init__(self) -> None:
        if self.max_faces is not None and self.max_faces < 1:
            raise UsageError(f"max_faces={self.max_faces}: must be at least 1; leave it out to keep all")
        if self.min_face_px < 0:
            raise UsageError(f"min_face_px={self.min_face_px}: must be at least 0 px; try 40")
        if not 0 <= self.min_score <= 1:
            raise UsageError(f"min_score={self.min_score}: must lie in 0..1; try 0.9")

    def __call__(self, faces: Faces) -> Faces:
        """Return the faces that pass, in their given order."""
        return faces.select(self.which(faces))

    def which(self, faces: Faces) -> NDArray[np.intp]:
        """Return the indices (M,) of the faces that pass, in their given order."""
        sides = (faces.boxes_xyxy[:, 2:] - faces.boxes_xyxy[:, :2]).min(axis=1, initial=np.inf)
        # The score is float32: 0.9 as a float64 would turn away a face of exactly 0.9.
        passed = (sides >= self.min_face_px) & (faces.scores >= np.float32(self.min_score))
        kept = np.flatnonzero(passed)
        if self.max_faces is not None:
            best_first = kept[np.argsort(-faces.scores[kept], kind="stable")]
            kept = np.sort(best_first[: self.max_faces])
        return kept
