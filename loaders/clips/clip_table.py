"""`ClipTable`: all clips that may be drawn from a dataset, and which of them are one item."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...pipeline.dataset.frame_numbers import VideoEnds, rows_of_their_videos
from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.dataset.schema import real_class
from ..dataset.columns import real_label
from ..dataset.selection import ClipRows, Rows
from ..sampling.pairing import nearest_in_source
from .clip import Clip
from .labels import clip_labels
from .runs import Runs

_CHUNK = 1 << 16  # candidates whose labels are looked at together


class ClipTable:
    """Candidates, that is clips that may be drawn, and items, each a segment of them.

    runs: of the rows. firsts: int64 (candidates,), where each begins in `runs.rows`. anchors: uint32 (items,),
    ascending. segment_starts, segment_ends, middles: int64 (items,), of an item's candidates.
    group_starts, group_ends: int64 (items,), of the candidates of its video and label. index: the dataset's, in which
    the row that names an item has the label of its clips.

    are_pairs: whether a fake needs a clip of its source beside it. `partners` are then these, int64 (candidates,), -1
    of a clip that is no fake of a source with clips; where none begins with the face of a fake, this is no candidate.
    num_unpaired: how many these are.
    """

    def __init__(self, index: IndexLike, runs: Runs, clip: Clip, *, are_pairs: bool = False) -> None:
        self.runs, self._clip = runs, clip
        firsts, run = _candidates(runs, clip)
        self.num_tracks_with_clips = len(np.unique(runs.tracks[run]))
        self.firsts, self._ends = firsts, np.append(runs.starts, len(runs.rows))[1:][run]
        labels = self._labels(index, run)
        video = index.codes("video_id", runs.rows[firsts]).astype(np.int64)
        group = video * (len(index.labels) + 1) + labels + 1
        order = np.argsort(group, kind="stable")
        if are_pairs:
            order, self.partners = self._paired(index, order, labels[order])
        self.num_unpaired = len(firsts) - len(order)
        self.firsts, self._ends, labels, group = firsts[order], self._ends[order], labels[order], group[order]
        group_starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
        group_ends = np.append(group_starts, len(group))[1:]
        starts, ends, of_group = _segments(group_starts, group_ends, clip)
        middles = (starts + ends) // 2
        by_row = np.argsort(runs.rows[self.firsts[middles]], kind="stable")
        self.segment_starts, self.segment_ends, self.middles = starts[by_row], ends[by_row], middles[by_row]
        self.anchors: Rows = runs.rows[self.firsts[self.middles]]
        self.group_starts, self.group_ends = group_starts[of_group[by_row]], group_ends[of_group[by_row]]
        self.index: IndexLike = _ClipIndex(index, self.anchors, labels[self.middles])

    def clips(self, candidates: ArrayLike) -> ClipRows:
        """The rows of these candidates."""
        positions, num_valid = self._positions(np.asarray(candidates))
        return ClipRows(self.runs.rows[positions], num_valid)

    def _positions(self, candidates: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where their images are in `runs.rows`, int64 (N, T); and how many of each are valid, int64 (N,)."""
        clip, first = self._clip, self.firsts[candidates]
        num_valid = np.minimum((self._ends[candidates] - 1 - first) // clip.stride + 1, clip.frames)
        frame = np.minimum(np.arange(clip.frames), num_valid[:, np.newaxis] - 1)
        return first[:, np.newaxis] + clip.stride * frame, num_valid

    def first_mixed_row(self, values: NDArray[np.int32]) -> int | None:
        """A row of the first segment whose images differ in a column, None where there is none.

        values: int32 (rows,), of `runs.rows`. Images that `stride` skips count too.
        """
        first, last = self.firsts, np.minimum(self.firsts + self._clip.span, self._ends) - 1
        changes = np.cumsum(values != np.roll(values, 1))
        is_mixed = changes[first] != changes[last]
        is_first = np.zeros(len(first), np.bool_)
        is_first[self.segment_starts] = True
        is_mixed |= (values[first] != np.roll(values[first], 1)) & ~is_first
        return int(self.runs.rows[first[is_mixed.argmax()]]) if is_mixed.any() else None

    def _paired(
        self, index: IndexLike, order: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of the candidates in this order, with these labels, those that pairs may have; and their `partners`."""
        real = real_class(index.labels)
        may_be_source = np.ones(len(order), np.bool_) if real is None else labels == real
        ends = VideoEnds.of_rows(index, rows_of_their_videos(index, np.sort(self.runs.rows)))
        partner, has_source = nearest_in_source(self.runs.rows[self.firsts[order]], index, ends, may_be_source)
        is_kept = ~has_source | (partner >= 0)
        number = np.cumsum(is_kept) - 1
        return order[is_kept], np.where(partner >= 0, number[partner], -1)[is_kept]

    def _labels(self, index: IndexLike, run: NDArray[np.int64]) -> NDArray[np.int64]:
        """The label of each candidate, of the run of that number: int64 (candidates,)."""
        of_rows = index.numbers("label", self.runs.rows).astype(np.int64)
        labels = of_rows[self.firsts]
        starts = self.runs.starts
        is_mixed = np.zeros(0, np.bool_)
        if len(starts):
            is_mixed = (np.minimum.reduceat(of_rows, starts) != np.maximum.reduceat(of_rows, starts))[run]
        mixed, real = np.flatnonzero(is_mixed), real_label(index.labels)
        for start in range(0, len(mixed), _CHUNK):
            part = mixed[start : start + _CHUNK]
            labels[part] = clip_labels(of_rows[self._positions(part)[0]], real)
        return labels


def _candidates(runs: Runs, clip: Clip) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each clip that may be drawn begins in `runs.rows`, and its run: two int64 (candidates,)."""
    step = clip.span if clip.pick == "all" else 1
    counts = np.maximum(runs.lengths - clip.span, -1) // step + 1
    if clip.pad:
        counts = -(-runs.lengths // step) if clip.pick == "all" else np.maximum(counts, 1)
    run = np.repeat(np.arange(len(counts)), counts)
    number_in_run = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts, counts)
    return runs.starts[run] + step * number_in_run, run


def _segments(
    groups: NDArray[np.int64], ends: NDArray[np.int64], clip: Clip
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Start and end of each segment of the groups of candidates, and which group it is of: three int64 (items,)."""
    sizes = ends - groups
    picked = sizes if clip.pick == "all" else np.minimum(sizes, clip.clips_per_video or 1)
    group = np.repeat(np.arange(len(groups)), picked)
    number = np.arange(len(group)) - np.repeat(np.cumsum(picked) - picked, picked)
    starts, ends = (groups[group] + (number + end) * sizes[group] // picked[group] for end in (0, 1))
    return starts, ends, group


class _ClipIndex:
    """An index in which the rows that name items have the labels of their clips, and no place in the frame.

    The clips of an item may be of several people: its box is the whole frame.
    """

    def __init__(self, index: IndexLike, anchors: Rows, labels: NDArray[np.int64]) -> None:
        self._index, self._anchors, self._labels = index, anchors, labels

    def __getattr__(self, name: str) -> Any:  # of an `IndexLike`, or of the index of a mixture
        return getattr(self._index, name)

    def __len__(self) -> int:
        return len(self._index)

    def numbers(self, name: str, rows: ArrayLike) -> NDArray[Any]:
        """See `Index`."""
        if name == "label":
            return self._labels[np.searchsorted(self._anchors, np.asarray(rows, np.uint32))]
        return self._index.numbers(name, rows)

    def number(self, name: str, row: int) -> Any:
        """See `Index`."""
        return self.numbers(name, [row])[0]

    def boxes(self, name: str, rows: ArrayLike) -> NDArray[np.float32]:
        """See `Index`."""
        if name != "box_xyxy":
            return self._index.boxes(name, rows)
        sides = [self._index.numbers(side, rows).astype(np.float32) for side in ("frame_width", "frame_height")]
        return np.stack([np.zeros_like(sides[0]), np.zeros_like(sides[1]), *sides], axis=1)
