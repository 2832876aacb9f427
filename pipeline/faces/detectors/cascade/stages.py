"""The MTCNN cascade on whole frames: image pyramid -> PNet -> RNet -> ONet -> detections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .boxes import apply_offsets, apply_pnet_offsets, cell_boxes, clip_to_frame, points_in_frame, to_squares
from .pyramid import pyramid_scales
from .suppression import grouped_nms, nested_nms

Array = NDArray[Any]

PNET_SCORE: Final = 0.6
"""Minimum score of PNet's cells; all thresholds here are facenet-pytorch's."""
RNET_SCORE: Final = 0.7
ONET_SCORE: Final = 0.7


@dataclass(frozen=True, slots=True)
class PNetCells:
    """PNet's M output cells that score at least `PNET_SCORE`, sorted by level, then row.

    `frame_indices`, `levels`, `rows`, `columns` (M,) int64; `scores` (M,) and `offsets` (M, 4) float32.
    """

    frame_indices: Array
    levels: Array
    rows: Array
    columns: Array
    scores: Array
    offsets: Array


class WindowBatch(Protocol):
    """`count` frames of one size, and the last two networks to run on windows of them; arrays are the host's."""

    count: int
    height: int
    width: int

    def rnet(self, frame_indices: Array, windows: Array) -> tuple[Array, Array]:
        """Run RNet on non-empty windows (M, 4) int64 of frames (M,); return scores (M,) and offsets (M, 4)."""
        ...

    def onet(self, frame_indices: Array, windows: Array) -> tuple[Array, Array, Array]:
        """Run ONet likewise; return scores (M,), offsets (M, 4) and points (M, 10)."""
        ...


class FrameBatch(WindowBatch, Protocol):
    """A batch that PNet searches completely."""

    def pnet(self, sizes: list[tuple[int, int]]) -> PNetCells:
        """Run PNet on all frames at each (height, width) of `sizes`; return the cells that pass `PNET_SCORE`."""
        ...


Detections = tuple[Array, Array, Array]
"""Of one frame: boxes (N, 4), scores (N,), landmarks (N, 5, 2), float32, as facenet's `MTCNN.detect` returns them."""


def run_cascade(batch: FrameBatch, min_face_px: int) -> list[Detections]:
    """Return the faces of each frame, in the order of facenet's last non-maximum suppression."""
    frame_indices, boxes = _run_pnet(batch, min_face_px)
    passed, boxes, _ = run_rnet(batch, frame_indices, boxes)
    frame_indices = frame_indices[passed]
    passed, *detections = run_onet(batch, frame_indices, boxes)
    return suppress_nested(batch.count, frame_indices[passed], detections)


def _run_pnet(batch: FrameBatch, min_face_px: int) -> tuple[Array, Array]:
    """Return PNet's candidates of all levels: frame indices (M,) and square boxes (M, 4)."""
    levels = pyramid_scales(batch.height, batch.width, min_face_px)
    cells = batch.pnet(level_sizes(batch.height, batch.width, levels))
    boxes = cell_boxes(cells.rows, cells.columns, np.array(levels, np.float32)[cells.levels])
    keep = grouped_nms(boxes, cells.scores, cells.frame_indices * len(levels) + cells.levels, 0.5)
    keep = keep[cells.levels[keep].argsort(kind="stable")]  # facenet's order, which decides between equal scores
    keep = keep[grouped_nms(boxes[keep], cells.scores[keep], cells.frame_indices[keep], 0.7)]
    return cells.frame_indices[keep], to_squares(apply_pnet_offsets(boxes[keep], cells.offsets[keep]))


def level_sizes(height: int, width: int, levels: list[float]) -> list[tuple[int, int]]:
    """Return height and width of each level of a frame's pyramid."""
    return [(int(height * scale + 1), int(width * scale + 1)) for scale in levels]


def run_rnet(batch: WindowBatch, frame_indices: Array, boxes: Array) -> tuple[Array, Array, Array]:
    """Return which of the candidates (M,) pass RNet, their square boxes (N, 4) and scores (N,), best first."""
    inside, windows = windows_of(batch, boxes)
    if not len(inside):
        return inside, boxes[inside], np.empty(0, np.float32)
    scores, offsets = batch.rnet(frame_indices[inside], windows)
    passed = np.flatnonzero(scores > RNET_SCORE)
    passed = passed[grouped_nms(boxes[inside[passed]], scores[passed], frame_indices[inside[passed]], 0.7)]
    return inside[passed], to_squares(apply_offsets(boxes[inside[passed]], offsets[passed])), scores[passed]


def run_onet(batch: WindowBatch, frame_indices: Array, boxes: Array) -> tuple[Array, Array, Array, Array]:
    """Return which of the candidates (M,) pass ONet, their boxes (N, 4), scores (N,) and landmarks (N, 5, 2)."""
    inside, windows = windows_of(batch, boxes)
    if not len(inside):
        return inside, *no_detections()
    scores, offsets, points = batch.onet(frame_indices[inside], windows)
    passed = np.flatnonzero(scores > ONET_SCORE)
    boxes = boxes[inside[passed]]
    landmarks = points_in_frame(boxes, points[passed])
    return inside[passed], apply_offsets(boxes, offsets[passed]), scores[passed], landmarks


def windows_of(batch: WindowBatch, boxes: Array) -> tuple[Array, Array]:
    """Return which boxes (M, 4) overlap their frame, and their windows in it (N, 4); facenet fails at the others."""
    windows = clip_to_frame(boxes, batch.width, batch.height)
    inside = np.flatnonzero((windows[:, 2:] > windows[:, :2]).all(axis=1))
    return inside, windows[inside]


def suppress_nested(num_frames: int, frame_indices: Array, detections: Sequence[Array]) -> list[Detections]:
    """Return the detections of each frame after facenet's last suppression: of nested boxes, the best-scoring is kept.

    `detections`: boxes, scores and landmarks of all frames.
    """
    by_frame = []
    for frame_index in range(num_frames):
        boxes, scores, landmarks = (array[frame_indices == frame_index] for array in detections)
        keep = nested_nms(boxes, scores, 0.7) if len(boxes) > 1 else slice(None)
        by_frame.append((boxes[keep], scores[keep], landmarks[keep]))
    return by_frame


def face_scores(logits: Array) -> Array:
    """Return the face probability (...,) of logits (..., 2 or more): their softmax, in float32.

    The exponential is computed in float64: NumPy's in float32 is less accurate than torch's.
    """
    odds_against = np.exp(np.minimum(logits[..., 0] - logits[..., 1], 64), dtype=np.float64).astype(np.float32)
    scores: Array = 1 / (1 + odds_against)
    return scores


def no_detections() -> Detections:
    """Return zero detections."""
    return np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty((0, 5, 2), np.float32)
