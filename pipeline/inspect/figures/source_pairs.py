"""Fakes beside what they were made from: the same frame of the source, the same person."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ..statistics.columns import MANIPULATED, codes, numbers
from ..statistics.groups import UNCHANGED_BELOW
from ..statistics.videos import Videos
from .selection import Rng, Rows, fakes_by_method

_TRIES: Final = 8  # times as many fakes are looked at as pairs are wanted; a source may lack the frame


class Pair(NamedTuple):
    """The row of a fake's face, and the row of its source's; `manipulated` is None where it was not compared."""

    fake: int
    source: int
    manipulated: float | None


class Pairs(NamedTuple):
    """`unchanged`: drawn among the fakes whose `manipulated` is below `UNCHANGED_BELOW`; `changed`: among all others.

    `fakes`, `compared`: faces that were made from a source, and those of them that were compared with it.
    """

    changed: list[Pair]
    unchanged: list[Pair]
    fakes: int
    compared: int


def find_pairs(index: Index, videos: Videos, rng: Rng, count: int) -> Pairs:
    """Up to `count` pairs of each sort, of as many videos and methods as there are."""
    fakes = codes(index, "source_id") >= 0
    share = MANIPULATED.values(index)
    still = fakes & (share < UNCHANGED_BELOW)
    place = {name: number for number, name in enumerate(videos.names)}
    frame_of = numbers(index, "frame_index")

    def pairs(wanted: NDArray[np.bool_]) -> Iterator[Pair]:
        for row in fakes_by_method(index, rng, wanted, _TRIES * count).tolist():
            video = place.get(index.text("source_id", row) or "", -1)
            source = same_face(index, np.flatnonzero(videos.of_row == video), frame_of, row)
            if source is not None:
                yield Pair(row, source, None if np.isnan(share[row]) else float(share[row]))

    return Pairs(
        changed=list(islice(pairs(fakes & ~still), count)),
        unchanged=list(islice(pairs(still), count)),
        fakes=int(fakes.sum()),
        compared=int((~np.isnan(share)).sum()),
    )


def same_face(index: Index, rows: Rows, frame_of: NDArray[np.int32], fake: int) -> int | None:
    """Of the source's rows in the fake's frame, that whose box overlaps the fake's most; None where none does."""
    there = rows[frame_of[rows] == frame_of[fake]]
    if not len(there):
        return None
    mine, theirs = _box(index, fake), np.stack([_box(index, int(row)) for row in there])
    shared = (np.minimum(mine[2:], theirs[:, 2:]) - np.maximum(mine[:2], theirs[:, :2])).clip(0).prod(axis=1)
    areas = (theirs[:, 2:] - theirs[:, :2]).prod(axis=1) + (mine[2:] - mine[:2]).prod()
    iou = shared / (areas - shared)
    best = int(iou.argmax())
    return int(there[best]) if iou[best] > 0 else None


def _box(index: Index, row: int) -> NDArray[np.float64]:
    """A face's box xyxy as shares of the frame, since a source may be larger than its fake."""
    width, height = index.value("frame_width", row), index.value("frame_height", row)
    box: NDArray[np.float64] = np.asarray(index.value("box_xyxy", row), np.float64) / [width, height, width, height]
    return box
