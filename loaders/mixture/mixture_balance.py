"""`MixtureBalance`: a balance within each of several datasets, and the shares that these have of every batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ...pipeline.dataset.index import Selection
from ...pipeline.errors import UsageError
from ..dataset.selection import Rows
from ..real_numbers import as_float
from ..sampling.balance import Balance
from ..sampling.bound_balance import BoundBalance
from ..sampling.hashing import derive_key
from ..sampling.row_shuffler import RowShuffler
from ..whole_numbers import require_int
from .mixed_index import MixedIndex
from .shares import count_each, interleave, items_until, share_numbers

_MOST = 1e30  # the sum of a few is finite
_MOST_IMAGES = 200_000_000  # of an epoch: its order takes some 30 bytes each

Weighting: TypeAlias = Sequence[float] | Mapping[str, float]
"""A weight for each dataset of a mixture, in their order or by their names."""


@dataclass(frozen=True, kw_only=True)
class MixtureBalance:
    """The `Balance` of a mixture. Its text is part of saved states.

    each: balance within each dataset. weights, temperature: see `FaceDataLoader`. epoch_of: the dataset that an epoch
    passes through once. epoch_batches: length of an epoch in steps; both None: as many images as all datasets have.
    names: of the datasets. offsets: the first row of each in the mixture's index.
    """

    each: Balance
    weights: tuple[float, ...] | None
    temperature: float | None
    epoch_of: int | None
    epoch_batches: int | None
    names: tuple[str, ...] = field(repr=False)
    offsets: tuple[int, ...] = field(repr=False)

    @property
    def depends_on_batch(self) -> bool:
        """Whether epochs depend on how many images a step has."""
        return self.epoch_batches is not None

    def bind(self, rows: Selection, shuffler: RowShuffler) -> BoundMixture:
        """See `Balance`; raises `UsageError` that names the dataset whose rows cannot provide it."""
        if shuffler.max_per_video is not None:
            raise UsageError(
                f"max_per_video={shuffler.max_per_video}: cannot hold in a mixture, where a batch may have the end of "
                "one pass through a dataset and the beginning of the next; take frames_per_video"
            )
        parts = np.split(np.asarray(rows), np.searchsorted(rows, self.offsets[1:]))
        bounds = self._bind_each(parts, [shuffler] * len(parts))
        lengths = [bound.num_images // bound.unit_size for bound in bounds]
        shares = share_numbers(lengths, weights=self.weights, temperature=self.temperature)
        if shuffler.shuffling.mode == "window":  # each dataset has its share of a window
            bounds = self._bind_each(parts, [shuffler.for_share(share / sum(shares)) for share in shares])
        unit = bounds[0].unit_size
        num_units = sum(lengths)
        if self.epoch_batches is not None:
            num_units = self.epoch_batches * shuffler.batch_images // unit
        elif self.epoch_of is not None:
            num_units = items_until(shares, self.epoch_of, lengths[self.epoch_of])
        if self.epoch_batches is not None or self.epoch_of is not None:
            self._check_length(num_units * unit)
        return BoundMixture(
            bounds=bounds, shares=shares, num_units=num_units, is_shuffled=shuffler.shuffling.mode != "none",
            notes=[f"{name}: {note}" for name, bound in zip(self.names, bounds, strict=True) for note in bound.notes],
        )  # fmt: skip

    def _check_length(self, num_images: int) -> None:
        """Raises `UsageError` on an epoch whose order would not fit into memory."""
        if num_images > _MOST_IMAGES:
            given, remedy = f"epoch_length={self.epoch_batches}", "take fewer batches"
            if self.epoch_of is not None:
                given = f"epoch_length={self.names[self.epoch_of]!r}"
                remedy = "give that dataset a larger weight, or a number of batches"
            raise UsageError(f"{given}: an epoch of {num_images:,} images, of at most {_MOST_IMAGES:,}; {remedy}")

    def _bind_each(self, parts: Sequence[Rows], shufflers: Sequence[RowShuffler]) -> list[BoundBalance]:
        bounds = []
        for name, rows, shuffler in zip(self.names, parts, shufflers, strict=True):
            if not len(rows):
                raise UsageError(f"{name}: nothing of this split passes the filters; leave it out of the mixture")
            try:
                bounds.append(self.each.bind(rows, shuffler))
            except UsageError as error:
                raise UsageError(f"{name}: {error}") from error
        return bounds


@dataclass(kw_only=True)
class BoundMixture:
    """A `BoundBalance`: the epochs of each dataset one after another, as an endless stream, interleaved by shares.

    An epoch of a dataset's own is a pass through it. The k-th epoch of the mixture goes on where the one before ended,
    also in the middle of a pass; without shuffling, every epoch begins with the first pass, so that all are the same.

    bounds: of the datasets. shares: whole numbers; see `share_numbers`. num_units: of an epoch.
    """

    bounds: list[BoundBalance]
    shares: list[int]
    num_units: int
    is_shuffled: bool
    notes: list[str]

    def __post_init__(self) -> None:
        self.unit_size = self.bounds[0].unit_size

    @property
    def num_images(self) -> int:
        """See `BoundBalance`."""
        return self.num_units * self.unit_size

    @property
    def images_of_each(self) -> list[int]:
        """How many images of an epoch are of each dataset."""
        return [count * self.unit_size for count in count_each(self.shares, self.num_units)]

    def epoch_rows(self, epoch: int, key: int) -> Rows:
        """See `BoundBalance`."""
        source = interleave(self.shares, self.num_units)
        rows = np.empty((self.num_units, self.unit_size), np.uint32)
        for number, (bound, count) in enumerate(zip(self.bounds, self.images_of_each, strict=True)):
            start = epoch * count if self.is_shuffled else 0
            rows[source == number] = _stream(bound, start, count, derive_key(key, number)).reshape(-1, self.unit_size)
        return rows.ravel()


def _stream(bound: BoundBalance, start: int, count: int, key: int) -> Rows:
    """Rows `start` .. `start + count` of the passes through a dataset."""
    if not count:
        return np.empty(0, np.uint32)
    length = bound.num_images
    first, last = start // length, (start + count - 1) // length
    passes = [bound.epoch_rows(number, key)[:] for number in range(first, last + 1)]
    offset = start - first * length
    return np.concatenate(passes)[offset : offset + count]


def mixture_balance(
    index: MixedIndex, each: Balance, *, weights: Weighting | None, temperature: float | None,
    epoch_length: str | int | None,
) -> MixtureBalance:  # fmt: skip
    """The balance of a mixture for these arguments of `FaceDataLoader`; raises `UsageError` where they cannot hold."""
    if weights is not None and temperature is not None:
        raise UsageError("weights and temperature: both define the shares; give one of them")
    if temperature is not None and not 0 < as_float(temperature) < _MOST:
        raise UsageError(
            f"temperature={temperature!r}: must be a finite number above 0: 1 for shares in proportion to size, 2 for "
            "its square root, 100 for nearly equal ones"
        )
    epoch_of = epoch_batches = None
    if isinstance(epoch_length, str):
        if epoch_length not in index.names:
            raise UsageError(f"epoch_length={epoch_length!r}: must be one of {', '.join(index.names)}, or a number")
        epoch_of = index.names.index(epoch_length)
    elif epoch_length is not None:
        epoch_batches = require_int("epoch_length", epoch_length, minimum=1, example=1000)
    return MixtureBalance(
        each=each, weights=None if weights is None else _ordered(weights, index.names),
        temperature=None if temperature is None else float(temperature), epoch_of=epoch_of,
        epoch_batches=epoch_batches, names=tuple(index.names), offsets=tuple(index.offsets[:-1]),
    )  # fmt: skip


def _ordered(weights: Weighting, names: Sequence[str]) -> tuple[float, ...]:
    """The weights in the order of the datasets; raises `UsageError` where one is missing or no positive number."""
    example = ", ".join(f"{name!r}: 1" for name in names)
    if isinstance(weights, Mapping):
        if set(weights) != set(names):
            raise UsageError(f"weights={dict(weights)!r}: must have a weight for each dataset; try {{{example}}}")
        weights = [weights[name] for name in names]
    if not isinstance(weights, (list, tuple, np.ndarray)) or len(weights) != len(names):
        raise UsageError(f"weights={weights!r}: must be {len(names)} numbers, one for each dataset; try {{{example}}}")
    for name, weight in zip(names, weights, strict=True):
        if not 0 < as_float(weight) < _MOST:
            raise UsageError(
                f"weights: {name}={weight!r}: must be a number above 0 and below 1e30; leave a dataset out that is not "
                "wanted"
            )
    if all(float(weight).is_integer() for weight in weights):  # in one form, as saved states hold its text
        divisor = math.gcd(*map(int, weights))
        return tuple(float(int(weight) // divisor) for weight in weights)
    return tuple(map(float, weights))
