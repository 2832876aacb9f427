"""Regions of interest (ROIs) where faces are expected, and the tiles of the pyramid that PNet searches for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_MAX_DISTANCE_SIDES: Final = 0.6
"""Maximum distance of a face from its ROI's centre, in sides of the ROI."""


@dataclass(frozen=True, slots=True)
class Rois:
    """M regions where faces are expected.

    `frame_indices` (M,) int64: the frame of each. `boxes` (M, 4) float32: the expected boxes, xyxy, `frame` px.
    `is_required` (M,) bool: whether a face must be found there.
    """

    frame_indices: NDArray[np.int64]
    boxes: NDArray[np.float32]
    is_required: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.frame_indices)

    def __getitem__(self, index: NDArray[Any]) -> Rois:
        return Rois(self.frame_indices[index], self.boxes[index], self.is_required[index])

    def in_frames(self, first: int, end: int) -> Rois:
        """Return the ROIs of frames from `first` on and before `end`, with frame indices that begin there."""
        own = self[(self.frame_indices >= first) & (self.frame_indices < end)]
        return replace(own, frame_indices=own.frame_indices - first)

    def are_near(self, index: NDArray[Any], boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return whether each box (B, 4) is near the centre of the ROI `index` (B,), rather than a neighbour's face."""
        sides = (self.boxes[index, 2:] - self.boxes[index, :2]).max(axis=1)
        offsets = (boxes[:, :2] + boxes[:, 2:] - self.boxes[index, :2] - self.boxes[index, 2:]) / 2
        is_near: NDArray[np.bool_] = np.hypot(offsets[:, 0], offsets[:, 1]) < _MAX_DISTANCE_SIDES * sides
        return is_near


@dataclass(frozen=True, slots=True)
class RoiSearch:
    """Settings of a search in ROIs.

    `tile_px`: side of PNet's tiles. `min_face_px`, `max_face_px`: the levels searched are those where the face has this
    size, level px. `max_proposals`, `max_refined`: candidates per ROI that are kept after PNet and after RNet.
    """

    tile_px: int
    min_face_px: float
    max_face_px: float
    max_proposals: int
    max_refined: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """T tiles of `side` x `side` px from levels of the pyramid; all int64.

    `frame_indices`, `levels` (T,): frame and level. `rows`, `columns` (T, side): pixel indices in the level; those
    beyond its last pixel repeat that. `level_sizes` (T, 2): the level's height and width. `cell_counts` (T, 2): rows
    and columns of PNet's output for the whole level.
    """

    frame_indices: NDArray[np.int64]
    levels: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    level_sizes: NDArray[np.int64]
    cell_counts: NDArray[np.int64]

    def bin_edges(self, height: int, width: int) -> list[NDArray[np.int64]]:
        """Return tops, bottoms, lefts and rights (T, side) of the frame's bins of which the tiles' pixels are means."""
        vertical = _pool_bins_at(self.rows, self.level_sizes[:, :1], height)
        horizontal = _pool_bins_at(self.columns, self.level_sizes[:, 1:], width)
        return [*vertical, *horizontal]


def tiles_for(rois: Rois, levels: list[float], sizes: list[tuple[int, int]], search: RoiSearch) -> Tiles:
    """Return the tiles around each ROI, on the levels where a face of its size is in the range of `search`."""
    centres = (rois.boxes[:, :2] + rois.boxes[:, 2:]) / 2
    sides = (rois.boxes[:, 2:] - rois.boxes[:, :2]).max(axis=1)
    sizes_on_level = sides[:, None] * np.array(levels)
    # Faces smaller than the minimum are found on the first level, if at all.
    sizes_on_level[:, 0] = np.clip(sizes_on_level[:, 0], search.min_face_px, None)
    roi, level = np.nonzero((sizes_on_level >= search.min_face_px) & (sizes_on_level <= search.max_face_px))
    level_lengths = np.array(sizes)[level]
    # PNet's stride is 2: tiles start at even pixels, so that their cells are those of the level.
    starts = centres[roi, ::-1] * np.array(levels)[level, None] - search.tile_px / 2
    starts = 2 * (starts.clip(0, np.maximum(level_lengths - search.tile_px, 0)) / 2).round().astype(np.int64)
    rows, columns = (starts[:, axis, None] + np.arange(search.tile_px) for axis in (0, 1))
    return Tiles(rois.frame_indices[roi], level, rows, columns, level_lengths, -(-(level_lengths - 2) // 2) - 4)


def _pool_bins_at(
    index: NDArray[np.int64], counts: NDArray[np.int64], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the bins of `pool_bins` for pixels `index` (T, side), clipped to the last, of levels with `counts` px."""
    index = np.minimum(index, counts - 1)
    return index * length // counts, -(-(index + 1) * length // counts)
