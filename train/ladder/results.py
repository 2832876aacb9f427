"""What was measured of each rung, and what it is against another: medians, and the spread that guards against noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .rungs import Rung

Outcome = Literal["ran", "refused", "failed"]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Most memory of one training, in bytes.

    allocated_bytes: of tensors on the GPU. reserved_bytes: what torch had taken from the GPU for them. None without a
    GPU. host_bytes: of the training process and its workers in the machine's memory. host_before_bytes: what of that
    was there before the model was made: Python, torch, Lightning.
    """

    allocated_bytes: int | None
    reserved_bytes: int | None
    host_bytes: int
    host_before_bytes: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One repeat of a rung, in a process of its own.

    seconds: of `steps` steps after the warm-up, waiting for batches included. samples: in these, over all ranks.
    steps_per_epoch: None where an epoch has no end. ending_seconds: what an epoch's end takes besides its validation,
    as saving a checkpoint does. warm_up_seconds: from the fit's start to the end of the warm-up, where compiling falls.
    stall_share: of the time in which the step waited for data, 0 to 1; None where nobody knows. loss: mean over the
    measured steps; None where the steps hand none out. metrics: as the module's validation logged them. devices: that
    shared the work; of each a batch a step.
    """

    seconds: float
    steps: int
    samples: int
    steps_per_epoch: int | None
    ending_seconds: float
    warm_up_seconds: float
    stall_share: float | None
    memory: Memory
    loss: float | None
    metrics: Mapping[str, float]
    devices: int

    @property
    def seconds_per_sample(self) -> float:
        """With each step's share of what an epoch's end takes."""
        ending = self.ending_seconds * self.steps / self.steps_per_epoch if self.steps_per_epoch else 0.0
        return (self.seconds + ending) / self.samples

    @property
    def samples_per_second(self) -> float:
        """Samples that training gets through in a second, over all ranks."""
        return 1 / self.seconds_per_sample

    @property
    def epoch_seconds(self) -> float | None:
        """One epoch without its validation; None where it has no end."""
        if self.steps_per_epoch is None:
            return None
        return self.seconds_per_sample * self.samples / self.steps * self.steps_per_epoch

    @property
    def is_whole_epoch(self) -> bool:
        """Whether an epoch was measured; else its time is extrapolated from `steps`."""
        return self.steps_per_epoch is not None and self.steps >= self.steps_per_epoch


@dataclass(frozen=True)
class Spread:
    """A figure over repeats."""

    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """None where there are no values."""
        return cls(min(values), statistics.median(values), max(values)) if values else None

    def over(self, other: Spread) -> Spread:
        """The quotient: of the medians; and at least and at most, whichever two repeats are compared."""
        return Spread(self.least / other.most, self.median / other.median, self.most / other.least)

    def through(self, other: Spread) -> Spread:
        """The product: so many times as fast as what is `other` times as fast as a third."""
        return Spread(self.least * other.least, self.median * other.median, self.most * other.most)


@dataclass
class Row:
    """A rung with its repeats, by the number of the round each ran in.

    reason: why it did not run, or not to the end; None where it did.
    """

    rung: Rung
    repeats: dict[int, Measured] = field(default_factory=dict)
    outcome: Outcome = "ran"
    reason: str | None = None

    def spread(self, figure: Callable[[Measured], float | None], rounds: Sequence[int] | None = None) -> Spread | None:
        """Of a figure over the repeats of some rounds (None: of all); None where no repeat knows it."""
        chosen = [one for number, one in self.repeats.items() if rounds is None or number in rounds]
        values = [value for value in map(figure, chosen) if value is not None]
        return Spread.of([value for value in values if math.isfinite(value)])

    def metric(self, *names: str) -> Spread | None:
        """Of the validation metric that is called so, as "auc" is `val/auc`, or else `val_auc`; the first there is."""
        known = [one for repeat in self.repeats.values() for one in repeat.metrics]
        called = [one for name in names for one in known if one.split("/")[-1] == name]
        ending = [one for name in names for one in known if one.endswith(f"_{name}")]
        found = next(iter([*called, *ending]), None)
        return None if found is None else self.spread(lambda one: one.metrics.get(found))

    def speed_up(self, base: Row | None) -> Spread | None:
        """How many times as fast as `base`, by the repeats of the rounds in which both ran; None without any."""
        if base is None:
            return None
        shared = sorted(self.repeats.keys() & base.repeats.keys())
        ours = self.spread(lambda one: one.samples_per_second, shared)
        theirs = base.spread(lambda one: one.samples_per_second, shared)
        return ours.over(theirs) if ours is not None and theirs is not None else None

    def pays(self, base: Row | None) -> bool:
        """Whether even its slowest repeat is faster than the fastest of `base`; never told from one repeat alone.

        Nor of one whose loss was not finite: what computes nothing may well be fast.
        """
        found = self.speed_up(base)
        enough = base is not None and len(self.repeats.keys() & base.repeats.keys()) > 1
        sound = self.outcome == "ran" and all(math.isfinite(one.loss or 0.0) for one in self.repeats.values())
        return sound and enough and found is not None and found.least > 1
