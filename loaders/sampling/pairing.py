"""Pairs each fake with the nearest frame of the video it was made from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.frame_numbers import frame_numbers
from ...pipeline.dataset.index_like import IndexLike
from ..dataset.selection import Rows

_NO_MATCH = np.iinfo(np.int64).max


class SourcePairs(NamedTuple):
    """`real` and `fake`: rows (pairs,).

    num_orphans: how many fakes have no row of their source. num_unknown: how many have one, but the label of either is
    unknown.
    """

    real: Rows
    fake: Rows
    num_orphans: int
    num_unknown: int


def pair_with_source(rows: Rows, index: IndexLike) -> SourcePairs:
    """Pairs each fake row with the row of its source nearest in frames.

    Two folders of frames are compared by the numbers in the names of their images, all else by the frame index. Where
    several people are in that frame, the one of the fake's own track number is preferred. Fakes whose source has no row
    are left out, and so are rows with their source's label: moments in which a video that is fake in part is real.
    Where a label is unknown, nobody knows which of these a row is: neither side of a pair may be such a row.
    """
    code_of_name = {name: code for code, name in enumerate(index.categories("video_id"))}
    video_of_source = np.array([code_of_name.get(name, -1) for name in index.categories("source_id")] + [-1], np.int64)
    source, video = video_of_source[index.codes("source_id", rows)], index.codes("video_id", rows).astype(np.int64)
    frame, track = (index.numbers(name, rows).astype(np.int64) for name in ("frame_index", "track_id"))
    fakes, reals = np.flatnonzero(source >= 0), np.flatnonzero(source < 0)
    if not len(fakes) or not len(reals):
        return SourcePairs(rows[:0], rows[:0], int((index.codes("source_id", rows) >= 0).sum()), 0)
    number = frame_numbers(index, rows)
    numbered = reals[number[reals] >= 0]
    by_number = (number[fakes] >= 0) & np.isin(source[fakes], np.unique(video[numbered]))
    # A real clip of images is there twice: in a group by frame index, and in one by number.
    is_numbered = np.repeat([False, True], [len(reals), len(numbered)])
    reals = np.concatenate([reals, numbered])
    compared = np.where(by_number, number[fakes], frame[fakes])
    real_compared = np.where(is_numbered, number[reals], frame[reals])
    group, real_group = 2 * source[fakes] + by_number, 2 * video[reals] + is_numbered
    nearest, distance = _nearest_frames(group, compared, real_group, real_compared)
    tracks = int(track.max()) + 1
    same_track, same_track_distance = _nearest_frames(
        group * tracks + track[fakes], compared, real_group * tracks + track[reals], real_compared
    )
    nearest = np.where(same_track_distance == distance, same_track, nearest)
    has_source, label = distance < _NO_MATCH, index.numbers("label", rows)
    is_unknown = has_source & ((label[fakes] < 0) | (label[reals[nearest]] < 0))
    is_pair = has_source & ~is_unknown & (label[fakes] != label[reals[nearest]])
    num_orphans = int((index.codes("source_id", rows) >= 0).sum() - has_source.sum())
    return SourcePairs(rows[reals[nearest[is_pair]]], rows[fakes[is_pair]], num_orphans, int(is_unknown.sum()))


def _nearest_frames(
    groups: NDArray[np.int64], frames: NDArray[np.int64], other_groups: NDArray[np.int64],
    other_frames: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """For each item, the position of the other item of its group whose frame is nearest, and the distance in frames.

    Two int64 (items,). Of two at the same distance, the earlier one. Distance `_NO_MATCH` where no other item is of its
    group.
    """
    order = np.lexsort((other_frames, other_groups))
    distinct = np.unique(other_frames)  # a group and a frame's rank fit into 64 bits, and a number of any size may not
    bits = len(distinct).bit_length()
    ranks, other_ranks = np.searchsorted(distinct, frames), np.searchsorted(distinct, other_frames)
    at = np.searchsorted(other_groups[order] << bits | other_ranks[order], groups << bits | ranks)
    nearest, distance = np.zeros(len(groups), np.int64), np.full(len(groups), _NO_MATCH)
    for neighbour in (order[np.clip(at - 1, 0, len(order) - 1)], order[np.clip(at, 0, len(order) - 1)]):
        separation = np.where(other_groups[neighbour] == groups, np.abs(other_frames[neighbour] - frames), _NO_MATCH)
        closer = separation < distance
        nearest[closer], distance[closer] = neighbour[closer], separation[closer]
    return nearest, distance
