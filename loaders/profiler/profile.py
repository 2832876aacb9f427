"""`profile(loader, step)`: the three estimators on one loader, in turns, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...pipeline.errors import UsageError
from .bounds import Bounded
from .live import Pass, replay
from .recording import Recording
from .steps import SleepingStep
from .verdict import Verdict, Word, judge

Progress = Callable[[int, int], None]

_TURNS = 5
_REPLAYED_PART = 4  # a replay takes a fourth of the steps that it is compared with


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a profile found. Times in seconds, shares 0 to 1.

    live: all steps under load. alone: the same step on batches that were there already. differential: estimator B, the
    part of the time that goes with loading, whatever the reason. opening_seconds: of the first `iter()`;
    first_batch_seconds: from there to the first batch.
    """

    verdict: Verdict
    live: Recording
    alone: Recording
    differential: float
    opening_seconds: float
    first_batch_seconds: float
    step: str

    @property
    def bars(self) -> dict[str, float]:
        """Where a step's time goes, by name, in seconds a step; together they are its period.

        step alone; slower step: what loading beside it costs it; transport; contention: of the queue, where there are
        too few cores; not made: the batch was still being made.
        """
        steady, live = self.live.steady, self.live
        alone = float(self.alone.step.mean())
        return {
            "step alone": alone,
            "slower step": float(live.step[steady].mean()) - alone,
            "transport": float(live.transport[steady].mean()),
            "contention": float(live.contention[steady].mean()),
            "not made": float(live.unmade[steady].mean()),
        }

    @property
    def spans(self) -> dict[str, float]:
        """How long a batch takes to make, by what is done, in seconds a batch; "other" is what nobody timed."""
        stamps = [stamp for stamp, steady in zip(self.live.stamps, self.live.steady, strict=False) if steady]
        if not stamps:
            return {}
        names = sorted({name for stamp in stamps for name in stamp.spans})
        found = {name: float(np.mean([stamp.spans.get(name, 0.0) for stamp in stamps])) for name in names}
        found["other"] = max(
            float(np.mean([stamp.finish - stamp.start for stamp in stamps])) - sum(found.values()), 0.0
        )
        return found

    @property
    def images_per_second(self) -> float:
        """Of the steady state."""
        steady = self.live.steady
        seconds = float(self.live.period[steady].sum())
        return self.live.images / len(self.live) * int(steady.sum()) / seconds if seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a profile has to show: bounds, not means. None: not asked for."""

    max_stall: float | None = None
    min_headroom: float | None = None

    def __post_init__(self) -> None:
        if self.max_stall is not None and not 0 < self.max_stall < 1:
            raise UsageError(f"max_stall={self.max_stall}: must be a share between 0 and 1; try 0.01")
        if self.min_headroom is not None and not self.min_headroom > 0:
            raise UsageError(f"min_headroom={self.min_headroom}: must be above 0; try 1.5")

    def failures(self, verdict: Verdict) -> list[str]:
        """What a verdict does not show of it."""
        found = []
        if self.max_stall is not None and verdict.live.upper > self.max_stall:
            found.append(f"stall <= {verdict.live.upper:.2%}, wanted {self.max_stall:.2%}")
        if self.min_headroom is not None and (verdict.headroom is None or verdict.headroom < self.min_headroom):
            seen = "not known" if verdict.headroom is None else f"{verdict.headroom:.2f}x"
            found.append(f"headroom {seen}, wanted {self.min_headroom:.2f}x")
        return found

    def exit_code(self, verdict: Verdict) -> int:
        """0: good; 1: starved, marginal or not what was asked for; 4: inconclusive."""
        if verdict.word is Word.INCONCLUSIVE:
            return 4
        if self != Gate():
            return int(bool(self.failures(verdict)))
        return int(verdict.word is not Word.FED)


def profile(
    loader: Any, step: Callable[[Any], Any], *, steps: int = 1000, confidence: float = 0.95,
    progress: Progress | None = None,
) -> Profile:  # fmt: skip
    """Goes through a loader's batches with a step as training would, and says how long it waited, and how sure that is.

    loader: a `FaceDataLoader`, any torch DataLoader, or any iterable of batches that can be iterated again. step: what
    is done with a batch; a `SleepingStep` stands for one where there is no GPU. steps: of the steady state; the
    interval narrows with their root. progress: called with steps done and steps in all.

    Real steps and replayed ones take turns, so that a machine that drifts drifts under both.
    """
    if steps < 50:
        raise UsageError(f"steps={steps}: must be at least 50; try 1000")
    passing, kept = Pass(loader), list[Any]()
    passing.record(1, step, keep=kept)
    lives, alones = [], []
    each = -(-steps // _TURNS)
    for turn in range(_TURNS):
        lives.append(passing.record(each + max(passing.ahead, 1), step))
        alones.append(replay(kept, max(each // _REPLAYED_PART, 10), step))
        if progress is not None:
            progress(min((turn + 1) * each, steps), steps)
    live, alone = Recording.joined(lives), Recording.joined(alones)
    emulated = isinstance(step, SleepingStep)
    period = float(live.period[live.steady].mean()) if live.steady.any() else 0.0
    return Profile(
        verdict=judge(live, emulated=emulated, confidence=confidence), live=live, alone=alone,
        differential=1 - float(alone.step.mean()) / period if period else 0.0,
        opening_seconds=passing.opening_seconds, first_batch_seconds=passing.first_batch_seconds,
        step=str(step) if emulated else getattr(step, "__qualname__", type(step).__name__),
    )  # fmt: skip


__all__ = ["Bounded", "Gate", "Profile", "Verdict", "Word", "profile"]
