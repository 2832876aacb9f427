"""facenet-pytorch's MTCNN, frame by frame and in batches, and facefeed's, behind one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch
from facefeed.pipeline.faces import FaceDetector, Faces
from facefeed.pipeline.faces.detectors.keyframe_detector import TrackingDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from facefeed.pipeline.rows.frame_batches import MAX_BATCH_PIXELS
from facenet_pytorch import MTCNN
from numpy.typing import NDArray

Frames = Sequence[NDArray[np.uint8]]

BATCHES = (1, 4, 8, 16)
NAMES = ("facenet", "facenet_batch", "ours")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """`run` takes frames, `at_once` of them at a time, and gives for each whatever it gives.

    `faces` makes `Faces` of that, off the clock, so that no engine pays for the comparison.
    """

    run: Callable[[Frames], list[Any]]
    at_once: int
    faces: Callable[[Any], Faces]
    warm_up_rounds: int = 1

    def warm_up(self, frames: Frames) -> None:
        """What is done once, before any frame is timed: ours compiles for a frame's size what it has met often."""
        first = list(frames[: self.at_once])
        self.run(first * self.warm_up_rounds)

    def timed(self, frames: Frames) -> tuple[float, list[Faces]]:
        """Seconds for all frames, which lie in memory already, until the results do too; and the results."""
        started = time.perf_counter()
        results = self.run(frames)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        return seconds, [self.faces(result) for result in results]


def use_threads(count: int) -> None:
    """So many threads for everything that comes; to be called before an engine is made."""
    torch.set_num_threads(count)
    cv2.setNumThreads(count)


def make_engine(name: str, *, min_face_px: int, device: str, batch: int = 1) -> Engine:
    """One of `NAMES`, or "track", its weights loaded; `batch` is for facenet_batch alone."""
    if name == "ours":
        detector = MTCNNDetector(min_face_px=min_face_px, device=device).load()
        return Engine(
            run=_ours(detector), at_once=detector.frames_at_once, faces=lambda faces: faces, warm_up_rounds=40
        )
    if name == "track":
        following = TrackingDetector(min_face_px=min_face_px, device=device).load()
        return Engine(
            run=_ours(following), at_once=following.frames_at_once, faces=lambda faces: faces, warm_up_rounds=12
        )
    mtcnn = MTCNN(keep_all=True, min_face_size=min_face_px, select_largest=False, device=torch.device(device)).eval()
    if name == "facenet":
        return Engine(run=_frame_by_frame(mtcnn), at_once=1, faces=_as_faces)
    return Engine(run=_in_batches(mtcnn, batch), at_once=batch, faces=_as_faces)


def best_batch(frames: Frames, *, min_face_px: int, device: str) -> tuple[int, dict[int, float]]:
    """The fastest of `BATCHES` on the first frames of a clip, and the seconds of each that fits into memory."""
    first = frames[: max(BATCHES)]
    seconds: dict[int, float] = {}
    for batch in (size for size in BATCHES if size <= len(first)):
        engine = make_engine("facenet_batch", min_face_px=min_face_px, device=device, batch=batch)
        try:
            engine.warm_up(first)
            seconds[batch] = engine.timed(first)[0]
        except torch.OutOfMemoryError:
            break
    return min(seconds, key=seconds.__getitem__), seconds


def _ours(detector: FaceDetector) -> Callable[[Frames], list[Any]]:
    def run(frames: Frames) -> list[Any]:
        """As the job calls it: as many frames at a time as it likes, and the job holds."""
        step = max(1, min(detector.frames_at_once, 3 * MAX_BATCH_PIXELS // max(rgb.size for rgb in frames)))
        return [faces for at in range(0, len(frames), step) for faces in detector.detect(frames[at : at + step])]

    return run


def _frame_by_frame(mtcnn: Any) -> Callable[[Frames], list[Any]]:
    return lambda frames: [mtcnn.detect(rgb, landmarks=True) for rgb in frames]


def _in_batches(mtcnn: Any, batch: int) -> Callable[[Frames], list[Any]]:
    def run(frames: Frames) -> list[Any]:
        steps = range(0, len(frames), batch)
        batches = (mtcnn.detect(np.stack(frames[at : at + batch]), landmarks=True) for at in steps)
        return [face for boxes, scores, points in batches for face in zip(boxes, scores, points, strict=True)]

    return run


def _as_faces(result: tuple[Any, Any, Any]) -> Faces:
    if result[0] is None:
        return Faces.empty()
    boxes, scores, landmarks = (np.asarray(part, np.float32) for part in result)
    # A box that its regression turned inside out is no box: `Faces` holds none, whoever found it.
    sound = np.flatnonzero((boxes[:, :2] <= boxes[:, 2:]).all(axis=1))
    return Faces(boxes[sound], scores[sound].clip(0, 1), landmarks[sound])
