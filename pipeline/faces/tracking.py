"""MTCNN that follows faces: some frames are searched as a whole, the others only where faces are expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .detection import Faces
from .follow import followed
from .mtcnn import MTCNNDetector

if TYPE_CHECKING:
    from .cascade.places import Places

_METHOD: Final = 1
"""Goes up whenever results change by more than rounding errors."""
_FRAMES_AT_ONCE: Final = 64

Rgb = NDArray[np.uint8]


class TrackingDetector:
    """What `MTCNNDetector` finds, several times as fast again, in frames that follow each other in a video.

    Every 16th frame at most, and both sides of a cut, are searched as a whole; where faces come, go, or are not found
    where they should be, frames between these are too, down to every fourth. In all others PNet, RNet and ONet look
    only near the straight line from where a face was to where it will be (see `followed`), on the same levels of the
    same pyramid: what they find there is what a search of the whole frame finds. So no error adds up, no face is made
    up, and one that is sure before and after is not lost without a search. What may be missed is a face that is there
    for less than 16 frames, between two searches.

    How far apart the frames are does not matter: where people move far from one to the next, more are searched.

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
        """Enough for four searches of whole frames."""
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
