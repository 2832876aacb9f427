"""Pairs each fake with its face in the nearest frame of the video it was made from."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.boxes import paired_iou, relative_boxes
from ...pipeline.dataset.frame_numbers import VideoEnds, frame_numbers, rows_of_their_videos
from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.dataset.schema import real_class
from ..dataset.selection import Rows

_NO_MATCH = np.iinfo(np.int64).max
_BY_INDEX, _BY_NUMBER, _BY_TIME = range(3)  # how frames of a fake and of its source are compared

_MAX_CANDIDATES = 32
"""Faces of its source that a fake is compared with, nearest in frames first, and then the rest of that frame: of people
who are elsewhere in the frame, a long source has thousands."""

_MIN_OVERLAP = 0.1
"""IoU above which two boxes are of one face. Neighbours in a crowd touch; a face overlaps itself by .26 ten frames
later in 99 of 100 real clips."""

_FAKES_AT_ONCE = 1 << 18  # bounds the memory


class SourcePairs(NamedTuple):
    """`real` and `fake`: rows (pairs,).

    num_orphans: how many fakes have no row of their source, which may be unknown. num_elsewhere: how many have, but
    none with a face where theirs is. num_unknown: how many have one there, but the label of either is unknown.
    num_of_fakes: how many have one of another label there, but not of the class that is called real, if one is.
    """

    real: Rows
    fake: Rows
    num_orphans: int
    num_elsewhere: int
    num_unknown: int
    num_of_fakes: int


def pair_with_source(rows: Rows, index: IndexLike) -> SourcePairs:
    """Pairs each fake row with the row of its source nearest in frames that has its face at the same place.

    Two folders of frames are compared by the numbers in the names of their images, two videos of other frame rates and
    the same length by time since their first frame, all else by the frame index. Rate and length are those of all rows
    of a video, since filters may leave another part of each of the two.

    Places are compared by the boxes as fractions of the frame; of several people in a frame, the one of the highest IoU
    is taken. Track numbers say nothing: each video may number its people by itself. Fakes whose source has no face
    there are left out, and so are rows with their source's label: moments in which a video that is fake in part is
    real. Where a label is unknown, nobody knows which of these a row is: neither side of a pair may be such a row. Nor
    does a row of another class stand for the real face, where a class is called real: labels or sources of two inputs
    may have been swapped, and a fake may be made from a fake.
    """
    ends = VideoEnds.of_rows(index, rows_of_their_videos(index, rows))
    nearest, has_source = nearest_in_source(rows, index, ends, np.ones(len(rows), np.bool_))
    fakes = np.flatnonzero(nearest >= 0)
    partner, label = nearest[fakes], index.numbers("label", rows)
    is_unknown = (label[fakes] < 0) | (label[partner] < 0)
    differs = ~is_unknown & (label[fakes] != label[partner])
    real = real_class(index.labels)
    is_pair = differs if real is None else differs & (label[partner] == real)
    needs_source, video = index.codes("source_id", rows) >= 0, index.codes("video_id", rows)
    if real is not None:  # else a row without a source may be an original
        needs_source |= (label >= 0) & (label != real) & ~np.isin(video, video[partner])
    return SourcePairs(
        rows[partner[is_pair]], rows[fakes[is_pair]],
        num_orphans=int((needs_source & ~has_source).sum()),
        num_elsewhere=int(has_source.sum()) - len(fakes), num_unknown=int(is_unknown.sum()),
        num_of_fakes=int((differs & ~is_pair).sum()),
    )  # fmt: skip


class NearestInSource(NamedTuple):
    """Of each row, `position`: of its face in the nearest frame of its source, int64 (rows,), -1 where there is none;
    and `has_source`: whether its source has any row, bool (rows,).
    """

    position: NDArray[np.int64]
    has_source: NDArray[np.bool_]


def nearest_in_source(
    rows: Rows, index: IndexLike, ends: VideoEnds, may_be_source: NDArray[np.bool_]
) -> NearestInSource:
    """The face of each fake in its source, as `pair_with_source` compares frames and places.

    ends: of the videos. may_be_source: bool (rows,), which rows count as their video's.
    """
    code_of_name = {name: code for code, name in enumerate(index.categories("video_id"))}
    video_of_source = np.array([code_of_name.get(name, -1) for name in index.categories("source_id")] + [-1], np.int64)
    source, video = video_of_source[index.codes("source_id", rows)], index.codes("video_id", rows).astype(np.int64)
    fakes, reals = np.flatnonzero(source >= 0), np.flatnonzero((source < 0) & may_be_source)
    position = np.full(len(rows), -1)
    if not len(fakes) or not len(reals):
        return NearestInSource(position, np.zeros(len(rows), np.bool_))
    has_source = (source >= 0) & np.isin(source, video[reals])
    frame, number = index.numbers("frame_index", rows).astype(np.int64), frame_numbers(index, rows)
    numbered = reals[number[reals] >= 0]
    by_number = (number[fakes] >= 0) & np.isin(source[fakes], np.unique(video[numbered]))
    by_time = ~by_number & ends.have_other_rates(video[fakes], source[fakes])
    timed = reals[np.isin(video[reals], np.unique(source[fakes[by_time]]))]
    # A real row may be there three times: in groups by frame index, by number and by time.
    kind = np.where(by_time, _BY_TIME, by_number.astype(np.int64))
    real_kind = np.repeat([_BY_INDEX, _BY_NUMBER, _BY_TIME], [len(reals), len(numbered), len(timed)])
    reals = np.concatenate([reals, numbered, timed])
    at = np.stack([frame, number, ends.microseconds(index, rows) if len(timed) else frame])
    boxes = relative_boxes(index, rows)
    nearest = _nearest_faces(
        _Faces(3 * source[fakes] + kind, at[kind, fakes], boxes[fakes]),
        _Faces(3 * video[reals] + real_kind, at[real_kind, reals], boxes[reals]),
    )
    position[fakes] = np.where(nearest >= 0, reals[nearest], -1)
    return NearestInSource(position, has_source)


class _Faces(NamedTuple):
    """Columns of faces: those of one group may be paired.

    `group` and `frame`: int64 (faces,). `boxes`: fractions of the frame, xyxy, float32 (faces, 4).
    """

    group: NDArray[np.int64]
    frame: NDArray[np.int64]
    boxes: NDArray[np.float32]

    def take(self, selection: Any) -> _Faces:
        return _Faces(*(column[selection] for column in self))


def _nearest_faces(fakes: _Faces, reals: _Faces) -> NDArray[np.int64]:
    """Of each fake, the position of the nearest real in frames that overlaps it, int64 (fakes,); -1 where none does.

    Of several at the same distance, the one of the highest IoU; of two frames that are alike in this, the earlier one.
    """
    order = np.lexsort((reals.frame, reals.group))
    reals = reals.take(order)
    distinct = np.unique(reals.frame)  # a group and a frame's rank fit into 64 bits, and a number of any size may not
    bits = len(distinct).bit_length()
    keys = reals.group << bits | np.searchsorted(distinct, reals.frame)
    nearest = np.full(len(fakes.group), -1)
    for start in range(0, len(nearest), _FAKES_AT_ONCE):
        part = fakes.take(slice(start, start + _FAKES_AT_ONCE))
        at = np.searchsorted(keys, part.group << bits | np.searchsorted(distinct, part.frame))
        nearest[start : start + _FAKES_AT_ONCE] = _nearest_from(part, reals, at)
    return np.where(nearest >= 0, order[nearest], -1)


def _nearest_from(fakes: _Faces, reals: _Faces, at: NDArray[np.int64]) -> NDArray[np.int64]:
    """`_nearest_faces` among reals in order, for fakes whose frame would stand at position `at`."""
    best, best_iou, best_distance = np.full(len(at), -1), np.full(len(at), _MIN_OVERLAP), np.full(len(at), _NO_MATCH)
    last_distance = np.zeros(len(at), np.int64)
    before, after = at - 1, at.copy()
    active = np.arange(len(at))
    for number in count():
        distance_before, distance_after = (
            _distances(fakes, active, reals, neighbour[active]) for neighbour in (before, after)
        )
        is_before = distance_before <= distance_after
        distance = np.minimum(distance_before, distance_after)
        goes_on = (distance < _NO_MATCH) & (distance <= best_distance[active])
        if number >= _MAX_CANDIDATES:
            goes_on &= distance <= last_distance[active]
        active, is_before, distance = active[goes_on], is_before[goes_on], distance[goes_on]
        if not len(active):
            break
        last_distance[active] = distance
        candidate = np.where(is_before, before[active], after[active])
        iou = paired_iou(fakes.boxes[active], reals.boxes[candidate])
        is_better = iou > best_iou[active]
        improved = active[is_better]
        best[improved], best_iou[improved] = candidate[is_better], iou[is_better]
        best_distance[improved] = distance[is_better]
        before[active[is_before]] -= 1
        after[active[~is_before]] += 1
    return best


def _distances(
    fakes: _Faces, active: NDArray[np.int64], reals: _Faces, positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How many frames each active fake is from the real at its position, int64 (active,).

    `_NO_MATCH` where that is of another group, or there is none.
    """
    clipped = np.clip(positions, 0, len(reals.group) - 1)
    is_same = (clipped == positions) & (reals.group[clipped] == fakes.group[active])
    return np.where(is_same, np.abs(reals.frame[clipped] - fakes.frame[active]), _NO_MATCH)
