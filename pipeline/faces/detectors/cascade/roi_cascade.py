"""The MTCNN cascade in regions of interest (ROIs) only.

It uses the same pyramid levels as the full search, pixel for pixel, so a face near a ROI is detected as by that search,
with two exceptions: levels where the face is much larger or smaller than PNet's window are skipped, and only the best
few candidates per ROI are kept.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .boxes import (
    apply_offsets,
    apply_pnet_offsets,
    cell_boxes,
    clip_to_frame,
    grouped_nms,
    points_in_frame,
    to_squares,
)
from .pyramid import WINDOW_PX, pyramid_scales
from .rois import Rois, RoiSearch, Tiles, tiles_for
from .stages import ONET_SCORE, PNET_SCORE, RNET_SCORE, Detections, level_sizes, no_detections, suppress_nested

Tensor = torch.Tensor

_SINGLE_CANDIDATE_SCORE: Final = 0.98
"""A ROI whose best candidate scores above this needs no others."""
_MIN_REQUIRED_SCORE: Final = 0.9
"""A required ROI without a face of this score is searched again, thoroughly."""
_QUICK_SEARCH: Final = RoiSearch(24, 0.7 * WINDOW_PX, 1.4 * WINDOW_PX, 6, 3)
"""The two levels on which PNet is most likely to detect the face."""
_THOROUGH_SEARCH: Final = RoiSearch(32, 0.5 * WINDOW_PX, 2 * WINDOW_PX, 10, 5)


class RoiBatch(Protocol):
    """`count` frames of one size, and the three networks to run on parts of them; all tensors are on the CPU."""

    count: int
    height: int
    width: int

    def pnet_on_tiles(self, tiles: Tiles) -> Tensor:
        """Run PNet on tiles; return its cells (T, rows, columns, 6): 2 logits, 4 offsets."""
        ...

    def rnet(self, frame_indices: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """Run RNet on non-empty windows (M, 4) int64 of frames (M,); return scores (M,) and offsets (M, 4)."""
        ...

    def onet(self, frame_indices: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Run ONet likewise; return scores (M,), offsets (M, 4) and points (M, 10)."""
        ...


def detect_in_rois(batch: RoiBatch, rois: Rois, min_face_px: int) -> list[Detections]:
    """Return the faces near the ROIs of each frame."""
    roi_indices, *detections = _run_stages(batch, rois, min_face_px, _QUICK_SEARCH)
    best = np.zeros(len(rois))
    is_near = rois.are_near(roi_indices, detections[0])
    np.maximum.at(best, roi_indices[is_near], detections[1][is_near])
    missed = np.flatnonzero(rois.is_required & (best < _MIN_REQUIRED_SCORE))
    retried, *added = _run_stages(batch, rois[missed], min_face_px, _THOROUGH_SEARCH)
    frame_indices = rois.frame_indices[np.concatenate([roi_indices, missed[retried]])]
    arrays = [np.concatenate(array) for array in zip(detections, added, strict=True)]
    return [
        suppress_nested(*(array[frame_indices == frame_index] for array in arrays))
        for frame_index in range(batch.count)
    ]


def _run_stages(batch: RoiBatch, rois: Rois, min_face_px: int, search: RoiSearch) -> list[NDArray[Any]]:
    """Run the cascade; return ROI indices (N,), boxes (N, 4), scores (N,) and landmarks (N, 5, 2)."""
    roi_indices, boxes, windows = _run_rnet(batch, rois, *_run_pnet(batch, rois, min_face_px, search), search)
    if not len(roi_indices):
        return [np.empty(0, np.int64), *no_detections()]
    # The best candidate per ROI first, the others only if its score is low: ONet takes most of the time.
    rank = _rank_in_group(roi_indices)
    detections = _run_onet(batch, rois, roi_indices[rank == 0], boxes[rank == 0], windows[rank == 0])
    needs_more = torch.ones(len(rois), dtype=torch.bool)
    found_rois, found_boxes, found_scores, _ = detections
    is_near = torch.from_numpy(rois.are_near(found_rois.numpy(), found_boxes.numpy()))
    needs_more[found_rois[(found_scores > _SINGLE_CANDIDATE_SCORE) & is_near]] = False
    remaining = (rank > 0) & needs_more[roi_indices]
    if bool(remaining.any()):
        added = _run_onet(batch, rois, roi_indices[remaining], boxes[remaining], windows[remaining])
        detections = [torch.cat(array) for array in zip(detections, added, strict=True)]
    return [array.numpy() for array in detections]


def _run_rnet(
    batch: RoiBatch, rois: Rois, roi_indices: Tensor, boxes: Tensor, search: RoiSearch
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best candidates per ROI that pass RNet, as square boxes by descending score, and their windows."""
    roi_indices, boxes, windows = _clip_candidates(batch, roi_indices, boxes)
    if not len(roi_indices):
        return roi_indices, boxes, windows
    frame_indices = torch.from_numpy(rois.frame_indices)[roi_indices]
    scores, offsets = batch.rnet(frame_indices, windows)
    passed = (scores > RNET_SCORE).nonzero()[:, 0]
    passed = passed[grouped_nms(boxes[passed], scores[passed], frame_indices[passed], 0.7)]
    boxes = to_squares(apply_offsets(boxes[passed], offsets[passed]))
    roi_indices = _nearest_rois(rois, frame_indices[passed], boxes)
    keep = _top_per_group(roi_indices, scores[passed], search.max_refined)
    return _clip_candidates(batch, roi_indices[keep], boxes[keep])


def _run_onet(batch: RoiBatch, rois: Rois, roi_indices: Tensor, boxes: Tensor, windows: Tensor) -> list[Tensor]:
    """Return ROI indices, boxes, scores and landmarks of the candidates that pass ONet."""
    scores, offsets, points = batch.onet(torch.from_numpy(rois.frame_indices)[roi_indices], windows)
    passed = (scores > ONET_SCORE).nonzero()[:, 0]
    landmarks = points_in_frame(boxes[passed], points[passed])
    return [roi_indices[passed], apply_offsets(boxes[passed], offsets[passed]), scores[passed], landmarks]


def _run_pnet(batch: RoiBatch, rois: Rois, min_face_px: int, search: RoiSearch) -> tuple[Tensor, Tensor]:
    """Return PNet's best candidates per ROI: ROI indices (C,) and square boxes (C, 4)."""
    levels = pyramid_scales(batch.height, batch.width, min_face_px)
    tiles = tiles_for(rois, levels, level_sizes(batch.height, batch.width, levels), search)
    cells = batch.pnet_on_tiles(tiles)
    scores = cells[..., :2].softmax(-1)[..., 1]
    tile, row, column = (scores >= PNET_SCORE).nonzero(as_tuple=True)
    rows, columns = (torch.from_numpy(array[:, 0])[tile] // 2 for array in (tiles.rows, tiles.columns))
    rows, columns = rows + row, columns + column
    is_inside = (torch.stack([rows, columns], 1) < torch.from_numpy(tiles.cell_counts)[tile]).all(1)
    tile, row, column, rows, columns = (array[is_inside] for array in (tile, row, column, rows, columns))
    level = torch.from_numpy(tiles.levels)[tile]
    boxes = cell_boxes(rows, columns, torch.tensor(levels)[level])
    scores, offsets = scores[tile, row, column], cells[tile, row, column, 2:]
    frame_indices = torch.from_numpy(tiles.frame_indices)[tile]
    keep = grouped_nms(boxes, scores, frame_indices * len(levels) + level, 0.5)
    keep = keep[grouped_nms(boxes[keep], scores[keep], frame_indices[keep], 0.7)]
    boxes = to_squares(apply_pnet_offsets(boxes[keep], offsets[keep]))
    roi_indices = _nearest_rois(rois, frame_indices[keep], boxes)
    keep = _top_per_group(roi_indices, scores[keep], search.max_proposals)
    return roi_indices[keep], boxes[keep]


def _clip_candidates(batch: RoiBatch, roi_indices: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the candidates that overlap their frame, and their windows in it."""
    windows = clip_to_frame(boxes, torch.tensor([batch.width, batch.height]))
    is_inside = (windows[:, 2:] > windows[:, :2]).all(1)
    return roi_indices[is_inside], boxes[is_inside], windows[is_inside]


def _nearest_rois(rois: Rois, frame_indices: Tensor, boxes: Tensor) -> Tensor:
    """Return the index of the ROI nearest to each box (C, 4) in the same frame: (C,)."""
    box_frames, centres = frame_indices.numpy(), (boxes[:, :2] + boxes[:, 2:]).numpy()
    roi_centres, nearest = rois.boxes[:, :2] + rois.boxes[:, 2:], np.empty(len(box_frames), np.int64)
    for frame_index in set(box_frames.tolist()):
        box_indices = np.flatnonzero(box_frames == frame_index)
        candidates = np.flatnonzero(rois.frame_indices == frame_index)
        offsets = centres[box_indices, None] - roi_centres[candidates]
        closest = (offsets * offsets).sum(-1).argmin(1) if len(candidates) > 1 else 0
        nearest[box_indices] = candidates[closest]
    return torch.from_numpy(nearest)


def _top_per_group(groups: Tensor, scores: Tensor, count: int) -> Tensor:
    """Return the indices of the `count` highest scores in each of `groups` (M,), by group, then descending score."""
    order = scores.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    return order[_rank_in_group(groups[order]) < count]


def _rank_in_group(groups: Tensor) -> Tensor:
    """Return the position of each element within its group, for sorted groups (M,)."""
    return torch.arange(len(groups)) - torch.searchsorted(groups, groups)
