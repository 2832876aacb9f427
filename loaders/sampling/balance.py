"""What makes up a batch: natural shares, exact quotas, weights, or real/fake pairs.

Each is a frozen value that users hand to `FaceDataLoader(balance=...)`; bound to the rows of a dataset it becomes a
`Mix`, which says for every epoch which rows come in which order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.index import Index
from ...pipeline.errors import UsageError
from .. import validation
from ..dataset.selection import Rows
from .order import hashes, key_of
from .spreading import Arrangement

BalanceName = Literal["none", "classes", "pairs"]
"""What commands call these."""

_MOST_WEIGHT = 1e9  # so that the sum over any number of rows keeps its digits


class Mix(Protocol):
    """A balance bound to rows: a pure function of the epoch.

    `unit`: rows that belong together, so that batches and ranks hold whole units. `notes`: what was left out and why.
    """

    unit: int
    notes: list[str]

    @property
    def images(self) -> int:
        """How many images an epoch has."""

    def epoch(self, number: int, key: int) -> Rows:
        """The rows of one epoch in order; `key` stands for dataset, seed and settings, not for the epoch."""


class Balance(Protocol):
    """What can be handed to a loader as `balance`."""

    def bind(self, rows: Rows, arrange: Arrangement) -> Mix:
        """Ties the balance to the selected rows; raises `UsageError` where they cannot give it."""


@dataclass(frozen=True, kw_only=True)
class Natural:
    """Every selected row once an epoch."""

    def bind(self, rows: Rows, arrange: Arrangement) -> Mix:
        """See `Balance`."""
        arrange.check(rows)
        return _NaturalMix(rows, arrange)


@dataclass(frozen=True)
class Quotas:
    """Exact shares in every batch: `Quotas({"real": 1, "fake": 3})` makes a quarter of each batch real.

    `column`: whose values are named; "label" by its names, else a column of strings such as "method". Each value
    streams through its own rows, over the ends of epochs, so that within one value all rows come equally often; an
    epoch has as many images as there are rows of the named values. Batches must be a multiple of the shares' sum.
    """

    shares: Mapping[str, int]
    column: str = "label"

    def __post_init__(self) -> None:
        if not isinstance(self.shares, Mapping) or not self.shares:
            raise UsageError(f"Quotas({self.shares!r}): needs a share for each value; try {{'real': 1, 'fake': 1}}")
        for name, share in self.shares.items():
            validation.whole(f"Quotas: {name}", share, least=1, such_as=1)

    def bind(self, rows: Rows, arrange: Arrangement) -> Mix:
        """See `Balance`."""
        if arrange.shuffling.mode == "window" and arrange.max_per_video is not None:
            raise UsageError("Quotas: max_per_video cannot hold together with shuffle='window'; take shuffle='full'")
        groups, notes = _rows_by_value(rows, arrange.index, self.column, list(self.shares))
        return _QuotaMix(groups, list(self.shares.values()), arrange, notes)


@dataclass(frozen=True)
class Weights:
    """Rows drawn with replacement, each with the weight of its value: `Weights({"NeuralTextures": 2.0})`.

    Values that are not named weigh 1. An epoch has as many images as there are rows.
    """

    weights: Mapping[str, float]
    column: str = "label"

    def __post_init__(self) -> None:
        if not isinstance(self.weights, Mapping) or not self.weights:
            raise UsageError(f"Weights({self.weights!r}): needs a weight for each value; try {{'fake': 2.0}}")
        for name, weight in self.weights.items():
            if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= float(weight) <= _MOST_WEIGHT:
                raise UsageError(f"Weights: {name}={weight!r}: must be a number from 0 to {_MOST_WEIGHT:g}; try 2.0")

    def bind(self, rows: Rows, arrange: Arrangement) -> Mix:
        """See `Balance`."""
        if arrange.max_per_video is not None or arrange.shuffling.mode == "window":
            raise UsageError(
                "Weights: draws freely, so neither max_per_video nor shuffle='window' can hold; try Quotas"
            )
        values, names = _values(rows, arrange.index, self.column)
        _check_names(self.weights, names, self.column)
        each = np.array([self.weights.get(name, 1.0) for name in names] + [1.0])
        weights = each[values]
        if not weights.any():
            raise UsageError(f"Weights({dict(self.weights)}): no row has a weight above 0")
        return _WeightMix(rows, np.cumsum(weights))


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Real and fake side by side: each fake follows the same (or the nearest) frame of the video it was made from.

    Even places of a batch are real, odd ones fake. Fakes whose source has no row are left out, and counted.
    """

    def bind(self, rows: Rows, arrange: Arrangement) -> Mix:
        """See `Balance`."""
        real, fake = _pairs(rows, arrange.index)
        if not len(fake):
            raise UsageError("Pairs: no fake of these rows has rows of its source; is source_id known in this dataset?")
        arrange.check(real, share=0.5)
        orphans = int((arrange.index.codes("source_id", rows) >= 0).sum()) - len(fake)
        return _PairMix(real, fake, arrange, [f"{orphans:,} fakes without rows of their source"] if orphans else [])


def balance_of(name: BalanceName, index: Index, rows: Rows) -> Quotas | Pairs | None:
    """The balance that a command calls so, for these rows: "classes" takes as many of each label that they have.

    Raises `UsageError` where no row has a known label.
    """
    if name == "none":
        return None
    if name == "pairs":
        return Pairs()
    present = np.unique(index.numbers("label", rows))
    names = [index.labels[number] for number in present if number >= 0]
    if not names:
        raise UsageError("balance=classes: no face of this split has a known label; take none")
    return Quotas(dict.fromkeys(names, 1))


@dataclass
class _NaturalMix:
    rows: Rows
    arrange: Arrangement
    unit: int = 1
    notes: list[str] = field(default_factory=list)

    @property
    def images(self) -> int:
        return len(self.rows)

    def epoch(self, number: int, key: int) -> Rows:
        return self.rows[self.arrange(self.rows, self.rows, key_of(key, number))]


@dataclass
class _QuotaMix:
    groups: list[Rows]
    shares: list[int]
    arrange: Arrangement
    notes: list[str]

    def __post_init__(self) -> None:
        self.unit = sum(self.shares)
        # Evenly interleaved: the k-th of a value's places lies at (k + 1/2) / share of the unit.
        places = sorted(
            ((k + 0.5) / share, value) for value, share in enumerate(self.shares) for k in range(share)
        )  # fmt: skip
        self.pattern = np.array([value for _, value in places])
        units = self.images // self.unit
        self.arrange.check_streams(
            self.groups, [units * share for share in self.shares], [share / self.unit for share in self.shares]
        )

    @property
    def images(self) -> int:
        return max(sum(len(group) for group in self.groups) // self.unit, 1) * self.unit

    def epoch(self, number: int, key: int) -> Rows:
        units = self.images // self.unit
        rows = np.empty((units, self.unit), np.uint32)
        for value, (group, share) in enumerate(zip(self.groups, self.shares, strict=True)):
            drawn = self._stream(group, number * units * share, units * share, key_of(key, value))
            if self.arrange.max_per_video is not None:
                order = self.arrange(drawn, drawn, key_of(key, number, value), share=share / self.unit)
                drawn = drawn[order]
            rows[:, self.pattern == value] = drawn.reshape(units, share)
        return rows.ravel()

    def _stream(self, group: Rows, start: int, count: int, key: int) -> Rows:
        """A stretch of the endless stream that goes through all rows of a group again and again, mixed anew."""
        first, last = start // len(group), (start + count - 1) // len(group)
        part = len(group) / sum(len(group) for group in self.groups)
        shuffling = self.arrange.shuffling.scaled(part)
        cycles = [shuffling(group, key_of(key, cycle)) for cycle in range(first, last + 1)]
        offset = start - first * len(group)
        return np.concatenate(cycles)[offset : offset + count]


@dataclass
class _WeightMix:
    rows: Rows
    cumulative: NDArray[np.float64]
    unit: int = 1
    notes: list[str] = field(default_factory=list)

    @property
    def images(self) -> int:
        return len(self.rows)

    def epoch(self, number: int, key: int) -> Rows:
        uniform = hashes(len(self.rows), key_of(key, number)) / 2.0**64
        drawn = np.searchsorted(self.cumulative, uniform * self.cumulative[-1], side="right")
        rows: Rows = self.rows[np.minimum(drawn, len(self.rows) - 1)]
        return rows


@dataclass
class _PairMix:
    real: Rows
    fake: Rows
    arrange: Arrangement
    notes: list[str]
    unit: int = 2

    @property
    def images(self) -> int:
        return 2 * len(self.fake)

    def epoch(self, number: int, key: int) -> Rows:
        order = self.arrange(self.fake, self.real, key_of(key, number), share=0.5)
        return np.stack([self.real[order], self.fake[order]], axis=1).ravel()


def _values(rows: Rows, index: Index, column: str) -> tuple[NDArray[np.int64], list[str]]:
    """Each row's value as a position in a list of names; -1 where it has none."""
    if column == "label":
        return index.numbers("label", rows).astype(np.int64), list(index.labels)
    if column not in index.text_columns:
        raise UsageError(f"column={column!r}: must be label or one of {', '.join(index.text_columns)}")
    return index.codes(column, rows).astype(np.int64), index.names(column)


def _check_names(wanted: Mapping[str, Any], names: list[str], column: str) -> None:
    if unknown := [name for name in wanted if name not in names]:
        raise UsageError(f"{unknown[0]!r}: no {column} is called so; there are {', '.join(names) or 'none'}")


def _rows_by_value(rows: Rows, index: Index, column: str, wanted: list[str]) -> tuple[list[Rows], list[str]]:
    values, names = _values(rows, index, column)
    _check_names(dict.fromkeys(wanted), names, column)
    groups = [rows[values == names.index(name)] for name in wanted]
    for name, group in zip(wanted, groups, strict=True):
        if not len(group):
            raise UsageError(f"Quotas: no selected row has {column} {name!r}")
    left = len(rows) - sum(len(group) for group in groups)
    return groups, [f"{left:,} rows of no named {column}"] if left else []


def _pairs(rows: Rows, index: Index) -> tuple[Rows, Rows]:
    """For each fake the nearest row of its source: `(real, fake)`, two arrays (pairs,)."""
    number = {name: code for code, name in enumerate(index.names("video_id"))}
    video_of = np.array([number.get(name, -1) for name in index.names("source_id")] + [-1], np.int64)
    source, video = video_of[index.codes("source_id", rows)], index.codes("video_id", rows).astype(np.int64)
    frame, track = (index.numbers(name, rows).astype(np.int64) for name in ("frame_index", "track_id"))
    fakes, reals = np.flatnonzero(source >= 0), np.flatnonzero(source < 0)
    if not len(fakes) or not len(reals):
        return rows[:0], rows[:0]
    best, away = _nearest(source[fakes], frame[fakes], video[reals], frame[reals])
    tracks = int(track.max()) + 1  # of several people in a frame, rather the one of the same number
    same, as_far = _nearest(
        source[fakes] * tracks + track[fakes], frame[fakes], video[reals] * tracks + track[reals], frame[reals]
    )
    best = np.where(as_far == away, same, best)
    found = away < _FAR
    return rows[reals[best[found]]], rows[fakes[found]]


_FAR = np.iinfo(np.int64).max


def _nearest(
    groups: NDArray[np.int64], frames: NDArray[np.int64], among: NDArray[np.int64], their_frames: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each item the one of its group whose frame is nearest, the earlier of two; and how many frames away it is.

    `_FAR` where its group is not `among` them.
    """
    order = np.lexsort((their_frames, among))
    bits = int(max(frames.max(), their_frames.max())).bit_length()
    at = np.searchsorted(among[order] << bits | their_frames[order], groups << bits | frames)
    best, away = np.zeros(len(groups), np.int64), np.full(len(groups), _FAR)
    for neighbour in (order[np.clip(at - 1, 0, len(order) - 1)], order[np.clip(at, 0, len(order) - 1)]):
        distance = np.where(among[neighbour] == groups, np.abs(their_frames[neighbour] - frames), _FAR)
        nearer = distance < away
        best[nearer], away[nearer] = neighbour[nearer], distance[nearer]
    return best, away
