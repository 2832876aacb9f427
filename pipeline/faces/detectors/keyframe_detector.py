"""MTCNN that follows faces: some frames are searched as a whole, the others only where faces are expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..detection import Faces
from .keyframe_propagation import followed
from .mtcnn import MTCNNDetector

if TYPE_CHECKING:
    from .cascade.rois import Places

_METHOD: Final = 1
"""Goes up whenever results change by more than rounding errors."""
_FRAMES_AT_ONCE: Final = 64

Rgb = NDArray[np.uint8]


class TrackingDetector:
    """What `MTCNNDetector` finds, several times as fast again, in frames that follow each other in a video.

    Both sides of a cut and at least every 21st frame are searched as a whole, more where the picture changes more. In
    the others PNet, RNet and ONet look only where each face should be, on the straight line from one search to the
    next, at pixels of the same pyramid, and keep the best few candidates of a place: boxes are within some 3 % of their
    side of those that a search of the whole frame gives. As each place comes from such searches before and after, no
    error adds up. Where a face that is surely there (score above .95) comes, goes, or is not found near its place, a
    frame half-way is searched too, down to every fifth; between those it is followed from frame to frame.

    Missed are faces that are there between two searches only: for less than 21 of the frames that are given, which at
    every 10th frame of a video is some seconds, and faint ones more easily than sure ones.

    It pays the more, the less happens from one frame to the next. A call of few frames gains little: both its ends are
    searched, and the job holds at most 32 million pixels, 16 frames of 1080p or 4 of 4K.

    Arguments and errors, memory and threads, pickling and determinism are those of `MTCNNDetector`; what is found in a
    frame depends on those that come with it in one call.
    """

    def __init__(self, *, min_face_px: int = 40, device: str | None = None) -> None:
        self._exact = MTCNNDetector(min_face_px=min_face_px, device=device)

    def __repr__(self) -> str:
        return f"TrackingDetector(min_face_px={self._exact.min_face_px}, device={self._exact.device!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._exact.min_face_px, self._exact.device)

    def load(self) -> TrackingDetector:
        """As `MTCNNDetector.load`."""
        self._exact.load()
        return self

    @property
    def fingerprint(self) -> str:
        """That of `MTCNNDetector`, and how faces are followed."""
        return f"track{_METHOD}-{self._exact.fingerprint}"

    @property
    def frames_at_once(self) -> int:
        """Few searches of whole frames, and many frames between them."""
        return _FRAMES_AT_ONCE

    def detect(self, frames: Sequence[Rgb]) -> list[Faces]:
        """Find the faces of upright RGB frames (H, W, 3) uint8 of one video, in their order; as `MTCNNDetector`."""
        return followed(frames, _Search(self._exact, frames)) if frames else []


def _rebuild(min_face_px: int, device: str | None) -> TrackingDetector:
    return TrackingDetector(min_face_px=min_face_px, device=device)


class _Search:
    """As `Search` has it, by the cascade."""

    def __init__(self, exact: MTCNNDetector, frames: Sequence[Rgb]) -> None:
        self._exact, self._frames = exact, frames

    def everywhere(self, numbers: Sequence[int]) -> list[Faces]:
        return self._exact.detect([self._frames[number] for number in numbers])

    def near(self, places: Places) -> dict[int, Faces]:
        found: dict[int, Faces] = {}
        shape_of = {number: self._frames[number].shape for number in np.unique(places.frames).tolist()}
        for _, alike in groupby(shape_of, key=shape_of.__getitem__):
            numbers = list(alike)
            own = places[np.isin(places.frames, numbers)]
            own = replace(own, frames=np.searchsorted(numbers, own.frames))
            frames = [self._frames[number] for number in numbers]
            found.update(zip(numbers, self._exact.detect_near(frames, own), strict=True))
        return found
