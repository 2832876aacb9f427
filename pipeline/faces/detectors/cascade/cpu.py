"""Frames on one thread of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from .area_resize import PixelMeans
from .networks import Networks
from .pyramid import bins, window_bins
from .rois import Places, Tiles
from .stages import PNET_SCORE, Cells

Array = NDArray[Any]
Edges = Sequence[Array]
"""Tops, bottoms, lefts and rights of bins, as `PixelMeans` takes them."""
Tensor = torch.Tensor

_TILE_CELLS: Final = 72
"""PNet's cells along a tile: its maps stay in a core's cache, and its rim of 10 px costs little."""
_CELLS_STEP: Final = 8
_FIRST: Final = np.zeros(1, np.int64)
_NEAR_LOGIT: Final = float(np.log(PNET_SCORE / (1 - PNET_SCORE))) - 1e-3
"""By how much a cell's logits differ at `PNET_SCORE`, less what rounding may do: only such cells get a score at all."""
_REACH: Final = 1.6
"""How far from a place's middle RNet and ONet may look, in sides of the place."""
_TILES, _RNET_WINDOWS, _ONET_WINDOWS = 32, 64, 16
"""How many windows each network looks at at once."""


class _Frames:
    """What RNet and ONet see of frames of one size; the networks are those of the thread that calls."""

    counts = 16
    """How many numbers of windows there are: what is missing to the next is filled up, since a network is prepared anew
    for each."""

    def __init__(self, means: PixelMeans, networks: Networks) -> None:
        self._means, self._networks = means, networks

    def rnet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """As `Pixels` has it."""
        edges = window_bins(windows.numpy(), np.arange(24))
        logits, offsets = self._looked_at(self._networks.rnet, frames.numpy(), edges, _RNET_WINDOWS)
        return _scores(logits), offsets

    def onet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `Pixels` has it."""
        edges = window_bins(windows.numpy(), np.arange(48))
        logits, offsets, points = self._looked_at(self._networks.onet, frames.numpy(), edges, _ONET_WINDOWS)
        return _scores(logits), offsets, points

    def _looked_at(
        self, net: Callable[[Array], list[Array]], frames: Array, edges: Edges, at_once: int
    ) -> list[Tensor]:
        parts = []
        for first in range(0, len(frames), at_once):
            some = frames[first : first + at_once]
            missing = -len(some) % (at_once // self.counts)
            filled = np.arange(first, first + len(some) + missing).clip(max=len(frames) - 1)
            pixels = self._means(frames[filled], *(one[filled] for one in edges))
            parts.append([one[: len(some)].copy() for one in net(pixels)])
        return [torch.from_numpy(np.concatenate(one)) for one in zip(*parts, strict=True)]


class CpuPixels(_Frames):
    """As `Pixels` has it, for one frame."""

    count = 1

    def __init__(self, rgb: NDArray[np.uint8], networks: Networks) -> None:
        super().__init__(PixelMeans([rgb]), networks)
        self.height, self.width = rgb.shape[:2]

    def pnet(self, sizes: list[tuple[int, int]]) -> Cells:
        """As `Pixels` has it; each level is made and looked at tile by tile."""
        found = [(*self._cells(*tile), level) for level, size in enumerate(sizes) for tile in self._tiles(*size)]
        levels = np.repeat([level for *_, level in found], [len(rows) for rows, *_ in found])
        rows, columns, values = (np.concatenate(one) for one in list(zip(*found, strict=True))[:3])
        order = np.lexsort((columns, rows, levels))
        logits = torch.from_numpy(values[order])
        scores = _scores(logits)
        kept = (scores >= PNET_SCORE).nonzero()[:, 0]
        where = torch.from_numpy(np.stack([np.zeros_like(rows), levels, rows, columns])[:, order])[:, kept]
        frames, at_levels, at_rows, at_columns = where.unbind()
        return Cells(frames, at_levels, at_rows, at_columns, scores[kept], logits[kept, 2:])

    def _cells(self, first_row: int, first_column: int, new_row: int, new_column: int, tile: Array) -> Any:
        """The cells of a tile that may be faces, but for those that the tile before has too."""
        cells = self._networks.pnet(tile)[0, new_row - first_row :, new_column - first_column :]
        rows, columns = np.nonzero(cells[..., 1] - cells[..., 0] >= _NEAR_LOGIT)
        return rows + new_row, columns + new_column, cells[rows, columns]

    def _tiles(self, height: int, width: int) -> Iterator[tuple[int, int, int, int, Array]]:
        """First row and column of its cells, the first that are new, and the tile's pixels (1, h, w, 4)."""
        tops, bottoms = bins(self.height, height)
        lefts, rights = bins(self.width, width)
        spans = list(_spans(width))
        for first_row, new_row, rows in _spans(height):
            for first_column, new_column, columns in spans:
                edges = tops[None, rows], bottoms[None, rows], lefts[None, columns], rights[None, columns]
                yield first_row, first_column, new_row, new_column, self._means(_FIRST, *edges)


class CpuNear(_Frames):
    """As `NearPixels` has it: of frames of one size only what lies near places is made ready."""

    counts = 4

    def __init__(self, frames: Sequence[NDArray[np.uint8]], places: Places, networks: Networks) -> None:
        self.count, (self.height, self.width) = len(frames), frames[0].shape[:2]
        boxes = [places.boxes[places.frames == number] for number in range(self.count)]
        reach = [_reach(one, self.height, self.width) for one in boxes]
        parts = [rgb[top:bottom, left:right] for rgb, (left, top, right, bottom) in zip(frames, reach, strict=True)]
        super().__init__(PixelMeans(parts, [(left, top) for left, top, *_ in reach]), networks)

    def pnet_tiles(self, tiles: Tiles) -> Tensor:
        """As `NearPixels` has it."""
        if not len(tiles.frames):
            return torch.empty(0, 1, 1, 6)
        edges = tiles.edges(self.height, self.width)
        (cells,) = self._looked_at(lambda px: [self._networks.pnet(px)], tiles.frames, edges, _TILES)
        return cells


def _reach(boxes: Array, height: int, width: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is looked at for some places (M, 4): tiles, and what boxes are moved by."""
    middles, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).max(axis=1, keepdims=True)
    around = sides * _REACH + 2
    left, top = (middles - around).min(axis=0).clip(0, (width - 1, height - 1)).astype(int)
    right, bottom = (middles + around).max(axis=0).clip((left + 1, top + 1), (width, height)).astype(int)
    return left, top, right, bottom


def _scores(logits: Tensor) -> Tensor:
    """How sure each is to be a face, of logits (M, 2 or more)."""
    return logits[:, :2].softmax(1)[:, 1]


def _spans(length: int) -> Iterator[tuple[int, int, slice]]:
    """Tiles along a level's side: first cell, first cell that no tile before has, and the pixels.

    Tiles are alike as far as that goes, the last one reaching back, since a network is prepared anew for each size.
    """
    cells = -(-(length - 2) // 2) - 4
    count = -(-cells // _TILE_CELLS)
    each = -(-cells // count)
    if cells > _CELLS_STEP:
        each = min(cells, -(-each // _CELLS_STEP) * _CELLS_STEP)
    new = 0
    while new < cells:
        first = min(new, cells - each)
        last = first + each == cells
        yield first, new, slice(2 * first, length if last else 2 * (first + each) + 10)
        new = first + each
