"""`FaceShape`, what is known of a face's outline and points, and the `Landmarker` protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..detection import Faces

Points = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class FaceShape:
    """Outline and points of one face; `frame` px.

    Args:
        hull: convex hull, (M, 2) float32, M >= 3.
        method: value of the column `hull_method`.
        score: the landmarker's confidence that its points lie on a face, 0..1; None where it has none.
        dense: all points, (P, 3) float32: x, y and depth, larger the further away; None where the landmarker has none,
            or they do not fit this face.
        points_68: the 68 points of iBUG's 300-W markup (Sagonas et al. 2013), (68, 2) float32; None as `dense`.
        pose_degrees: yaw, pitch and roll, (3,) float32; None as `dense`. Positive: the nose points to the right of the
            image, upwards, and the head is turned clockwise as seen.

    """

    hull: Points
    method: str
    score: float | None = None
    dense: Points | None = None
    points_68: Points | None = None
    pose_degrees: Points | None = None


class Landmarker(Protocol):
    """Computes the shapes of faces; the extension point for landmark models.

    An implementer promises:

    - deterministic: a face has the same shape whatever other frames and faces come with it, up to rounding;
    - total: one shape for each face, in the given order, and no exception for any `Faces`: coinciding landmarks, and
      boxes beyond the border of the frame, are valid;
    - picklable, so that it can be sent to a worker process; it may load its model there, on first use;
    - not necessarily thread-safe: facefeed calls it from one thread of a process at a time.
    """

    @property
    def fingerprint(self) -> str:
        """A short text that changes whenever the result may change: weights, settings.

        It is part of the job's configuration hash, so that rows of two landmarkers are never mixed. It must be cheap
        and must not need the device.
        """
        ...

    @property
    def is_dense(self) -> bool:
        """Whether it gives scores, dense points, 68 points and poses: the rows then have columns for them."""
        ...

    def locate(self, frames: Sequence[NDArray[np.uint8]], faces: Sequence[Faces]) -> list[list[FaceShape]]:
        """Return the shapes of each frame's faces.

        `frames`: upright RGB frames of one video in order, each (H, W, 3) uint8. `faces`: those of each frame.
        """
        ...
