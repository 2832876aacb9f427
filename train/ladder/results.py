"""Measurements of rungs, and their comparison by medians and spreads over repeats."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .rungs import Rung

Outcome = Literal["ran", "refused", "failed"]


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """Peak memory of one training, in bytes.

    allocated_bytes: of tensors on the GPU. reserved_bytes: by torch's allocator on the GPU. Both of the rank with the
    most, None without a GPU.
    host_bytes: of the training process and its workers in host memory. host_before_bytes: part of it from before the
    model was created: Python, torch, Lightning.
    """

    allocated_bytes: int | None
    reserved_bytes: int | None
    host_bytes: int
    host_before_bytes: int


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One repeat of a rung, in a process of its own.

    seconds: of `steps` steps after the warm-up, including waits for batches. samples: in these, over all ranks.
    warm_up_steps: before them. trained_samples, updates: from the fit's start to the end of the measured steps, over
    all ranks: samples, and steps of the optimizer.
    steps_per_epoch: None for an endless epoch. ending_seconds: of an epoch's end besides its validation, such as saving
    a checkpoint. warm_up_seconds: from the fit's start to the end of the warm-up, including compilation. stall_share:
    fraction of time that steps waited for data, 0 to 1, on the rank that waited longest; None if unknown.
    energy_joules: that the GPUs of all ranks took in `seconds`; None if unknown, for the `energy_reason`. loss: mean
    over the measured samples of all ranks; None if the steps return none. metrics: logged by the module's validation,
    after `trained_samples`. devices: number of ranks, each with a batch per step.
    """

    seconds: float
    steps: int
    samples: int
    warm_up_steps: int
    trained_samples: int
    updates: int
    steps_per_epoch: int | None
    ending_seconds: float
    warm_up_seconds: float
    stall_share: float | None
    memory: PeakMemory
    energy_joules: float | None
    energy_reason: str | None
    loss: float | None
    metrics: Mapping[str, float]
    devices: int

    @property
    def seconds_per_sample(self) -> float:
        """Seconds per sample, including a proportional part of `ending_seconds`."""
        ending = self.ending_seconds * self.steps / self.steps_per_epoch if self.steps_per_epoch else 0.0
        return (self.seconds + ending) / self.samples

    @property
    def samples_per_second(self) -> float:
        """Throughput in samples per second, over all ranks."""
        return 1 / self.seconds_per_sample

    @property
    def energy_joules_per_1000_samples(self) -> float | None:
        """Energy of 1,000 samples in joules; None if unknown."""
        return None if self.energy_joules is None else self.energy_joules / self.samples * 1000

    @property
    def epoch_seconds(self) -> float | None:
        """Seconds of an epoch without its validation; None for an endless one."""
        if self.steps_per_epoch is None:
            return None
        return self.seconds_per_sample * self.samples / self.steps * self.steps_per_epoch

    @property
    def is_whole_epoch(self) -> bool:
        """Whether a whole epoch was measured; else its duration is extrapolated from `steps`."""
        return self.steps_per_epoch is not None and self.steps >= self.steps_per_epoch


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of a metric over repeats."""

    least: float
    median: float
    most: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Spread | None:
        """Returns the spread of values; None without values."""
        return cls(min(values), statistics.median(values), max(values)) if values else None

    def ratio_to(self, other: Spread) -> Spread:
        """Returns the ratio: of the medians, with the extremes over all pairs of repeats."""
        return Spread(self.least / other.most, self.median / other.median, self.most / other.least)

    def multiplied_by(self, other: Spread) -> Spread:
        """Returns the product of two factors, such as speed-ups over a common base."""
        return Spread(self.least * other.least, self.median * other.median, self.most * other.most)


@dataclass
class RungResult:
    """A rung with its repeats, by round number.

    reason: why it was refused or failed; None if it ran.
    """

    rung: Rung
    repeats: dict[int, Measurement] = field(default_factory=dict)
    outcome: Outcome = "ran"
    reason: str | None = None

    def spread(
        self, metric: Callable[[Measurement], float | None], rounds: Sequence[int] | None = None
    ) -> Spread | None:
        """Returns the spread of a metric over the repeats of some rounds (None: all); None without any value."""
        chosen = [repeat for number, repeat in self.repeats.items() if rounds is None or number in rounds]
        values = [value for value in map(metric, chosen) if value is not None]
        return Spread.from_values([value for value in values if math.isfinite(value)])

    def metric(self, *names: str) -> Spread | None:
        """Returns the spread of the first validation metric that exists: "auc" is `val/auc`, or else `val_auc`."""
        known = [metric for repeat in self.repeats.values() for metric in repeat.metrics]
        called = [metric for name in names for metric in known if metric.split("/")[-1] == name]
        ending = [metric for name in names for metric in known if metric.endswith(f"_{name}")]
        first = next(iter([*called, *ending]), None)
        return None if first is None else self.spread(lambda repeat: repeat.metrics.get(first))

    @property
    def trained_samples(self) -> int | None:
        """Samples that its repeats were trained on, at most; None without any."""
        return max((repeat.trained_samples for repeat in self.repeats.values()), default=None)

    def has_samples_of(self, base: RungResult | None) -> bool:
        """Whether every repeat was trained, and measured, on as many samples as those of `base`; True without one.

        Only then do losses and metrics compare.
        """
        compared = [*self.repeats.values(), *(base.repeats.values() if base is not None else ())]
        return base is None or len({(repeat.trained_samples, repeat.samples) for repeat in compared}) == 1

    def speed_up(self, base: RungResult | None) -> Spread | None:
        """Returns the speed-up over `base`, over rounds in which both ran; None without any."""
        if base is None:
            return None
        shared = sorted(self.repeats.keys() & base.repeats.keys())
        ours = self.spread(lambda repeat: repeat.samples_per_second, shared)
        theirs = base.spread(lambda repeat: repeat.samples_per_second, shared)
        return ours.ratio_to(theirs) if ours is not None and theirs is not None else None

    def pays(self, base: RungResult | None) -> bool:
        """Whether even the slowest repeat is faster than the fastest of `base`.

        False for a single repeat, which has no spread, and for a non-finite loss: broken training may well be fast.
        """
        speed_up = self.speed_up(base)
        enough = base is not None and len(self.repeats.keys() & base.repeats.keys()) > 1
        sound = self.outcome == "ran" and all(math.isfinite(repeat.loss or 0.0) for repeat in self.repeats.values())
        return sound and enough and speed_up is not None and speed_up.least > 1
