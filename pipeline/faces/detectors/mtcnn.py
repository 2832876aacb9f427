"""MTCNN (Zhang et al. 2016, "Joint Face Detection and Alignment Using MTCNN") with facenet-pytorch's weights."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..detection import Faces
from .cascade.pyramid import WINDOW_PX, pyramid_scales
from .cascade.weights import WEIGHT_FILES, weights_folder

if TYPE_CHECKING:
    from .cascade.engines import Engine
    from .cascade.rois import Rois

_METHOD_VERSION: Final = 2
"""Version of our own arithmetic, part of the fingerprint; raised if results change by more than rounding errors."""

Rgb = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class MTCNNDetector:
    """Same results as `facenet_pytorch.MTCNN(keep_all=True).detect(frame, landmarks=True)`, several times as fast.

    Count, boxes, scores and landmarks are facenet's up to rounding errors (about 1e-4 px), by descending score
    (facenet's default order is by area). `min_face_px` is the smallest face to detect and has the largest effect on
    speed: the first stage costs about 2 x (12 / min_face_px)^2 of the frame. `device` is a torch device; None selects
    CUDA if available. torch is imported only for another device than the CPU, and where there may be a GPU. On the CPU
    frames are processed in parallel, one per thread, by `OMP_NUM_THREADS` threads (torch's number where the process
    has imported it, else by default one per core); on CUDA frames of one size are processed together.

    Memory in addition to the frames: on the CPU 20 bytes per pixel of a frame and thread, and for videos of several
    sizes up to about 300 MB per thread, since the networks are compiled for frequent sizes; on CUDA about 130 bytes per
    pixel, for at most 16 million pixels at once or one larger frame.

    Deterministic on one machine up to rounding, however frames are grouped into calls. Cheap to construct and
    picklable: the weights are read on first use or by `load()`, once per process for all detectors, and again in a
    forked process. Raises `UsageError` for a `min_face_px` below PNet's window of 12 px, and on first use if torch
    lacks the device.
    """

    min_face_px: int = 40
    device: str | None = None

    def __post_init__(self) -> None:
        if self.min_face_px < WINDOW_PX:
            rule = f"must be at least {WINDOW_PX} px (PNet's window); smaller faces would only be upscaled"
            raise UsageError(f"min_face_px={self.min_face_px}: {rule}; try 40")

    def load(self) -> MTCNNDetector:
        """Load the weights now, so that a broken installation or device fails before any work is done."""
        self.engine  # noqa: B018
        return self

    @property
    def engine(self) -> Engine:
        """The engine for this detector's device, shared by all detectors of the process; created on first use."""
        from .cascade.engines import engine_for  # noqa: PLC0415 (a second, and the driver needs the fingerprint alone)

        return engine_for(self.device)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the three weight files, `min_face_px` and facenet-pytorch's version; needs no torch.

        The device and the builds of torch and OpenVINO are excluded: they change results by rounding errors only, and
        workers that differ in them must be able to share a job.
        """
        digest = hashlib.sha256()
        for name in WEIGHT_FILES:
            digest.update(hashlib.sha256((weights_folder() / name).read_bytes()).digest())
        version = importlib.metadata.version("facenet-pytorch")
        digest.update(f"facenet-pytorch {version} method={_METHOD_VERSION} min_face_px={self.min_face_px}".encode())
        return "mtcnn-" + digest.hexdigest()[:16]

    @property
    def frames_at_once(self) -> int:
        """The number of threads on the CPU, the batch size on other devices; loads the weights."""
        return self.engine.frames_at_once

    def detect(self, frames: Sequence[Rgb]) -> list[Faces]:
        """Find the faces of upright RGB frames (H, W, 3) uint8; boxes and points in `frame` px.

        A frame with a side below `min_face_px` has no faces, and candidates outside of the frame are dropped; facenet
        raises an exception in both cases.
        """
        searchable = [
            index for index, rgb in enumerate(frames) if pyramid_scales(rgb.shape[0], rgb.shape[1], self.min_face_px)
        ]
        results = [Faces.empty()] * len(frames)
        if searchable:
            detections = self.engine.detect([frames[index] for index in searchable], self.min_face_px)
            for index, detection in zip(searchable, detections, strict=True):
                results[index] = _to_faces(*detection)
        return results

    def detect_in_rois(self, frames: Sequence[Rgb], rois: Rois) -> list[Faces]:
        """Find the faces near `rois` in frames of one size, each of which has at least one ROI."""
        return [_to_faces(*detection) for detection in self.engine.detect_in_rois(frames, rois, self.min_face_px)]


def _to_faces(boxes: NDArray[Any], scores: NDArray[Any], landmarks: NDArray[Any]) -> Faces:
    boxes, scores, landmarks = (np.asarray(a, np.float32) for a in (boxes, scores, landmarks))
    # Box regression is unbounded: on noise it can turn a box inside out or overflow.
    is_valid = (boxes[:, :2] <= boxes[:, 2:]).all(axis=1) & np.isfinite(boxes).all(axis=1)
    is_valid &= np.isfinite(landmarks).all(axis=(1, 2)) & np.isfinite(scores)
    order = np.argsort(-scores[is_valid], kind="stable")
    keep = np.flatnonzero(is_valid)[order]
    return Faces(boxes[keep], scores[keep].clip(0, 1), landmarks[keep])
