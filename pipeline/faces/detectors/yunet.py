"""Wu, Peng and Yu 2023, "YuNet: A Tiny Millisecond-level Face Detector", run by OpenCV from the user's model file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..detection import Faces

MIN_FACE_PX: Final = 10
"""YuNet was trained on faces of about 10 to 300 px, says its model card (opencv_zoo); smaller ones it does not find."""

# How large the smallest wanted face is shown to YuNet, which scores faces of 24 to 350 px alike and smaller ones lower.
_SHOWN_PX: Final = 24
_NMS_IOU: Final = 0.3  # OpenCV's own, like the next
_MOST_CANDIDATES: Final = 5000
_TRIED_SIZES: Final = ((64, 32), (32, 96))


@dataclass(frozen=True)
class YuNetDetector:
    """`cv2.FaceDetectorYN` with a model file of OpenCV's zoo, `face_detection_yunet_2023mar.onnx` or later.

    `model`: that file. It is read on construction and travels with the detector (about 230 kB), so that a worker on
    another host needs no path. `min_score`: least score, 0..1; YuNet's run lower than MTCNN's.
    `min_face_px`: the smallest face looked for, `frame` px, and the knob on speed. YuNet knows no such setting and one
    scale only, so each frame is shrunk by 24 / min_face_px, and never enlarged. What is found then are faces of
    `min_face_px` to about 15 times that, up to twice as large ones with falling scores: for close-ups in 4K, raise it.
    Faces are not sorted out by it; `FaceFilter` does that.

    Deterministic on one machine, whatever came before. Picklable: the network stays behind, and is built anew where it
    is used. Not thread-safe. It runs on the CPU, with as many threads as OpenCV may take.
    Raises `UsageError` on a file that OpenCV cannot run as YuNet, and on settings that cannot be meant.
    """

    model: str | Path
    _: KW_ONLY
    min_face_px: int = 40
    min_score: float = 0.7
    onnx: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.min_face_px < MIN_FACE_PX:
            rule = f"must be at least {MIN_FACE_PX} px; YuNet finds no smaller faces"
            raise UsageError(f"min_face_px={self.min_face_px}: {rule}; try 40")
        if not 0 <= self.min_score <= 1:
            raise UsageError(f"min_score={self.min_score}: must lie in 0..1; try 0.7")
        object.__setattr__(self, "onnx", _read(Path(self.model)))
        self.load()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_network"}

    def load(self) -> YuNetDetector:
        """Build the network and try it, so that a file that is no YuNet fails before any work is done."""
        with _silent_opencv():
            try:
                for width, height in _TRIED_SIZES:
                    self._candidates(np.zeros((height, width, 3), np.uint8))
            except cv2.error as error:
                raise UsageError(
                    f"{self.model}: OpenCV {cv2.__version__} cannot run it as YuNet; use a file "
                    "face_detection_yunet_*.onnx of 2023mar or later from OpenCV's model zoo (opencv_zoo)"
                ) from error
        return self

    @cached_property
    def _network(self) -> Any:
        onnx, no_config = np.frombuffer(self.onnx, np.uint8), np.empty(0, np.uint8)
        with _silent_opencv():
            return cv2.FaceDetectorYN.create(
                "onnx", onnx, no_config, _TRIED_SIZES[0], self.min_score, _NMS_IOU, _MOST_CANDIDATES
            )

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the file's bytes and the settings, behind OpenCV's version; the file's name does not count.

        OpenCV's releases run networks by different engines, so an OUT stays with the one it was begun with. That of
        the driver counts: give the workers of a cluster the same.
        """
        settings = f"min_face_px={self.min_face_px} min_score={float(self.min_score)}"
        digest = hashlib.sha256(hashlib.sha256(self.onnx).digest() + settings.encode())
        return f"yunet-{cv2.__version__}-{digest.hexdigest()[:16]}"

    @property
    def frames_at_once(self) -> int:
        """One: OpenCV takes them one by one."""
        return 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        """Find the faces of upright RGB frames, each (H, W, 3) uint8; boxes and points in `frame` px."""
        return [self._faces(rgb) for rgb in frames]

    def _faces(self, rgb: NDArray[np.uint8]) -> Faces:
        height, width = rgb.shape[:2]
        shrunk = min(1.0, _SHOWN_PX / self.min_face_px)
        size = max(1, round(width * shrunk)), max(1, round(height * shrunk))
        small = cv2.resize(np.ascontiguousarray(rgb), size, interpolation=cv2.INTER_AREA)
        found = self._candidates(np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), np.uint8))
        return _as_faces(found, np.array([width / size[0], height / size[1]], np.float32))

    def _candidates(self, bgr: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Rows (N, 15) float32 as OpenCV gives them: x, y, width, height, five points, score."""
        self._network.setInputSize((bgr.shape[1], bgr.shape[0]))
        _, found = self._network.detect(bgr)
        return np.empty((0, 15), np.float32) if found is None else np.asarray(found, np.float32)


def _as_faces(found: NDArray[np.float32], px: NDArray[np.float32]) -> Faces:
    """`found`: (N, 15) of the shrunk frame, one pixel of which is `px` (2,) of the frame's, across and down."""
    with np.errstate(over="ignore", invalid="ignore"):  # sizes are exponentials; what overflows is no face
        boxes = np.hstack([found[:, :2] * px, (found[:, :2] + found[:, 2:4]) * px])
        # "Right eye" is the person's right one, which the viewer sees on the left: the order is that of `Faces`.
        landmarks = found[:, 4:14].reshape(-1, 5, 2) * px
    sound = np.isfinite(boxes).all(axis=1) & np.isfinite(landmarks).all(axis=(1, 2)) & np.isfinite(found[:, 14])
    faces = Faces(boxes[sound], found[sound, 14].clip(0, 1), landmarks[sound])
    return faces.select(np.argsort(-faces.scores, kind="stable"))  # OpenCV's documentation promises no order


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}; name YuNet's model file, as face_detection_yunet_2023mar.onnx of OpenCV's "
            "model zoo (opencv_zoo)"
        ) from error


@contextmanager
def _silent_opencv() -> Iterator[None]:
    """OpenCV tells on standard error what it then raises, and that it leaves settings aside that nobody made."""
    logging: Any = getattr(cv2.utils, "logging", cv2)  # OpenCV 4 has the two functions at the top
    before = logging.getLogLevel()
    logging.setLogLevel(0)
    try:
        yield
    finally:
        logging.setLogLevel(before)
