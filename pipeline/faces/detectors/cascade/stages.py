"""The MTCNN cascade on whole frames: image pyramid -> PNet -> RNet -> ONet -> detections."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class _Candidates:
    frame_indices: Array
    boxes: Array

    def __getitem__(self, index: Array) -> _Candidates:
        return _Candidates(self.frame_indices[index], self.boxes[index])


Detections = tuple[Array, Array, Array]
"""Of one frame: boxes (N, 4), scores (N,), landmarks (N, 5, 2), float32, as facenet's `MTCNN.detect` returns them."""


def run_cascade(batch: FrameBatch, min_face_px: int) -> list[Detections]:
    """Return the faces of each frame, in the order of facenet's last non-maximum suppression."""
    candidates = _run_pnet(batch, min_face_px)
    if candidates is not None:
        candidates = _run_rnet(batch, candidates)
    if candidates is None or not len(candidates.boxes):
        return [no_detections() for _ in range(batch.count)]
    return _run_onet(batch, candidates)


def _run_pnet(batch: FrameBatch, min_face_px: int) -> _Candidates | None:
    """Return PNet's candidates of all levels as square boxes."""
    levels = pyramid_scales(batch.height, batch.width, min_face_px)
    cells = batch.pnet(level_sizes(batch.height, batch.width, levels))
    if not len(cells.scores):
        return None
    boxes = cell_boxes(cells.rows, cells.columns, np.array(levels, np.float32)[cells.levels])
    keep = grouped_nms(boxes, cells.scores, cells.frame_indices * len(levels) + cells.levels, 0.5)
    keep = keep[cells.levels[keep].argsort(kind="stable")]  # facenet's order, which decides between equal scores
    keep = keep[grouped_nms(boxes[keep], cells.scores[keep], cells.frame_indices[keep], 0.7)]
    return _Candidates(cells.frame_indices[keep], to_squares(apply_pnet_offsets(boxes[keep], cells.offsets[keep])))


def level_sizes(height: int, width: int, levels: list[float]) -> list[tuple[int, int]]:
    """Return height and width of each level of a frame's pyramid."""
    return [(int(height * scale + 1), int(width * scale + 1)) for scale in levels]


def _run_rnet(batch: FrameBatch, candidates: _Candidates) -> _Candidates | None:
    """Return the candidates that pass RNet, as square boxes."""
    candidates, windows = _clip_candidates(batch, candidates)
    if not len(windows):
        return None
    scores, offsets = batch.rnet(candidates.frame_indices, windows)
    passed = np.flatnonzero(scores > RNET_SCORE)
    passed = passed[grouped_nms(candidates.boxes[passed], scores[passed], candidates.frame_indices[passed], 0.7)]
    survivors = candidates[passed]
    return _Candidates(survivors.frame_indices, to_squares(apply_offsets(survivors.boxes, offsets[passed])))


def _run_onet(batch: FrameBatch, candidates: _Candidates) -> list[Detections]:
    """Return the candidates that pass ONet, per frame."""
    candidates, windows = _clip_candidates(batch, candidates)
    if not len(windows):
        return [no_detections() for _ in range(batch.count)]
    scores, offsets, points = batch.onet(candidates.frame_indices, windows)
    passed = np.flatnonzero(scores > ONET_SCORE)
    survivors = candidates[passed]
    landmarks = points_in_frame(survivors.boxes, points[passed])
    arrays = apply_offsets(survivors.boxes, offsets[passed]), scores[passed], landmarks
    return [
        suppress_nested(*(array[survivors.frame_indices == frame_index] for array in arrays))
        for frame_index in range(batch.count)
    ]


def _clip_candidates(batch: FrameBatch, candidates: _Candidates) -> tuple[_Candidates, Array]:
    """Return the candidates that overlap their frame, and their windows in it; facenet fails at the others."""
    windows = clip_to_frame(candidates.boxes, batch.width, batch.height)
    is_inside = np.all(windows[:, 2:] > windows[:, :2], axis=1)
    return candidates[is_inside], windows[is_inside]


def suppress_nested(boxes: Array, scores: Array, landmarks: Array) -> Detections:
    """Apply facenet's last non-maximum suppression to one frame: of nested boxes, the best-scoring is kept."""
    if len(boxes) < 2:
        return boxes, scores, landmarks
    keep = nested_nms(boxes, scores, 0.7)
    return boxes[keep], scores[keep], landmarks[keep]


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
