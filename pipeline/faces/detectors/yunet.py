"""YuNet detector (Wu, Peng and Yu 2023, "YuNet: A Tiny Millisecond-level Face Detector"), run by OpenCV."""

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
"""Smallest face that YuNet detects: it was trained on about 10 to 300 px, by its model card (opencv_zoo)."""

# Size of the smallest face in YuNet's input: it scores faces of 24 to 350 px alike and smaller ones lower.
_INPUT_FACE_PX: Final = 24
_NMS_IOU: Final = 0.3  # OpenCV's default, like the next
_MAX_CANDIDATES: Final = 5000
_TRIAL_SIZES: Final = ((64, 32), (32, 96))


@dataclass(frozen=True)
class YuNetDetector:
    """`cv2.FaceDetectorYN` with a model file of OpenCV's model zoo, `face_detection_yunet_2023mar.onnx` or later.

    `model`: the file. It is read on construction and pickled with the detector (about 230 kB), so that a worker on
    another host does not need it. `min_score`: minimum score, 0..1; YuNet's scores are lower than MTCNN's.
    `min_face_px`: the smallest face to detect, `frame` px; it determines the speed. YuNet works at one scale and has no
    such setting, so frames are shrunk by 24 / min_face_px and never enlarged. It then detects faces of `min_face_px` to
    about 15 times that, and up to 30 times with lower scores: raise it for close-ups in 4K. It does not remove smaller
    detections; `FaceFilter` does.

    Deterministic on one machine, whatever came before. Picklable: the network is not pickled, but built again on first
    use. Not thread-safe. It runs on the CPU with OpenCV's number of threads.
    Raises `UsageError` for a file that OpenCV cannot run as YuNet, and for invalid settings.
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
        object.__setattr__(self, "onnx", _read_model(Path(self.model)))
        self.load()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_network"}

    def load(self) -> YuNetDetector:
        """Build the network and run it once per trial size, so that a wrong file fails before any work is done."""
        with _silent_opencv():
            try:
                for width, height in _TRIAL_SIZES:
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
                "onnx", onnx, no_config, _TRIAL_SIZES[0], self.min_score, _NMS_IOU, _MAX_CANDIDATES
            )

    @property
    def fingerprint(self) -> str:
        """OpenCV's version and SHA-256 over the model file's bytes and the settings; the file's name is not included.

        OpenCV's releases run networks by different engines, so a dataset must be continued with the same release. The
        driver's version is used: install the same one on the workers of a cluster.
        """
        settings = f"min_face_px={self.min_face_px} min_score={float(self.min_score)}"
        digest = hashlib.sha256(hashlib.sha256(self.onnx).digest() + settings.encode())
        return f"yunet-{cv2.__version__}-{digest.hexdigest()[:16]}"

    @property
    def frames_at_once(self) -> int:
        """One: OpenCV processes frames one by one."""
        return 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        """Find the faces of upright RGB frames, each (H, W, 3) uint8; boxes and points in `frame` px."""
        return [self._faces(rgb) for rgb in frames]

    def _faces(self, rgb: NDArray[np.uint8]) -> Faces:
        height, width = rgb.shape[:2]
        scale = min(1.0, _INPUT_FACE_PX / self.min_face_px)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        small = cv2.resize(np.ascontiguousarray(rgb), size, interpolation=cv2.INTER_AREA)
        detections = self._candidates(np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), np.uint8))
        return _to_faces(detections, np.array([width / size[0], height / size[1]], np.float32))

    def _candidates(self, bgr: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return OpenCV's rows (N, 15) float32: x, y, width, height, five points, score."""
        self._network.setInputSize((bgr.shape[1], bgr.shape[0]))
        _, detections = self._network.detect(bgr)
        return np.empty((0, 15), np.float32) if detections is None else np.asarray(detections, np.float32)


def _to_faces(detections: NDArray[np.float32], scale_xy: NDArray[np.float32]) -> Faces:
    """Convert OpenCV's rows (N, 15) for the shrunk frame; `scale_xy` (2,) is `frame` px per px of that."""
    with np.errstate(over="ignore", invalid="ignore"):  # sizes are exponentials; those that overflow are dropped below
        boxes = np.hstack([detections[:, :2] * scale_xy, (detections[:, :2] + detections[:, 2:4]) * scale_xy])
        # "Right eye" is the person's right one, which the viewer sees on the left: the order is that of `Faces`.
        landmarks = detections[:, 4:14].reshape(-1, 5, 2) * scale_xy
    is_valid = np.isfinite(boxes).all(axis=1) & np.isfinite(landmarks).all(axis=(1, 2)) & np.isfinite(detections[:, 14])
    faces = Faces(boxes[is_valid], detections[is_valid, 14].clip(0, 1), landmarks[is_valid])
    return faces.select(np.argsort(-faces.scores, kind="stable"))  # OpenCV's documentation promises no order


def _read_model(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}; name YuNet's model file, as face_detection_yunet_2023mar.onnx of OpenCV's "
            "model zoo (opencv_zoo)"
        ) from error


@contextmanager
def _silent_opencv() -> Iterator[None]:
    """Silence OpenCV's log, which repeats raised errors and warns about settings that it ignores."""
    logging: Any = getattr(cv2.utils, "logging", cv2)  # OpenCV 4 has the two functions at the top
    previous_level = logging.getLogLevel()
    logging.setLogLevel(0)
    try:
        yield
    finally:
        logging.setLogLevel(previous_level)
