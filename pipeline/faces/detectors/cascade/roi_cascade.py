"""The MTCNN cascade in regions of interest (ROIs) only.

It uses the same pyramid levels as the full search, pixel for pixel, so a face near a ROI is detected as by that search,
with two exceptions: levels where the face is much larger or smaller than PNet's window are skipped, and only the best
few candidates per ROI are kept.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .boxes import apply_pnet_offsets, cell_boxes, to_squares
from .pyramid import WINDOW_PX, pyramid_scales
from .rois import Rois, RoiSearch, Tiles, tiles_for
from .stages import (
    PNET_SCORE,
    Detections,
    WindowBatch,
    face_scores,
    level_sizes,
    no_detections,
    run_onet,
    run_rnet,
    suppress_nested,
    windows_of,
)
from .suppression import grouped_nms

Array = NDArray[Any]

_SINGLE_CANDIDATE_SCORE: Final = 0.98
"""A ROI whose best candidate scores above this needs no others."""
_MIN_REQUIRED_SCORE: Final = 0.9
"""A required ROI without a face of this score is searched again, thoroughly."""
_QUICK_SEARCH: Final = RoiSearch(24, 0.7 * WINDOW_PX, 1.4 * WINDOW_PX, 6, 3)
"""The two levels on which PNet is most likely to detect the face."""
_THOROUGH_SEARCH: Final = RoiSearch(32, 0.5 * WINDOW_PX, 2 * WINDOW_PX, 10, 5)


class RoiBatch(WindowBatch, Protocol):
    """A batch that PNet searches in tiles."""

    def pnet_on_tiles(self, tiles: Tiles) -> Array:
        """Run PNet on tiles; return its cells (T, rows, columns, 6): 2 logits, 4 offsets."""
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
    return suppress_nested(batch.count, frame_indices, arrays)


def _run_stages(batch: RoiBatch, rois: Rois, min_face_px: int, search: RoiSearch) -> list[Array]:
    """Run the cascade; return ROI indices (N,), boxes (N, 4), scores (N,) and landmarks (N, 5, 2)."""
    roi_indices, boxes = _run_rnet(batch, rois, *_run_pnet(batch, rois, min_face_px, search), search)
    if not len(roi_indices):
        return [np.empty(0, np.int64), *no_detections()]
    # The best candidate per ROI first, the others only if its score is low: ONet takes most of the time.
    rank = _rank_in_group(roi_indices)
    detections = _run_onet(batch, rois, roi_indices[rank == 0], boxes[rank == 0])
    needs_more = np.ones(len(rois), bool)
    found_rois, found_boxes, found_scores, _ = detections
    is_near = rois.are_near(found_rois, found_boxes)
    needs_more[found_rois[(found_scores > _SINGLE_CANDIDATE_SCORE) & is_near]] = False
    remaining = (rank > 0) & needs_more[roi_indices]
    if remaining.any():
        added = _run_onet(batch, rois, roi_indices[remaining], boxes[remaining])
        detections = [np.concatenate(array) for array in zip(detections, added, strict=True)]
    return detections


def _run_rnet(batch: RoiBatch, rois: Rois, roi_indices: Array, boxes: Array, search: RoiSearch) -> tuple[Array, Array]:
    """Return the best candidates per ROI that pass RNet: ROI indices, and square boxes by descending score."""
    frame_indices = rois.frame_indices[roi_indices]
    passed, boxes, scores = run_rnet(batch, frame_indices, boxes)
    roi_indices = _nearest_rois(rois, frame_indices[passed], boxes)
    keep = _top_per_group(roi_indices, scores, search.max_refined)
    inside, _ = windows_of(batch, boxes[keep])
    return roi_indices[keep[inside]], boxes[keep[inside]]


def _run_onet(batch: RoiBatch, rois: Rois, roi_indices: Array, boxes: Array) -> list[Array]:
    """Return ROI indices, boxes, scores and landmarks of the candidates that pass ONet."""
    passed, *detections = run_onet(batch, rois.frame_indices[roi_indices], boxes)
    return [roi_indices[passed], *detections]


def _run_pnet(batch: RoiBatch, rois: Rois, min_face_px: int, search: RoiSearch) -> tuple[Array, Array]:
    """Return PNet's best candidates per ROI: ROI indices (C,) and square boxes (C, 4)."""
    levels = pyramid_scales(batch.height, batch.width, min_face_px)
    tiles = tiles_for(rois, levels, level_sizes(batch.height, batch.width, levels), search)
    cells = batch.pnet_on_tiles(tiles)
    scores = face_scores(cells)
    tile, row, column = np.nonzero(scores >= PNET_SCORE)
    rows, columns = (array[tile, 0] // 2 for array in (tiles.rows, tiles.columns))
    rows, columns = rows + row, columns + column
    is_inside = (np.stack([rows, columns], 1) < tiles.cell_counts[tile]).all(axis=1)
    tile, row, column, rows, columns = (array[is_inside] for array in (tile, row, column, rows, columns))
    level = tiles.levels[tile]
    boxes = cell_boxes(rows, columns, np.array(levels, np.float32)[level])
    scores, offsets = scores[tile, row, column], cells[tile, row, column, 2:]
    frame_indices = tiles.frame_indices[tile]
    keep = grouped_nms(boxes, scores, frame_indices * len(levels) + level, 0.5)
    keep = keep[grouped_nms(boxes[keep], scores[keep], frame_indices[keep], 0.7)]
    boxes = to_squares(apply_pnet_offsets(boxes[keep], offsets[keep]))
    roi_indices = _nearest_rois(rois, frame_indices[keep], boxes)
    keep = _top_per_group(roi_indices, scores[keep], search.max_proposals)
    return roi_indices[keep], boxes[keep]


def _nearest_rois(rois: Rois, frame_indices: Array, boxes: Array) -> Array:
    """Return the index of the ROI nearest to each box (C, 4) in the same frame: (C,)."""
    centres, roi_centres = boxes[:, :2] + boxes[:, 2:], rois.boxes[:, :2] + rois.boxes[:, 2:]
    nearest = np.empty(len(boxes), np.int64)
    for frame_index in set(frame_indices.tolist()):
        box_indices = np.flatnonzero(frame_indices == frame_index)
        candidates = np.flatnonzero(rois.frame_indices == frame_index)
        offsets = centres[box_indices, None] - roi_centres[candidates]
        closest = (offsets * offsets).sum(-1).argmin(1) if len(candidates) > 1 else 0
        nearest[box_indices] = candidates[closest]
    return nearest


def _top_per_group(groups: Array, scores: Array, count: int) -> Array:
    """Return the indices of the `count` highest scores in each of `groups` (M,), by group, then descending score."""
    order = np.argsort(-scores, kind="stable")
    order = order[groups[order].argsort(kind="stable")]
    return order[_rank_in_group(groups[order]) < count]


def _rank_in_group(groups: Array) -> Array:
    """Return the position of each element within its group, for sorted groups (M,)."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)
