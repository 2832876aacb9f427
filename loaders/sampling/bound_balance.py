"""A balance bound to the rows of a dataset: the rows of any epoch in order, as a pure function of its number.

`Unbalanced` and `Pairs` become `BoundUnits`, `Quotas` becomes `BoundQuotas`, `Weights` becomes `BoundWeights`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Selection
from ...pipeline.dataset.index.arrays import by_value
from ...pipeline.dataset.index.whole_videos import rows_per_video
from ..dataset.selection import Rows
from .hashing import derive_key, hash_numbers
from .orders import LazyOrder, Order, RowsInOrder
from .row_shuffler import RowShuffler


class BoundBalance(Protocol):
    """A balance bound to rows: a pure function of the epoch.

    `unit_size`: images that belong together, such as a pair; batches and ranks hold whole units. `notes`: which rows
    were left out, and why.
    """

    unit_size: int
    notes: list[str]

    @property
    def num_images(self) -> int:
        """How many images an epoch has."""

    def epoch_rows(self, epoch: int, key: int) -> Order:
        """The rows of one epoch in order; `key` is derived from the dataset and the seed, not from the epoch."""


@dataclass
class BoundUnits:
    """Every unit once, shuffled: single rows, or pairs of a real and a fake row.

    columns: rows (units,) of the index, one of each column is a unit; for `max_per_video`, a unit is an image of its
    first row's video. shuffler: of whole batches.
    """

    columns: list[Selection]
    shuffler: RowShuffler
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unit_size = len(self.columns)
        self.unit_shuffler = self.shuffler.for_share(1 / self.unit_size)
        self.unit_shuffler.check(self.columns[0])

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return len(self.columns[0]) * self.unit_size

    def epoch_rows(self, epoch: int, key: int) -> Order:
        """See `BoundBalance`."""
        return RowsInOrder(self.columns, self.unit_shuffler(self.columns[0], derive_key(key, epoch)))


@dataclass
class BoundQuotas:
    """Units of `sum(shares)` images, of which each group of rows fills its share, evenly interleaved."""

    groups: list[Selection]
    shares: list[int]
    shuffler: RowShuffler
    notes: list[str]

    def __post_init__(self) -> None:
        self.unit_size = sum(self.shares)
        # Evenly interleaved: the k-th image of a group lies at (k + 1/2) / share of the unit.
        offsets = sorted(((k + 0.5) / share, group) for group, share in enumerate(self.shares) for k in range(share))
        self.group_of_position = np.array([group for _, group in offsets])
        self.streams = [
            (group, share, self.shuffler.for_share(share / self.unit_size))
            for group, share in zip(self.groups, self.shares, strict=True)
        ]
        if self.shuffler.max_per_video is not None:
            self.shuffler.check_max_per_video(*self._most_of_one_video())

    def _most_of_one_video(self) -> tuple[int, int]:
        """The least `max_per_video` that surely holds, and the code of the video that needs it.

        A video with rows in several groups may have its most of each: each group is spread by itself, so that a step
        may hold the most of one video in all of them.
        """
        num_units = self.num_images // self.unit_size
        limits, videos = [], []
        for group, share, shuffler in self.streams:
            videos.append(rows_per_video(shuffler.index, group)[0])
            limits.append(np.full(len(videos[-1]), shuffler.limit_of_stream(group, num_units * share)))
        codes, video = np.unique(np.concatenate(videos), return_inverse=True)
        totals = np.bincount(video, np.concatenate(limits))
        return int(totals.max()), int(codes[totals.argmax()])

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return max(sum(len(group) for group in self.groups) // self.unit_size, 1) * self.unit_size

    def epoch_rows(self, epoch: int, key: int) -> Order:
        """See `BoundBalance`."""
        if self.shuffler.max_per_video is None:
            return _QuotaOrder(self, epoch, key)
        num_units = self.num_images // self.unit_size
        rows = np.empty((num_units, self.unit_size), np.uint32)
        for number, (_, share, shuffler) in enumerate(self.streams):
            num_drawn, stream = num_units * share, _Stream(self, number, key)
            drawn = stream[epoch * num_drawn + np.arange(num_drawn)]
            drawn = drawn[shuffler(drawn, derive_key(key, epoch, number))[:]]
            rows[:, self.group_of_position == number] = drawn.reshape(num_units, share)
        return rows.ravel()


class _Stream:
    """The rows of a group in an endless stream: cycles through the group, each shuffled anew."""

    def __init__(self, bound: BoundQuotas, number: int, key: int) -> None:
        self._group, self._key = bound.groups[number], derive_key(key, number)
        share = len(self._group) / sum(len(group) for group in bound.groups)
        self._shuffling = bound.shuffler.shuffling.scaled(share)
        self._cycles: dict[int, Order] = {}  # those that were last asked for

    def __getitem__(self, positions: NDArray[np.int64]) -> Rows:
        cycles, offsets = np.divmod(positions, len(self._group))
        rows = np.empty(len(positions), np.uint32)
        kept, self._cycles = self._cycles, {}
        for cycle, own in by_value(cycles):
            order = kept[cycle] if cycle in kept else self._order(cycle)
            rows[own] = self._group[order[offsets[own]]]
            self._cycles[cycle] = order
        return rows

    def _order(self, cycle: int) -> Order:
        return self._shuffling.order(len(self._group), derive_key(self._key, cycle))


class _QuotaOrder(LazyOrder):
    """The rows of an epoch of `BoundQuotas` without `max_per_video`."""

    def __init__(self, bound: BoundQuotas, epoch: int, key: int) -> None:
        self._bound = bound
        self._streams = [_Stream(bound, number, key) for number in range(len(bound.groups))]
        num_units = bound.num_images // bound.unit_size
        self._starts = [epoch * num_units * share for share in bound.shares]
        is_group = bound.group_of_position == np.arange(len(bound.groups))[:, np.newaxis]
        self._rank_in_group = (np.cumsum(is_group, axis=1) - 1)[bound.group_of_position, np.arange(bound.unit_size)]

    def __len__(self) -> int:
        return self._bound.num_images

    def _at(self, positions: NDArray[np.int64]) -> Rows:
        units, at = np.divmod(positions, self._bound.unit_size)
        rows = np.empty(len(positions), np.uint32)
        for number, own in by_value(self._bound.group_of_position[at]):
            drawn = self._starts[number] + units[own] * self._bound.shares[number] + self._rank_in_group[at[own]]
            rows[own] = self._streams[number][drawn]
        return rows


@dataclass
class BoundWeights:
    """Rows drawn with replacement; `cumulative_weights`: float64 (rows,)."""

    rows: Selection
    cumulative_weights: NDArray[np.float64]
    unit_size: int = 1
    notes: list[str] = field(default_factory=list)

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return len(self.rows)

    def epoch_rows(self, epoch: int, key: int) -> Order:
        """See `BoundBalance`."""
        return _DrawnRows(self, derive_key(key, epoch))


class _DrawnRows(LazyOrder):
    """The rows of an epoch of `BoundWeights`."""

    def __init__(self, bound: BoundWeights, key: int) -> None:
        self._bound, self._key = bound, key

    def __len__(self) -> int:
        return len(self._bound.rows)

    def _at(self, positions: NDArray[np.int64]) -> Rows:
        cumulative = self._bound.cumulative_weights
        uniform = hash_numbers(positions.astype(np.uint64), self._key) / 2.0**64
        drawn = np.searchsorted(cumulative, uniform * cumulative[-1], side="right")
        rows: Rows = self._bound.rows[np.minimum(drawn, len(self) - 1)]
        return rows
