"""Zhang et al. 2016, "Joint Face Detection and Alignment Using MTCNN", as facenet-pytorch runs it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .detection import Faces

_WINDOW_PX: Final = 12
"""PNet looks through a window of 12 x 12 px; facenet scales the frame by 12 / min_face_size."""

_WEIGHTS: Final = ("pnet.pt", "rnet.pt", "onet.pt")


class MTCNNDetector:
    """`facenet_pytorch.MTCNN(keep_all=True).detect(frame, landmarks=True)`, one frame at a time.

    Count, boxes, scores and landmarks are facenet's own, in float32 and by falling score (facenet's
    default order is by area). `min_face_px` is the smallest face looked for and the largest knob on speed:
    the first stage costs about 2 x (12 / min_face_px)^2 of the frame. `device` is torch's name of one;
    None takes CUDA where there is one.

    Deterministic on one machine with one number of threads. Light to construct and picklable: the weights
    are read on first use, or by `load()`, in the process that uses them. Not thread-safe while it loads.
    Raises `UsageError` on a `min_face_px` below PNet's window of 12 px.
    """

    def __init__(self, *, min_face_px: int = 40, device: str | None = None) -> None:
        if min_face_px < _WINDOW_PX:
            rule = f"must be at least {_WINDOW_PX} px (PNet's window); smaller faces would only be upscaled"
            raise UsageError(f"min_face_px={min_face_px}: {rule}; try 40")
        self.min_face_px = min_face_px
        self.device = device

    def __repr__(self) -> str:
        return f"MTCNNDetector(min_face_px={self.min_face_px}, device={self.device!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.min_face_px, self.device)

    def load(self) -> MTCNNDetector:
        """Read the weights now, so that a broken installation or device fails before any work is done."""
        self._mtcnn  # noqa: B018
        return self

    @cached_property
    def _mtcnn(self) -> Any:
        import torch  # noqa: PLC0415 (2 s, and the driver needs the fingerprint alone)
        from facenet_pytorch import MTCNN  # noqa: PLC0415

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        return MTCNN(
            keep_all=True,
            min_face_size=self.min_face_px,
            select_largest=False,
            device=torch.device(device),
        ).eval()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the three weight files, `min_face_px` and facenet-pytorch's version; needs no torch.

        The device and torch's build are left out: they move results by rounding errors only, and a cluster
        whose workers differ in them must be able to work on one job.
        """
        digest = hashlib.sha256()
        for name in _WEIGHTS:
            digest.update(hashlib.sha256((_weights_folder() / name).read_bytes()).digest())
        version = importlib.metadata.version("facenet-pytorch")
        digest.update(f"facenet-pytorch {version} min_face_px={self.min_face_px}".encode())
        return "mtcnn-" + digest.hexdigest()[:16]

    @property
    def frames_at_once(self) -> int:
        return 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        return [self._detect(rgb) for rgb in frames]

    def _detect(self, rgb: NDArray[np.uint8]) -> Faces:
        """Find the faces of an upright RGB frame (H, W, 3) uint8; boxes and points in `frame` px.

        A frame with a side below `min_face_px` has no faces: facenet would stop with an exception.
        """
        # As facenet computes it, so that both agree on a frame that is exactly as large as a face.
        if min(rgb.shape[:2]) * (_WINDOW_PX / self.min_face_px) < _WINDOW_PX:
            return Faces.empty()
        boxes, scores, landmarks = self._mtcnn.detect(np.ascontiguousarray(rgb), landmarks=True)
        if boxes is None:
            return Faces.empty()
        return _as_faces(boxes, scores, landmarks)


def _rebuild(min_face_px: int, device: str | None) -> MTCNNDetector:
    return MTCNNDetector(min_face_px=min_face_px, device=device)


def _weights_folder() -> Path:
    spec = importlib.util.find_spec("facenet_pytorch")
    if spec is None or spec.origin is None:
        raise UsageError("facenet-pytorch is not installed: MTCNN has no weights; pip install facenet-pytorch")
    return Path(spec.origin).parent / "data"


def _as_faces(boxes: NDArray[Any], scores: NDArray[Any], landmarks: NDArray[Any]) -> Faces:
    boxes, scores, landmarks = (np.asarray(a, np.float32) for a in (boxes, scores, landmarks))
    # Box regression is unbounded: on noise it can turn a box inside out or overflow.
    sound = (boxes[:, :2] <= boxes[:, 2:]).all(axis=1) & np.isfinite(boxes).all(axis=1)
    sound &= np.isfinite(landmarks).all(axis=(1, 2)) & np.isfinite(scores)
    order = np.argsort(-scores[sound], kind="stable")
    kept = np.flatnonzero(sound)[order]
    return Faces(boxes[kept], scores[kept].clip(0, 1), landmarks[kept])
