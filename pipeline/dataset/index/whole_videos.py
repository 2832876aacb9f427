"""Rows in segments that hold whole videos: what is computed video by video takes memory for one segment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..index_like import IndexLike
from .row_range import Selection

_ROWS_AT_ONCE = 1 << 20


def whole_videos(index: IndexLike, rows: Selection) -> Iterator[tuple[slice, NDArray[np.int32]]]:
    """Segments of the positions in `rows`, in order, each with the code of every position's video: int32 (positions,).

    All rows of a video are in one segment. It has about a million positions, and more only where the rows of a video
    lie farther apart than that.
    """
    last = _last_positions(index, rows)
    start, farthest, pending = 0, -1, list[NDArray[np.int32]]()
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        videos = index.codes("video_id", rows[first : first + _ROWS_AT_ONCE])
        needed = np.maximum(np.maximum.accumulate(last[videos + 1]), farthest)  # of the videos up to each position
        farthest = int(needed[-1])
        ends = np.flatnonzero(needed == np.arange(first, first + len(videos)))
        count = int(ends[-1]) + 1 if len(ends) else 0
        pending.append(videos[:count])
        if count:
            yield slice(start, first + count), np.concatenate(pending)
            start, pending = first + count, []
        pending.append(videos[count:])


def rows_per_video(index: IndexLike, rows: Selection) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The codes of the videos that have some of these rows, ascending, and how many each has."""
    counts = np.zeros(0, np.int64)
    for _, videos, starts, lengths in _runs(index, rows):
        counts = _with_room(counts, videos)
        np.add.at(counts, videos[starts] + 1, lengths)
    present = np.flatnonzero(counts)
    return (present - 1).astype(np.int32), counts[present]


def _last_positions(index: IndexLike, rows: Selection) -> NDArray[np.int64]:
    """The last position of each video, by its code + 1."""
    last = np.zeros(0, np.int64)
    for first, videos, starts, lengths in _runs(index, rows):
        last = _with_room(last, videos)
        last[videos[starts] + 1] = first + starts + lengths - 1  # of those of one video, the last counts
    return last


def _runs(
    index: IndexLike, rows: Selection
) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]]:
    """Some positions at a time: the first, their videos' codes, and start and length of each run of one video there."""
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        videos = index.codes("video_id", rows[first : first + _ROWS_AT_ONCE])
        starts = np.flatnonzero(np.append(True, videos[1:] != videos[:-1]))
        yield first, videos, starts, np.diff(starts, append=len(videos))


def _with_room(by_video: NDArray[np.int64], videos: NDArray[np.int32]) -> NDArray[np.int64]:
    """Items by code + 1, and zeros up to the largest of `videos`."""
    missing = int(videos.max()) + 2 - len(by_video)
    return by_video if missing <= 0 else np.append(by_video, np.zeros(max(missing, len(by_video)), np.int64))
