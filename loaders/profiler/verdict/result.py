"""What a profile found, and what follows from it: the parts of a step's time, and estimator B."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....pipeline.machine import usable_cores
from ..measure.recording import Recording
from .advice import Advice
from .job import Rank
from .judgement import Verdict


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A loader measured beside the one in question: what it was, and what was seen."""

    name: str
    recording: Recording
    verdict: Verdict


PART_NAMES = {
    "step alone": "step alone",
    "copy": "copy",
    "slower step": "slowed step",
    "other ranks": "other ranks",
    "transport": "transport",
    "sampling": "sampler",
    "contention": "no core free",
    "preparation": "not ready",
}
"""The parts of `Profile.bars` as the terminal, the page and the timeline call them."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Of the starvation curve: the mean step in seconds, and the waiting by the model and by the clock, 0 to 1.

    pace: how many times as long as at the step in question batches took to make meanwhile.
    """

    step: float
    predicted: float
    measured: float
    pace: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Settings of the loader, what they came to, and images a second of all ranks."""

    num_workers: int
    prefetch_factor: int | None
    verdict: Verdict
    images_per_second: float

    @property
    def code(self) -> str:
        """To paste."""
        ahead = f", prefetch_factor={self.prefetch_factor}" if self.prefetch_factor else ""
        return f"num_workers={self.num_workers}{ahead}"

    @property
    def most_waiting(self) -> float:
        """The upper bound of what the device waits, in the steady state or over a whole epoch."""
        epoch = self.verdict.epoch
        return max(self.verdict.live.upper, 0.0 if epoch is None else epoch.upper)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profile found. Times in seconds, shares 0 to 1.

    verdict: what it all comes to; within a job of several ranks that of the job, and `ranks` says what each of them
    saw; `rank` is the one that all the rest is of. explained: whether what explains it was looked for. live: all steps
    under load. alone: the same step on batches that were there already; resident: that were on the device, where that
    is another place. opening_seconds: of the first `iter()`; first_batch_seconds: from there to the first batch. cold:
    after the page cache was emptied, where that worked. trials: the loader with other transforms, and others beside it.
    followed: with the best of the advised settings, which are its name; None where none was tried or helped. cores:
    that this rank can count on. sweep: what other settings came to, the best first.
    """

    verdict: Verdict
    live: Recording
    alone: Recording
    resident: Recording | None
    opening_seconds: float
    first_batch_seconds: float
    step: str
    cold: Trial | None = None
    curve: tuple[Point, ...] = ()
    trials: tuple[Trial, ...] = ()
    followed: Trial | None = None
    advice: tuple[Advice, ...] = ()
    cores: int = field(default_factory=usable_cores)
    ranks: tuple[Rank, ...] = ()
    rank: int = 0
    explained: bool = True
    sweep: tuple[Tried, ...] = ()

    @property
    def own(self) -> Verdict:
        """The verdict on this loader alone, whatever other ranks of its job wait for."""
        return self.ranks[self.rank].verdict if self.ranks else self.verdict

    @property
    def differential(self) -> float:
        """Estimator B: slowdown compared with preloaded batches, as a share of the time, 0 to 1."""
        return 1 - float(self.alone.step.mean()) / float(self.live.period[self.live.steady].mean())

    @property
    def this(self) -> Trial:
        """The loader in question, as the others are."""
        return Trial(name="this loader", recording=self.live, verdict=self.own)

    @property
    def others(self) -> tuple[Trial, ...]:
        """All that was measured beside it, the cold cache last."""
        return self.trials if self.cold is None else (*self.trials, self.cold)

    @property
    def bars(self) -> dict[str, float]:
        """Where a step's time goes, by name, in seconds a step; together they are its period.

        step alone; copy: to the device; slower step: what loading beside it costs it; other ranks: until the batch of
        the last one is there; transport; sampling: the
        sampler kept the loop; contention: of the queue, where there are too few cores; preparation: the batch was still
        being made.
        """
        steady, live = self.live.steady, self.live
        alone = float(self.alone.step.mean())
        others = self.ranks[self.rank].for_others if self.ranks else 0.0
        resident = alone if self.resident is None else float(self.resident.step.mean())
        bars = {
            "step alone": resident,
            "copy": alone - resident,
            "slower step": float(live.step[steady].mean()) - alone - others,
            "other ranks": others,
            "transport": float(live.transport[steady].mean()),
            "sampling": float(live.sampling[steady].mean()),
            "contention": float(live.contention[steady].mean()),
            "preparation": float(live.unmade[steady].mean()),
        }
        if self.resident is None:
            del bars["copy"]
        for name in ("sampling", "other ranks"):
            if not bars[name]:
                del bars[name]
        return bars

    @property
    def fetch(self) -> float:
        """What a step takes longer when nothing is in the page cache, in seconds; 0 where that was not tried."""
        if self.cold is None:
            return 0.0
        cold, live = self.cold.recording, self.live
        return max(float(cold.period[cold.steady].mean() - live.period[live.steady].mean()), 0.0)
