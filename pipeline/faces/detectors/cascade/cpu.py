"""Frame batches on one thread of the CPU: OpenVINO's networks on pixels resized by `AreaResizer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .area_resize import AreaResizer
from .networks import OpenVinoNetworks
from .pyramid import pool_bins, window_bins
from .rois import Rois, Tiles
from .stages import PNET_SCORE, PNetCells, face_scores

Array = NDArray[Any]
Edges = Sequence[Array]
"""Tops, bottoms, lefts and rights of bins, as `AreaResizer` takes them."""

_TILE_CELLS: Final = 72
"""Maximum number of PNet's cells along a tile: its feature maps fit into a core's cache, and the overlap of 10 px
costs little."""
_CELL_STEP: Final = 8
"""Tiles have a multiple of this many cells, to limit the number of input shapes."""
_FRAME_ZERO: Final = np.zeros(1, np.int64)
_MIN_LOGIT_DIFFERENCE: Final = float(np.log(PNET_SCORE / (1 - PNET_SCORE))) - 1e-3
"""Difference of a cell's logits at `PNET_SCORE`, minus a rounding margin; a cheap filter before the softmax."""
_CONTEXT_SIDES: Final = 1.6
"""Extent of the frame that is kept around a ROI's centre for RNet and ONet, in sides of the ROI."""
_TILE_BATCH, _RNET_BATCH, _ONET_BATCH = 32, 64, 16
"""Batch size of each network."""


class _CpuBatch:
    """RNet and ONet on windows of frames of one size; `networks` belong to the calling thread."""

    num_batch_sizes = 16
    """Number of different batch sizes: batches are padded, since a network is compiled for each input shape."""

    def __init__(self, resizer: AreaResizer, networks: OpenVinoNetworks) -> None:
        self._resize, self._networks = resizer, networks

    def rnet(self, frame_indices: Array, windows: Array) -> tuple[Array, Array]:
        edges = window_bins(windows, np.arange(24))
        logits, offsets = self._run_batches(self._networks.rnet, frame_indices, edges, _RNET_BATCH)
        return face_scores(logits), offsets

    def onet(self, frame_indices: Array, windows: Array) -> tuple[Array, Array, Array]:
        edges = window_bins(windows, np.arange(48))
        logits, offsets, points = self._run_batches(self._networks.onet, frame_indices, edges, _ONET_BATCH)
        return face_scores(logits), offsets, points

    def _run_batches(
        self, network: Callable[[Array], list[Array]], frame_indices: Array, edges: Edges, batch_size: int
    ) -> list[Array]:
        outputs = []
        for first in range(0, len(frame_indices), batch_size):
            chunk = frame_indices[first : first + batch_size]
            num_padding = -len(chunk) % (batch_size // self.num_batch_sizes)
            padded = np.arange(first, first + len(chunk) + num_padding).clip(max=len(frame_indices) - 1)
            pixels = self._resize(frame_indices[padded], *(array[padded] for array in edges))
            outputs.append([array[: len(chunk)].copy() for array in network(pixels)])
        return [np.concatenate(array) for array in zip(*outputs, strict=True)]


class CpuFrameBatch(_CpuBatch):
    """`FrameBatch` of one frame."""

    count = 1

    def __init__(self, rgb: NDArray[np.uint8], networks: OpenVinoNetworks) -> None:
        super().__init__(AreaResizer([rgb]), networks)
        self.height, self.width = rgb.shape[:2]

    def pnet(self, sizes: list[tuple[int, int]]) -> PNetCells:
        """Run PNet on each level, tile by tile; return the cells that pass `PNET_SCORE`."""
        tiles = [
            (*self._tile_cells(*tile), level) for level, size in enumerate(sizes) for tile in self._level_tiles(*size)
        ]
        levels = np.repeat([level for *_, level in tiles], [len(rows) for rows, *_ in tiles])
        rows, columns, values = (np.concatenate(array) for array in list(zip(*tiles, strict=True))[:3])
        scores = face_scores(values)
        order = np.lexsort((columns, rows, levels))
        keep = order[scores[order] >= PNET_SCORE]
        return PNetCells(np.zeros_like(keep), levels[keep], rows[keep], columns[keep], scores[keep], values[keep, 2:])

    def _tile_cells(self, first_row: int, first_column: int, new_row: int, new_column: int, tile: Array) -> Any:
        """Return rows, columns and values of a tile's candidate cells, without those in earlier tiles."""
        cells = self._networks.pnet(tile)[0, new_row - first_row :, new_column - first_column :]
        rows, columns = np.nonzero(cells[..., 1] - cells[..., 0] >= _MIN_LOGIT_DIFFERENCE)
        return rows + new_row, columns + new_column, cells[rows, columns]

    def _level_tiles(self, height: int, width: int) -> Iterator[tuple[int, int, int, int, Array]]:
        """Yield each tile's first row and column of cells, first new row and column, and pixels (1, h, w, 4)."""
        tops, bottoms = pool_bins(self.height, height)
        lefts, rights = pool_bins(self.width, width)
        spans = list(_tile_spans(width))
        for first_row, new_row, rows in _tile_spans(height):
            for first_column, new_column, columns in spans:
                edges = tops[None, rows], bottoms[None, rows], lefts[None, columns], rights[None, columns]
                yield first_row, first_column, new_row, new_column, self._resize(_FRAME_ZERO, *edges)


class CpuRoiBatch(_CpuBatch):
    """`RoiBatch` that prepares only the parts of the frames around the ROIs."""

    num_batch_sizes = 4

    def __init__(self, frames: Sequence[NDArray[np.uint8]], rois: Rois, networks: OpenVinoNetworks) -> None:
        self.count, (self.height, self.width) = len(frames), frames[0].shape[:2]
        boxes_by_frame = [rois.boxes[rois.frame_indices == frame_index] for frame_index in range(self.count)]
        regions = [_context_region(boxes, self.height, self.width) for boxes in boxes_by_frame]
        parts = [rgb[top:bottom, left:right] for rgb, (left, top, right, bottom) in zip(frames, regions, strict=True)]
        super().__init__(AreaResizer(parts, [(left, top) for left, top, *_ in regions]), networks)

    def pnet_on_tiles(self, tiles: Tiles) -> Array:
        """Run PNet on tiles; return its cells (T, rows, columns, 6): 2 logits, 4 offsets."""
        if not len(tiles.frame_indices):
            return np.empty((0, 1, 1, 6), np.float32)
        edges = tiles.bin_edges(self.height, self.width)
        (cells,) = self._run_batches(
            lambda pixels: [self._networks.pnet(pixels)], tiles.frame_indices, edges, _TILE_BATCH
        )
        return cells


def _context_region(boxes: Array, height: int, width: int) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the part of a frame that the networks may read for ROIs (M, 4)."""
    centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).max(axis=1, keepdims=True)
    reach = sides * _CONTEXT_SIDES + 2
    left, top = (centres - reach).min(axis=0).clip(0, (width - 1, height - 1)).astype(int)
    right, bottom = (centres + reach).max(axis=0).clip((left + 1, top + 1), (width, height)).astype(int)
    return left, top, right, bottom


def _tile_spans(length: int) -> Iterator[tuple[int, int, slice]]:
    """Yield the tiles along one side of a level: first cell, first cell not in an earlier tile, and the pixels.

    Tiles have equal sizes where possible, the last one overlapping more, since a network is compiled for each size.
    """
    cells = -(-(length - 2) // 2) - 4
    count = -(-cells // _TILE_CELLS)
    cells_per_tile = -(-cells // count)
    if cells > _CELL_STEP:
        cells_per_tile = min(cells, -(-cells_per_tile // _CELL_STEP) * _CELL_STEP)
    new_cell = 0
    while new_cell < cells:
        first = min(new_cell, cells - cells_per_tile)
        last = first + cells_per_tile == cells
        yield first, new_cell, slice(2 * first, length if last else 2 * (first + cells_per_tile) + 10)
        new_cell = first + cells_per_tile
