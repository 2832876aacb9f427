"""One frame on one thread of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from .bins import bins, window_bins
from .means import PixelMeans
from .networks import Networks
from .stages import PNET_SCORE, Cells

Array = NDArray[Any]
Tensor = torch.Tensor

_TILE_CELLS: Final = 72
"""PNet's cells along a tile: its maps stay in a core's cache, and its rim of 10 px costs little."""
_CELLS_STEP: Final = 8
_NEAR_LOGIT: Final = float(np.log(PNET_SCORE / (1 - PNET_SCORE))) - 1e-3
"""By how much a cell's logits differ at `PNET_SCORE`, less what rounding may do: only such cells get a score at all."""
_RNET_WINDOWS, _ONET_WINDOWS = 64, 16
_COUNTS: Final = 16
"""Of windows at once: what is missing to the next of them is filled up."""


class CpuPixels:
    """As `Pixels` has it, for one frame; the networks are those of the thread that calls."""

    count = 1

    def __init__(self, rgb: NDArray[np.uint8], networks: Networks) -> None:
        self.height, self.width = rgb.shape[:2]
        self._networks = networks
        self._means = PixelMeans(rgb)

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

    def rnet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """As `Pixels` has it."""
        logits, offsets = self._looked_at(self._networks.rnet, windows.numpy(), 24, _RNET_WINDOWS)
        return _scores(logits), offsets

    def onet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG002
        """As `Pixels` has it."""
        logits, offsets, points = self._looked_at(self._networks.onet, windows.numpy(), 48, _ONET_WINDOWS)
        return _scores(logits), offsets, points

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
                yield first_row, first_column, new_row, new_column, self._means(*edges)

    def _looked_at(self, net: Callable[[Array], list[Array]], windows: Array, side: int, at_once: int) -> list[Tensor]:
        parts = []
        for first in range(0, len(windows), at_once):
            some = windows[first : first + at_once]
            # A network is prepared anew for each number of windows: there shall be few of these.
            missing = -len(some) % (at_once // _COUNTS)
            asked = np.pad(some, ((0, missing), (0, 0)), mode="edge")
            pixels = self._means(*window_bins(asked, np.arange(side)))
            parts.append([one[: len(some)].copy() for one in net(pixels)])
        return [torch.from_numpy(np.concatenate(one)) for one in zip(*parts, strict=True)]


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
