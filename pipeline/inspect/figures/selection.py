"""Which rows of millions are worth a look: a fair sample of each class, the worst, and videos with many tracks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ..statistics.columns import Floats, codes, numbers
from ..statistics.videos import Videos, label_names

Rows = NDArray[np.int64]
Rng = np.random.Generator

_CANDIDATES: Final = 4096


def of_each_class(index: Index, rng: Rng, count: int, most: int) -> dict[str, Rows]:
    """Up to `count` rows of each label that has any, drawn without a preference and in the index's order.

    With many labels fewer of each, so that they come to no more than `most` together.
    """
    labels = numbers(index, "label")
    names = label_names(index)
    there = [code for code in [*range(len(index.labels)), -1] if (labels == code).any()]
    each = max(1, min(count, most // max(len(there), 1)))
    return {names[code]: _drawn(np.flatnonzero(labels == code), each, rng) for code in there[:most]}


def worst(values: Floats, of_row: NDArray[np.int32], count: int) -> Rows:
    """Up to `count` rows with the least values, the least first; one of each video as long as there are enough."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) > _CANDIDATES:
        known = known[np.argpartition(values[known], _CANDIDATES)[:_CANDIDATES]]
    least = known[np.argsort(values[known], kind="stable")]
    _, first = np.unique(of_row[least], return_index=True)
    others = np.setdiff1d(np.arange(len(least)), first)
    places = np.concatenate([np.sort(first), others])[:count]
    found: Rows = least[np.sort(places)]
    return found


@dataclass(frozen=True)
class Strip:
    """Some frames of one video in the order of time, and what each of its tracks shows in them.

    `cells[t, f]`: the row of track `tracks[t]` in frame `frames[f]`, -1 where it has none. `left_out`: other tracks.
    """

    video: int
    frames: list[int]
    tracks: list[int]
    cells: NDArray[np.int64]
    left_out: int


def strips(index: Index, videos: Videos, rng: Rng, *, count: int, tracks: int, frames: int) -> list[Strip]:
    """Strips of up to `count` videos: those with the most tracks for the faces they show at once; there ids may switch.

    At most `tracks` and `frames` of each.
    """
    shuffled = rng.permutation(np.flatnonzero(videos.frames > 1))
    excess = videos.tracks - videos.most_at_once
    crowd = videos.tracks > 2 * tracks  # of a hundred tracks nobody could follow one
    chosen = shuffled[np.lexsort([-videos.tracks[shuffled], -excess[shuffled], crowd[shuffled]])][:count]
    frame_of, track_of = numbers(index, "frame_index"), numbers(index, "track_id")
    return [
        _strip(int(one), np.flatnonzero(videos.of_row == one), frame_of, track_of, tracks=tracks, frames=frames)
        for one in chosen
    ]


def _strip(
    video: int, rows: Rows, frame_of: NDArray[Any], track_of: NDArray[Any], *, tracks: int, frames: int
) -> Strip:
    seen, sizes = np.unique(track_of[rows], return_counts=True)
    shown = np.sort(seen[np.argsort(-sizes, kind="stable")[:tracks]])
    rows = rows[np.isin(track_of[rows], shown)]
    times = np.unique(frame_of[rows])
    picked = times[np.linspace(0, len(times) - 1, min(frames, len(times))).round().astype(int)]
    cells = np.full((len(shown), len(picked)), -1, np.int64)
    here = rows[np.isin(frame_of[rows], picked)]
    cells[np.searchsorted(shown, track_of[here]), np.searchsorted(picked, frame_of[here])] = here
    return Strip(video, picked.tolist(), shown.tolist(), cells, len(seen) - len(shown))


def fakes_by_method(index: Index, rng: Rng, known: NDArray[np.bool_], count: int) -> Rows:
    """Rows of fakes in a random order that takes methods in turn, one row of each video; `known`: (rows,) the fakes."""
    rows = np.flatnonzero(known)
    rows = rng.permutation(rows if len(rows) <= _CANDIDATES else rng.choice(rows, _CANDIDATES, replace=False))
    videos, methods = codes(index, "video_id")[rows], codes(index, "method")[rows]
    _, first = np.unique(videos, return_index=True)
    first = np.sort(first)
    turn = np.empty(len(first), np.int64)
    for method in np.unique(methods[first]):
        mine = methods[first] == method
        turn[mine] = np.arange(mine.sum())
    return rows[first[np.argsort(turn, kind="stable")]][:count]


def _drawn(rows: Rows, count: int, rng: Rng) -> Rows:
    return rows if len(rows) <= count else np.sort(rng.choice(rows, count, replace=False, shuffle=False))
