"""A balance bound to the rows of a dataset: the rows of any epoch in order, as a pure function of its number.

`Unbalanced` and `Pairs` become `BoundUnits`, `Quotas` becomes `BoundQuotas`, `Weights` becomes `BoundWeights`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..dataset.selection import Rows
from .row_shuffler import RowShuffler
from .shuffling import derive_key, hash_range


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

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """The rows of one epoch in order; `key` is derived from the dataset and the seed, not from the epoch."""


@dataclass
class BoundUnits:
    """Every unit once, shuffled: single rows, or pairs of a real and a fake row.

    units: uint32 (units, unit_size), rows of the index; for `max_per_video`, a unit is an image of its first row's
    video. shuffler: of whole batches.
    """

    units: NDArray[np.uint32]
    shuffler: RowShuffler
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unit_size = self.units.shape[1]
        self.unit_shuffler = self.shuffler.for_share(1 / self.unit_size)
        self.unit_shuffler.check(self.units[:, 0])

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return self.units.size

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """See `BoundBalance`."""
        order = self.unit_shuffler(self.units[:, 0], derive_key(key, epoch))
        return self.units.take(order, axis=0).ravel()


@dataclass
class BoundQuotas:
    """Units of `sum(shares)` images, of which each group of rows fills its share, evenly interleaved."""

    groups: list[Rows]
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
            videos.append(np.unique(shuffler.index.codes("video_id", group)))
            limits.append(np.full(len(videos[-1]), shuffler.limit_of_stream(group, num_units * share)))
        codes, video = np.unique(np.concatenate(videos), return_inverse=True)
        totals = np.bincount(video, np.concatenate(limits))
        return int(totals.max()), int(codes[totals.argmax()])

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return max(sum(len(group) for group in self.groups) // self.unit_size, 1) * self.unit_size

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """See `BoundBalance`."""
        num_units = self.num_images // self.unit_size
        rows = np.empty((num_units, self.unit_size), np.uint32)
        for number, (group, share, shuffler) in enumerate(self.streams):
            num_drawn = num_units * share
            drawn = self._draw(group, epoch * num_drawn, num_drawn, derive_key(key, number))
            if self.shuffler.max_per_video is not None:
                drawn = drawn[shuffler(drawn, derive_key(key, epoch, number))]
            rows[:, self.group_of_position == number] = drawn.reshape(num_units, share)
        return rows.ravel()

    def _draw(self, group: Rows, start: int, count: int, key: int) -> Rows:
        """Rows `start` .. `start + count` of an endless stream: cycles through the group, each shuffled anew."""
        first, last = start // len(group), (start + count - 1) // len(group)
        share = len(group) / sum(len(group) for group in self.groups)
        shuffling = self.shuffler.shuffling.scaled(share)
        cycles = [shuffling(group, derive_key(key, cycle)) for cycle in range(first, last + 1)]
        offset = start - first * len(group)
        return np.concatenate(cycles)[offset : offset + count]


@dataclass
class BoundWeights:
    """Rows drawn with replacement; `cumulative_weights`: float64 (rows,)."""

    rows: Rows
    cumulative_weights: NDArray[np.float64]
    unit_size: int = 1
    notes: list[str] = field(default_factory=list)

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return len(self.rows)

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """See `BoundBalance`."""
        uniform = hash_range(len(self.rows), derive_key(key, epoch)) / 2.0**64
        drawn = np.searchsorted(self.cumulative_weights, uniform * self.cumulative_weights[-1], side="right")
        rows: Rows = self.rows[np.minimum(drawn, len(self.rows) - 1)]
        return rows
