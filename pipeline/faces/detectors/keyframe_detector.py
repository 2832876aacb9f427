"""MTCNN with tracking: full search in adaptive keyframes, search in regions of interest in the frames between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..detection import Faces
from .keyframe_propagation import detect_with_propagation
from .mtcnn import MTCNNDetector

if TYPE_CHECKING:
    from .cascade.rois import Rois

_METHOD_VERSION: Final = 1
"""Version of the method, part of the fingerprint; raised if results change by more than rounding errors."""
_FRAMES_AT_ONCE: Final = 64

Rgb = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class TrackingDetector:
    """Approximates `MTCNNDetector` on consecutive frames of a video, several times as fast.

    Keyframes are searched completely: both sides of a cut and at least every 21st frame, more where the picture changes
    more. In the other frames PNet, RNet and ONet search only near each face's expected position, interpolated between
    the keyframes, on the same image pyramid, and keep the best few candidates per position. Boxes differ from those of
    a full search by about 3 % of their side. Since positions are interpolated between full searches, errors do not
    accumulate. If a certain face (score above .95) appears, disappears or is not found near its expected position, a
    frame half-way is searched completely too, down to every third; within those segments it is tracked frame by frame.

    Missed are faces that are visible only between two keyframes: for fewer than 21 of the given frames, which at every
    10th frame of a video are some seconds. Faces of low score are missed more easily.

    The gain grows as frames change less. A call with few frames gains little: its first and last frame are always
    keyframes, and a job passes at most 32 million pixels per call, 16 frames of 1080p or 4 of 4K.

    Arguments, errors, memory, threads, pickling and determinism are those of `MTCNNDetector`; the result for a frame
    depends on the other frames of the call.
    """

    min_face_px: int = 40
    device: str | None = None

    def __post_init__(self) -> None:
        self._mtcnn  # noqa: B018 (validates the arguments)

    @cached_property
    def _mtcnn(self) -> MTCNNDetector:
        return MTCNNDetector(min_face_px=self.min_face_px, device=self.device)

    def load(self) -> TrackingDetector:
        """Load the weights now, so that a broken installation or device fails before any work is done."""
        self._mtcnn.load()
        return self

    @property
    def fingerprint(self) -> str:
        """The fingerprint of `MTCNNDetector` and the version of the tracking method."""
        return f"track{_METHOD_VERSION}-{self._mtcnn.fingerprint}"

    @property
    def frames_at_once(self) -> int:
        """64: enough for several keyframes with many frames between them."""
        return _FRAMES_AT_ONCE

    def detect(self, frames: Sequence[Rgb]) -> list[Faces]:
        """Find the faces of upright RGB frames (H, W, 3) uint8 of one video; boxes and points in `frame` px."""
        return detect_with_propagation(frames, _MTCNNSearch(self._mtcnn, frames)) if frames else []


class _MTCNNSearch:
    """`FrameSearch` by MTCNN."""

    def __init__(self, mtcnn: MTCNNDetector, frames: Sequence[Rgb]) -> None:
        self._mtcnn, self._frames = mtcnn, frames

    def detect_full(self, frame_indices: Sequence[int]) -> list[Faces]:
        return self._mtcnn.detect([self._frames[index] for index in frame_indices])

    def detect_in_rois(self, rois: Rois) -> dict[int, Faces]:
        detections: dict[int, Faces] = {}
        shapes = {index: self._frames[index].shape for index in np.unique(rois.frame_indices).tolist()}
        for _, same_size in groupby(shapes, key=shapes.__getitem__):
            frame_indices = list(same_size)
            own_rois = rois[np.isin(rois.frame_indices, frame_indices)]
            own_rois = replace(own_rois, frame_indices=np.searchsorted(frame_indices, own_rois.frame_indices))
            frames = [self._frames[index] for index in frame_indices]
            detections.update(zip(frame_indices, self._mtcnn.detect_in_rois(frames, own_rois), strict=True))
        return detections
