"""Zhang et al. 2016, "Joint Face Detection and Alignment Using MTCNN", with facenet-pytorch's weights and results."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..detection import Faces
from .cascade.pyramid import WINDOW_PX, scales
from .cascade.weights import FILES, weights_folder

if TYPE_CHECKING:
    from .cascade.engines import Engine
    from .cascade.rois import Places

_METHOD: Final = 2
"""Goes up whenever our own arithmetic changes results by more than rounding errors."""

Rgb = NDArray[np.uint8]

_forked: Final = threading.Event()
os.register_at_fork(after_in_child=_forked.set)


class MTCNNDetector:
    """What `facenet_pytorch.MTCNN(keep_all=True).detect(frame, landmarks=True)` finds, several times as fast.

    Count, boxes, scores and landmarks are facenet's up to rounding errors (some 1e-4 px), by falling score (facenet's
    default order is by area). `min_face_px` is the smallest face looked for and the largest knob on speed: the first
    stage costs about 2 x (12 / min_face_px)^2 of the frame. `device` is torch's name of one; None takes CUDA where
    there is one. On the CPU frames are worked through side by side, each on one of as many threads as torch would take
    (`OMP_NUM_THREADS`); on CUDA those of one size together.

    Memory beside the frames: on the CPU 20 bytes for each pixel of a frame and thread, and as videos of several sizes
    come by up to some 300 MB a thread, since the networks are compiled for sizes that come often; on CUDA about 130
    bytes for each of at most 16 million pixels that are on the device at once (one larger frame alone has more).

    Deterministic on one machine up to rounding, whatever frames come together. Light to construct and picklable: the
    weights are read on first use, or by `load()`, once in a process for all detectors, and anew in one that was
    forked. Raises `UsageError` on a `min_face_px` below PNet's window of 12 px, and on first use on a device that
    torch has not.
    """

    def __init__(self, *, min_face_px: int = 40, device: str | None = None) -> None:
        if min_face_px < WINDOW_PX:
            rule = f"must be at least {WINDOW_PX} px (PNet's window); smaller faces would only be upscaled"
            raise UsageError(f"min_face_px={min_face_px}: {rule}; try 40")
        self.min_face_px = min_face_px
        self.device = device

    def __repr__(self) -> str:
        return f"MTCNNDetector(min_face_px={self.min_face_px}, device={self.device!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.min_face_px, self.device)

    def load(self) -> MTCNNDetector:
        """Read the weights now, so that a broken installation or device fails before any work is done."""
        self.engine  # noqa: B018
        return self

    @property
    def engine(self) -> Engine:
        """The cascade on this detector's device, one for all detectors of a process; made on first use.

        In a process that was forked torch computes with one thread from then on, as in the workers of its own
        DataLoader: it would wait for threads that stayed behind in the process that this one was forked from.
        """
        import torch  # noqa: PLC0415 (2 s, and the driver needs the fingerprint alone)

        from .cascade.engines import engine_on  # noqa: PLC0415

        if _forked.is_set() and torch.get_num_threads() > 1:
            torch.set_num_threads(1)
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return engine_on(device)
        except (RuntimeError, AssertionError) as error:  # torch has no kind of its own for this
            why = str(error).splitlines()[0]
            raise UsageError(f"device={device!r}: must be a device that torch can use; {why}; try cpu") from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the three weight files, `min_face_px` and facenet-pytorch's version; needs no torch.

        The device, torch's and OpenVINO's builds are left out: they move results by rounding errors only, and a
        cluster whose workers differ in them must be able to work on one job.
        """
        digest = hashlib.sha256()
        for name in FILES:
            digest.update(hashlib.sha256((weights_folder() / name).read_bytes()).digest())
        version = importlib.metadata.version("facenet-pytorch")
        digest.update(f"facenet-pytorch {version} method={_METHOD} min_face_px={self.min_face_px}".encode())
        return "mtcnn-" + digest.hexdigest()[:16]

    @property
    def frames_at_once(self) -> int:
        """On the CPU the number of threads, on another device a batch; loads the weights."""
        return self.engine.frames_at_once

    def detect(self, frames: Sequence[Rgb]) -> list[Faces]:
        """Find the faces of upright RGB frames (H, W, 3) uint8; boxes and points in `frame` px.

        A frame with a side below `min_face_px` has no faces: facenet would stop with an exception. So it would at a
        candidate that lies wholly outside of the frame, which is left out here.
        """
        large = [number for number, rgb in enumerate(frames) if scales(rgb.shape[0], rgb.shape[1], self.min_face_px)]
        found = [Faces.empty()] * len(frames)
        if large:
            ours = self.engine.find([frames[number] for number in large], self.min_face_px)
            for number, one in zip(large, ours, strict=True):
                found[number] = _as_faces(*one)
        return found

    def detect_near(self, frames: Sequence[Rgb], places: Places) -> list[Faces]:
        """Find those faces of frames of one size that lie near places, of which each frame has at least one."""
        return [_as_faces(*one) for one in self.engine.find_near(frames, places, self.min_face_px)]


def _rebuild(min_face_px: int, device: str | None) -> MTCNNDetector:
    return MTCNNDetector(min_face_px=min_face_px, device=device)


def _as_faces(boxes: NDArray[Any], scores: NDArray[Any], landmarks: NDArray[Any]) -> Faces:
    boxes, scores, landmarks = (np.asarray(a, np.float32) for a in (boxes, scores, landmarks))
    # Box regression is unbounded: on noise it can turn a box inside out or overflow.
    sound = (boxes[:, :2] <= boxes[:, 2:]).all(axis=1) & np.isfinite(boxes).all(axis=1)
    sound &= np.isfinite(landmarks).all(axis=(1, 2)) & np.isfinite(scores)
    order = np.argsort(-scores[sound], kind="stable")
    kept = np.flatnonzero(sound)[order]
    return Faces(boxes[kept], scores[kept].clip(0, 1), landmarks[kept])
