"""Places where faces are expected, and which parts of the pyramid's levels PNet looks at there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_OWN: Final = 0.6
"""How far, in sides, a face may be from where it is expected."""


@dataclass(frozen=True, slots=True)
class Places:
    """M places where faces are expected: `frames` (M,) int64, which of the frames; `boxes` (M, 4) float32, xyxy.

    `sure` (M,): a face has to be there.
    """

    frames: NDArray[np.int64]
    boxes: NDArray[np.float32]
    sure: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, which: NDArray[Any]) -> Places:
        return Places(self.frames[which], self.boxes[which], self.sure[which])

    def are_at(self, which: NDArray[Any], boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Whether boxes (B, 4) are where the places `which` (B,) expect a face, and not a neighbour's."""
        sides = (self.boxes[which, 2:] - self.boxes[which, :2]).max(axis=1)
        apart = (boxes[:, :2] + boxes[:, 2:] - self.boxes[which, :2] - self.boxes[which, 2:]) / 2
        near: NDArray[np.bool_] = np.hypot(apart[:, 0], apart[:, 1]) < _OWN * sides
        return near


@dataclass(frozen=True, slots=True)
class Effort:
    """On which levels PNet looks for a face, by the face's size there, and how many candidates the others look at."""

    tile_px: int
    smallest_px: float
    largest_px: float
    proposed: int
    refined: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """T tiles of `side` by `side` px of levels of the pyramid; all int64.

    `frames`, `levels` (T,): of which frame and which level. `rows`, `columns` (T, side): the level's px; they may go
    beyond its last, which then stands there again. `sides` (T, 2): the level's height and width; `counts` (T, 2): how
    many rows and columns of cells PNet makes of it.
    """

    frames: NDArray[np.int64]
    levels: NDArray[np.int64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    sides: NDArray[np.int64]
    counts: NDArray[np.int64]

    def edges(self, height: int, width: int) -> list[NDArray[np.int64]]:
        """Tops, bottoms, lefts and rights (T, side) of the bins of a frame that make up the tiles' px; as `bins`."""
        down = _bins_of(self.rows, self.sides[:, :1], height)
        across = _bins_of(self.columns, self.sides[:, 1:], width)
        return [*down, *across]


def tiles_at(places: Places, levels: list[float], sizes: list[tuple[int, int]], effort: Effort) -> Tiles:
    """The tiles round each place, on the levels on which PNet may know a face of its size."""
    middles = (places.boxes[:, :2] + places.boxes[:, 2:]) / 2
    sides = (places.boxes[:, 2:] - places.boxes[:, :2]).max(axis=1)
    on_level = sides[:, None] * np.array(levels)
    # Faces below the smallest that is looked for are found on the first level, if at all.
    on_level[:, 0] = np.clip(on_level[:, 0], effort.smallest_px, None)
    place, level = np.nonzero((on_level >= effort.smallest_px) & (on_level <= effort.largest_px))
    lengths = np.array(sizes)[level]
    # PNet's cells lie two px apart: tiles begin at even ones, so that their cells are the level's.
    first = middles[place, ::-1] * np.array(levels)[level, None] - effort.tile_px / 2
    first = 2 * (first.clip(0, np.maximum(lengths - effort.tile_px, 0)) / 2).round().astype(np.int64)
    rows, columns = (first[:, axis, None] + np.arange(effort.tile_px) for axis in (0, 1))
    return Tiles(places.frames[place], level, rows, columns, lengths, -(-(lengths - 2) // 2) - 4)


def _bins_of(
    which: NDArray[np.int64], counts: NDArray[np.int64], length: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As `bins`, for some px (T, side) of levels that have `counts` (T, 1); beyond the last, this stands again."""
    which = np.minimum(which, counts - 1)
    return which * length // counts, -(-(which + 1) * length // counts)
