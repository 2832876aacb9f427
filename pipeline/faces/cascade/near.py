"""The cascade near places where faces are expected.

The levels of the pyramid are those of the search of the whole frame, pixel for pixel, and so is what follows: what lies
near a place is found as that search finds it, but for what is left out here: levels on which the face is much larger or
smaller than PNet's window, and all but the best few candidates of a place.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .bins import WINDOW_PX, scales
from .boxes import cell_boxes, moved, moved_by_pnet, points_in_frame, squared, suppressed, windows
from .places import Effort, Places, Tiles, tiles_at
from .stages import ONET_SCORE, PNET_SCORE, RNET_SCORE, Found, level_sizes, nothing, without_nested

Tensor = torch.Tensor

_SURE: Final = 0.9
"""Places where a face has to be, and none has such a score, are looked at once more, thoroughly."""


_QUICK: Final = Effort(24, 0.7 * WINDOW_PX, 1.4 * WINDOW_PX, 4, 2)
"""Two levels, on which PNet is most likely to know it."""
_THOROUGH: Final = Effort(40, 0.4 * WINDOW_PX, 3 * WINDOW_PX, 16, 8)


class NearPixels(Protocol):
    """`count` frames of one size, with the networks that look at parts of them; all tensors are the host's."""

    count: int
    height: int
    width: int

    def pnet_tiles(self, tiles: Tiles) -> Tensor:
        """The cells (T, rows, columns, 6) of each tile: 2 logits, 4 offsets."""
        ...

    def rnet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor]:
        """As `Pixels` has it."""
        ...

    def onet(self, frames: Tensor, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `Pixels` has it."""
        ...


def find_near(pixels: NearPixels, places: Places, min_face_px: int) -> list[Found]:
    """The faces of each frame that lie near its places."""
    place, *found = _looked_at(pixels, places, min_face_px, _QUICK)
    best = np.zeros(len(places))
    np.maximum.at(best, place, found[1])
    unsure = np.flatnonzero(places.sure & (best < _SURE))
    again, *more = _looked_at(pixels, places[unsure], min_face_px, _THOROUGH)
    frames = places.frames[np.concatenate([place, unsure[again]])]
    arrays = [np.concatenate(one) for one in zip(found, more, strict=True)]
    return [without_nested(*(one[frames == number] for one in arrays)) for number in range(pixels.count)]


def _looked_at(pixels: NearPixels, places: Places, min_face_px: int, effort: Effort) -> list[NDArray[Any]]:
    """What ONet takes for faces: of which place each is, boxes, scores, landmarks."""
    of_place = torch.from_numpy(places.frames)
    place, boxes = _proposed(pixels, places, min_face_px, effort)
    place, boxes, inside = _within(pixels, place, boxes)
    if len(place):
        scores, offsets = pixels.rnet(of_place[place], inside)
        sure = (scores > RNET_SCORE).nonzero()[:, 0]
        sure = sure[suppressed(boxes[sure], scores[sure], of_place[place[sure]], 0.7)]
        boxes, frames = squared(moved(boxes[sure], offsets[sure])), of_place[place[sure]]
        place = _nearest(places, frames, boxes)
        first = _first(place, scores[sure], effort.refined)
        place, boxes, inside = _within(pixels, place[first], boxes[first])
    if not len(place):
        return [np.empty(0, np.int64), *nothing()]
    scores, offsets, points = pixels.onet(of_place[place], inside)
    sure = (scores > ONET_SCORE).nonzero()[:, 0]
    found = place[sure], moved(boxes[sure], offsets[sure]), scores[sure], points_in_frame(boxes[sure], points[sure])
    return [one.numpy() for one in found]


def _proposed(pixels: NearPixels, places: Places, min_face_px: int, effort: Effort) -> tuple[Tensor, Tensor]:
    """Of each place the best boxes of the cells near it: the places (C,), and boxes (C, 4) moved and squared."""
    levels = scales(pixels.height, pixels.width, min_face_px)
    tiles = tiles_at(places, levels, level_sizes(pixels.height, pixels.width, levels), effort)
    cells = pixels.pnet_tiles(tiles)
    scores = cells[..., :2].softmax(-1)[..., 1]
    tile, row, column = (scores >= PNET_SCORE).nonzero(as_tuple=True)
    rows, columns = (torch.from_numpy(one[:, 0])[tile] // 2 for one in (tiles.rows, tiles.columns))
    rows, columns = rows + row, columns + column
    its_own = (torch.stack([rows, columns], 1) < torch.from_numpy(tiles.counts)[tile]).all(1)
    tile, row, column, rows, columns = (one[its_own] for one in (tile, row, column, rows, columns))
    level = torch.from_numpy(tiles.levels)[tile]
    boxes = cell_boxes(rows, columns, torch.tensor(levels)[level])
    scores, offsets = scores[tile, row, column], cells[tile, row, column, 2:]
    frames = torch.from_numpy(tiles.frames)[tile]
    kept = suppressed(boxes, scores, frames * len(levels) + level, 0.5)
    kept = kept[suppressed(boxes[kept], scores[kept], frames[kept], 0.7)]
    boxes = squared(moved_by_pnet(boxes[kept], offsets[kept]))
    place = _nearest(places, frames[kept], boxes)
    first = _first(place, scores[kept], effort.proposed)
    return place[first], boxes[first]


def _within(pixels: NearPixels, place: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Those that lie in the frame at all, and the windows of what of them does."""
    inside = windows(boxes, torch.tensor([pixels.width, pixels.height]))
    some = (inside[:, 2:] > inside[:, :2]).all(1)
    return place[some], boxes[some], inside[some]


def _nearest(places: Places, frames: Tensor, boxes: Tensor) -> Tensor:
    """Which place of its frame each box (C, 4) is nearest to: (C,)."""
    middles, around = (boxes[:, :2] + boxes[:, 2:]) / 2, torch.from_numpy(places.boxes[:, :2] + places.boxes[:, 2:]) / 2
    of_place, nearest = torch.from_numpy(places.frames), torch.empty_like(frames)
    for number in sorted(set(frames.tolist())):
        here, there = (frames == number).nonzero()[:, 0], (of_place == number).nonzero()[:, 0]
        nearest[here] = there[torch.cdist(middles[here], around[there]).argmin(1)]
    return nearest


def _first(groups: Tensor, scores: Tensor, count: int) -> Tensor:
    """Of each group (M,) the `count` with the highest scores: their numbers."""
    order = scores.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    ordered = groups[order]
    rank = torch.arange(len(order)) - torch.searchsorted(ordered, ordered)
    return order[rank < count]
