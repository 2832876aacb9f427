"""The cascade: what goes from the pyramid to PNet, from PNet to RNet, from RNet to ONet, and out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import torch
from facenet_pytorch.models.utils.detect_face import nms_numpy
from numpy.typing import NDArray

from .boxes import cell_boxes, moved, moved_by_pnet, points_in_frame, squared, suppressed, windows
from .pyramid import scales

Tensor = torch.Tensor

PNET_SCORE: Final = 0.6
"""Least score of a cell that is followed up; facenet's, as all numbers here."""
RNET_SCORE: Final = 0.7
ONET_SCORE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Cells:
    """PNet's cells that may be faces: `frames`, `levels`, `rows`, `columns` (M,) int64, level by level, row by row.

    `scores` (M,) and `offsets` (M, 4) float32.
    """

    frames: Tensor
    levels: Tensor
    rows: Tensor
    columns: Tensor
    scores: Tensor
    offsets: Tensor


class Pixels(Protocol):
    """`count` frames of one size on a device, with the networks that look at them."""

    count: int
    height: int
    width: int

    def pnet(self, sizes: list[tuple[int, int]]) -> Cells:
        """The cells of all frames, resized to each of the levels' heights and widths, that score `PNET_SCORE`."""
        ...

    def rnet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (M,) and offsets (M, 4) of windows (M, 4) int64, none of them empty, of the frames (M,) named."""
        ...

    def onet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same, and points (M, 10)."""
        ...


@dataclass(frozen=True, slots=True)
class _Candidates:
    frames: Tensor
    boxes: Tensor

    def __getitem__(self, which: Tensor) -> _Candidates:
        return _Candidates(self.frames[which], self.boxes[which])


Found = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""Of one frame: boxes (N, 4), scores (N,), landmarks (N, 5, 2), float32, as `MTCNN.detect` gives them."""


def find_faces(pixels: Pixels, min_face_px: int) -> list[Found]:
    """The faces of each frame, in the order of facenet's last suppression."""
    found = _proposed(pixels, min_face_px)
    if found is not None:
        found = _refined(pixels, found)
    if found is None or not len(found.boxes):
        return [nothing() for _ in range(pixels.count)]
    return _finished(pixels, found)


def _proposed(pixels: Pixels, min_face_px: int) -> _Candidates | None:
    """PNet: boxes from the cells of all levels, moved and squared."""
    levels = scales(pixels.height, pixels.width, min_face_px)
    cells = pixels.pnet(level_sizes(pixels.height, pixels.width, levels))
    if not len(cells.scores):
        return None
    boxes = cell_boxes(cells.rows, cells.columns, cells.scores.new_tensor(levels)[cells.levels])
    kept = suppressed(boxes, cells.scores, cells.frames * len(levels) + cells.levels, 0.5)
    kept = kept[cells.levels[kept].argsort(stable=True)]  # facenet's order, which decides between equal scores
    kept = kept[suppressed(boxes[kept], cells.scores[kept], cells.frames[kept], 0.7)]
    return _Candidates(cells.frames[kept], squared(moved_by_pnet(boxes[kept], cells.offsets[kept])))


def level_sizes(height: int, width: int, levels: list[float]) -> list[tuple[int, int]]:
    """Height and width of a frame's levels."""
    return [(int(height * scale + 1), int(width * scale + 1)) for scale in levels]


def _refined(pixels: Pixels, candidates: _Candidates) -> _Candidates | None:
    """RNet: most are none; the others are moved and squared again."""
    candidates, inside = _within(pixels, candidates)
    if not len(inside):
        return None
    scores, offsets = pixels.rnet(candidates.frames, inside)
    sure = (scores > RNET_SCORE).nonzero()[:, 0]
    sure = sure[suppressed(candidates.boxes[sure], scores[sure], candidates.frames[sure], 0.7)]
    kept = candidates[sure]
    return _Candidates(kept.frames, squared(moved(kept.boxes, offsets[sure])))


def _finished(pixels: Pixels, candidates: _Candidates) -> list[Found]:
    """ONet: the last word on boxes, with scores and points."""
    candidates, inside = _within(pixels, candidates)
    if not len(inside):
        return [nothing() for _ in range(pixels.count)]
    scores, offsets, points = pixels.onet(candidates.frames, inside)
    sure = (scores > ONET_SCORE).nonzero()[:, 0]
    kept = candidates[sure]
    landmarks = points_in_frame(kept.boxes, points[sure])
    on_device = kept.frames, moved(kept.boxes, offsets[sure]), scores[sure], landmarks
    frames, *found = (one.cpu().numpy() for one in on_device)
    of_frame = (tuple(one[frames == number] for one in found) for number in range(pixels.count))
    return [without_nested(*one) for one in of_frame]


def _within(pixels: Pixels, candidates: _Candidates) -> tuple[_Candidates, Tensor]:
    """Those that lie in the frame at all, and what of them does; facenet would stop with an error at the others."""
    inside = windows(candidates.boxes, candidates.frames.new_tensor([pixels.width, pixels.height]))
    some = (inside[:, 2:] > inside[:, :2]).all(1)
    if bool(some.all()):
        return candidates, inside
    return candidates[some], inside[some]


def without_nested(boxes: NDArray[Any], scores: NDArray[Any], landmarks: NDArray[Any]) -> Found:
    """The last suppression, of the faces of one frame, as facenet has it: of one in another, the surer stays."""
    if len(boxes) < 2:
        return boxes, scores, landmarks
    kept = nms_numpy(boxes, scores, 0.7, "Min")
    return boxes[kept], scores[kept], landmarks[kept]


def nothing() -> Found:
    """No face."""
    return np.empty((0, 4), np.float32), np.empty(0, np.float32), np.empty((0, 5, 2), np.float32)
