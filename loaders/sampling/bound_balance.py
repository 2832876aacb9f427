"""A balance bound to the rows of a dataset: the rows of any epoch in order, as a pure function of its number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..dataset.selection import Rows
from .order import derive_key, hash_range
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

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """The rows of one epoch in order; `key` is derived from the dataset and the seed, not from the epoch."""


@dataclass
class BoundUnbalanced:
    """Every row once, shuffled."""

    rows: Rows
    shuffler: RowShuffler
    unit_size: int = 1
    notes: list[str] = field(default_factory=list)

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return len(self.rows)

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """See `BoundBalance`."""
        return self.rows[self.shuffler(self.rows, self.rows, derive_key(key, epoch))]


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
        offsets = sorted(
            ((k + 0.5) / share, group) for group, share in enumerate(self.shares) for k in range(share)
        )  # fmt: skip
        self.group_of_position = np.array([group for _, group in offsets])
        num_units = self.num_images // self.unit_size
        self.shuffler.check_streams(
            self.groups, [num_units * share for share in self.shares], [share / self.unit_size for share in self.shares]
        )

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return max(sum(len(group) for group in self.groups) // self.unit_size, 1) * self.unit_size

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """See `BoundBalance`."""
        num_units = self.num_images // self.unit_size
        rows = np.empty((num_units, self.unit_size), np.uint32)
        for number, (group, share) in enumerate(zip(self.groups, self.shares, strict=True)):
            num_drawn = num_units * share
            drawn = self._draw(group, epoch * num_drawn, num_drawn, derive_key(key, number))
            if self.shuffler.max_per_video is not None:
                order_key = derive_key(key, epoch, number)
                drawn = drawn[self.shuffler(drawn, drawn, order_key, share=share / self.unit_size)]
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


@dataclass
class BoundPairs:
    """Pairs of a real and a fake row, shuffled as pairs."""

    real: Rows
    fake: Rows
    shuffler: RowShuffler
    notes: list[str]
    unit_size: int = 2

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return 2 * len(self.fake)

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """See `BoundBalance`."""
        order = self.shuffler(self.fake, self.real, derive_key(key, epoch), share=0.5)
        return np.stack([self.real[order], self.fake[order]], axis=1).ravel()
