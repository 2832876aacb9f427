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

from .boxes import cell_boxes, moved, moved_by_pnet, points_in_frame, squared, suppressed, windows
from .pyramid import WINDOW_PX, scales
from .rois import Effort, Places, Tiles, tiles_at
from .stages import ONET_SCORE, PNET_SCORE, RNET_SCORE, Found, level_sizes, nothing, without_nested

Tensor = torch.Tensor

_SURE: Final = 0.98
"""A place that has a face with such a score needs no other candidate."""
_MISSED: Final = 0.9
"""A place where a face has to be, and none has such a score, is looked at once more, thoroughly."""
_QUICK: Final = Effort(24, 0.7 * WINDOW_PX, 1.4 * WINDOW_PX, 6, 3)
"""Two levels, on which PNet is most likely to know it."""
_THOROUGH: Final = Effort(32, 0.5 * WINDOW_PX, 2 * WINDOW_PX, 10, 5)


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
    there = places.are_at(place, found[0])
    np.maximum.at(best, place[there], found[1][there])
    unsure = np.flatnonzero(places.sure & (best < _MISSED))
    again, *more = _looked_at(pixels, places[unsure], min_face_px, _THOROUGH)
    frames = places.frames[np.concatenate([place, unsure[again]])]
    arrays = [np.concatenate(one) for one in zip(found, more, strict=True)]
    return [without_nested(*(one[frames == number] for one in arrays)) for number in range(pixels.count)]


def _looked_at(pixels: NearPixels, places: Places, min_face_px: int, effort: Effort) -> list[NDArray[Any]]:
    """What ONet takes for faces: of which place each is, boxes, scores, landmarks."""
    place, boxes, inside = _refined(pixels, places, *_proposed(pixels, places, min_face_px, effort), effort)
    if not len(place):
        return [np.empty(0, np.int64), *nothing()]
    # The best of each place first, and the others only where that leaves a doubt: most of the time goes into ONet.
    rank = _rank(place)
    found = _judged(pixels, places, place[rank == 0], boxes[rank == 0], inside[rank == 0])
    doubt = torch.ones(len(places), dtype=torch.bool)
    doubt[found[0][(found[2] > _SURE) & torch.from_numpy(places.are_at(found[0].numpy(), found[1].numpy()))]] = False
    rest = (rank > 0) & doubt[place]
    if bool(rest.any()):
        more = _judged(pixels, places, place[rest], boxes[rest], inside[rest])
        found = [torch.cat(one) for one in zip(found, more, strict=True)]
    return [one.numpy() for one in found]


def _refined(
    pixels: NearPixels, places: Places, place: Tensor, boxes: Tensor, effort: Effort
) -> tuple[Tensor, Tensor, Tensor]:
    """RNet: of each place the best boxes, moved and squared, surest first, and their windows."""
    place, boxes, inside = _within(pixels, place, boxes)
    if not len(place):
        return place, boxes, inside
    frames = torch.from_numpy(places.frames)[place]
    scores, offsets = pixels.rnet(frames, inside)
    sure = (scores > RNET_SCORE).nonzero()[:, 0]
    sure = sure[suppressed(boxes[sure], scores[sure], frames[sure], 0.7)]
    boxes = squared(moved(boxes[sure], offsets[sure]))
    place = _nearest(places, frames[sure], boxes)
    first = _first(place, scores[sure], effort.refined)
    return _within(pixels, place[first], boxes[first])


def _judged(pixels: NearPixels, places: Places, place: Tensor, boxes: Tensor, inside: Tensor) -> list[Tensor]:
    """ONet: places, boxes, scores and landmarks of those that are faces."""
    scores, offsets, points = pixels.onet(torch.from_numpy(places.frames)[place], inside)
    sure = (scores > ONET_SCORE).nonzero()[:, 0]
    landmarks = points_in_frame(boxes[sure], points[sure])
    return [place[sure], moved(boxes[sure], offsets[sure]), scores[sure], landmarks]


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
    of_box, middles = frames.numpy(), (boxes[:, :2] + boxes[:, 2:]).numpy()
    around, nearest = places.boxes[:, :2] + places.boxes[:, 2:], np.empty(len(of_box), np.int64)
    for number in set(of_box.tolist()):
        here, there = np.flatnonzero(of_box == number), np.flatnonzero(places.frames == number)
        apart = middles[here, None] - around[there]
        nearest[here] = there[(apart * apart).sum(-1).argmin(1)] if len(there) > 1 else there[0]
    return torch.from_numpy(nearest)


def _first(groups: Tensor, scores: Tensor, count: int) -> Tensor:
    """Of each group (M,) the `count` with the highest scores: their numbers, group by group, highest first."""
    order = scores.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    return order[_rank(groups[order]) < count]


def _rank(groups: Tensor) -> Tensor:
    """Of each in sorted groups (M,), how many of its group come before it."""
    return torch.arange(len(groups)) - torch.searchsorted(groups, groups)
