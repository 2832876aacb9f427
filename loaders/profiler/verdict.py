"""From a recording to a judgement: how much of the time the step waited, how sure that is, and what it is called."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ...pipeline.machine import usable_cores
from .bounds import Bounded, block_length, rate, share
from .recording import Recording
from .situation import Situation

FED_BELOW, _STARVED_ABOVE = 0.01, 0.05
_MUCH_HANDING, _MOST_HANDING = 0.05, 0.25
_HUGE = 100.0
_MOST_OPEN = 0.02  # of the time unaccounted for, and of the two estimators apart
_MOST_OVERHEAD = 0.01
_FEWEST_BLOCKS = 20
WARM_BYTES = 1000
"""What an image may bring from storage, with all that a process reads besides, where files are in the page cache."""


class Word(StrEnum):
    """FED: both upper bounds under 1 %. STARVED: the stall's lower bound over 5 %. MARGINAL: between."""

    FED = "FED"
    MARGINAL = "MARGINAL"
    STARVED = "STARVED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a recording shows of its steady state. Shares are 0 to 1, times in seconds.

    live: estimator A, measured stall over time. handing: share of the time that goes into handing over batches that are
    there, which is no stall. model: estimator C, the same by the queue, from how long batches were made, handed over
    and worked on; None of a loader whose batches bear no stamps, or come in any order. starved: share of steps that
    waited longer than `threshold`. closure: share of the time that is neither step, nor transport, nor stall. step,
    transport, load: medians. fastest_step: the shortest mean step with at most 1 % of stall. overhead: of the profiler
    itself, as a share of the time. stored_per_image: bytes an image that came from storage; None where the system does
    not say. reasons: why nothing can be concluded.
    """

    word: Word
    emulated: bool
    steps: int
    block: int
    live: Bounded
    model: float | None
    starved: Bounded
    starved_steps: int
    threshold: float
    closure: float
    handing: float
    step: float
    transport: float
    load: float
    fastest_step: float | None
    mean_step: float
    overhead: float
    stored_per_image: float | None
    reasons: tuple[str, ...] = ()

    @property
    def headroom(self) -> float | None:
        """How many times faster the step could be before it waits for 1 % of the time."""
        return self.mean_step / self.fastest_step if self.fastest_step else None

    @property
    def cache(self) -> str:
        """Whether the page cache held the files: warm, unknown, or how much came from storage."""
        if self.stored_per_image is None:
            return "cache unknown"
        warm = self.stored_per_image < WARM_BYTES
        return "cache warm" if warm else f"from storage {self.stored_per_image / 1e3:,.1f} kB an image"

    @property
    def much_handing(self) -> bool:
        """Whether handing batches over takes so much of the time that it is worth doing something about it."""
        return self.handing > _MUCH_HANDING

    def __str__(self) -> str:
        parts = [f"{'EMULATED ' if self.emulated else ''}{self.word}  exposed stall {self.live}"]
        parts.append(f"starved {self.starved_steps}/{self.steps} (<= {self.starved.upper:.2%})")
        if self.fastest_step is not None:
            fastest = f"{self.fastest_step * 1e3:.1f} ms"
            if self.emulated:
                parts.append(f"sustains steps >= {fastest}")
            parts.append(f"headroom {times(self.headroom)} (1 % stall at {fastest})")
        if self.much_handing:
            parts.append(f"transport {self.handing:.1%}")
        parts += [self.cache, f"closure {self.closure:.1%}"]
        return " · ".join([*parts, *self.reasons])


def times(headroom: float | None) -> str:
    """As people read it: nobody needs to know that a list in memory could be read a million times as fast."""
    if headroom is None:
        return "unknown"
    return f"{headroom:.1f}x" if headroom < _HUGE else f"over {_HUGE:.0f}x"


def judge(
    recording: Recording, *, emulated: bool, confidence: float = 0.95, cores: int | None = None
) -> Verdict:  # fmt: skip
    """The verdict on a recording. emulated: the step was no real one, so it says nothing of a GPU.

    cores: that it was made on; None: those that this process may use.
    """
    steady = recording.steady
    stall, period, step = recording.stall[steady], recording.period[steady], recording.step[steady]
    count, total = len(stall), float(period.sum())
    floor = recording.floor
    threshold = max(0.01 * float(np.median(step)), 3 * floor) if count else 0.0
    block = block_length(stall, least=max(recording.workers * recording.prefetch, 1))
    live = share(stall, period, block=block, confidence=confidence)
    starved = rate(stall > threshold, block=block, confidence=confidence)
    spent = float(step.sum() + recording.transport[steady].sum() + stall.sum())
    closure = abs(total - spent) / total if total else 1.0
    modelled = bool(recording.made) and recording.ordered
    model = _by_model(recording) if modelled else None
    fastest = Situation.of(recording, cores or usable_cores()).fastest_step(FED_BELOW) if modelled else None
    overhead, stored = recording.overhead, recording.stored_per_image
    handing = float(recording.transport[steady].sum()) / total if total else 0.0
    reasons = _doubts(count, block, closure, live.value, model)
    if handing > _MOST_HANDING:
        reasons += (f"handing over takes {handing:.0%} of the time, and what goes on in it is not seen",)
    if overhead > _MOST_OVERHEAD:
        reasons += (f"the profiler itself takes {overhead:.1%} of the time",)
    if stored is None:
        reasons += ("the system does not say what came from storage",)
    return Verdict(
        word=_word(live, starved, reasons), emulated=emulated, steps=count, block=block, live=live, model=model,
        starved=starved, starved_steps=int((stall > threshold).sum()), threshold=threshold, closure=closure,
        handing=handing,
        step=_median(step), transport=floor, load=_median(recording.load[steady]), fastest_step=fastest,
        mean_step=float(step.mean()) if count else 0.0, overhead=overhead, stored_per_image=stored, reasons=reasons,
    )  # fmt: skip


def _by_model(recording: Recording) -> float:
    steady = recording.steady
    stall = recording.replayed()[steady] + recording.contention[steady] + recording.sampling[steady]
    spent = float(stall.sum() + recording.step[steady].sum() + recording.transport[steady].sum())
    return float(stall.sum()) / spent if spent else 0.0


def _doubts(count: int, block: int, closure: float, live: float, model: float | None) -> tuple[str, ...]:
    doubts = []
    if count < _FEWEST_BLOCKS * block:
        doubts.append(f"too few steps: {count}, needs {_FEWEST_BLOCKS * block}")
    if closure > _MOST_OPEN:
        doubts.append(f"{closure:.1%} of the time is not accounted for")
    if model is not None and abs(model - live) > _MOST_OPEN:
        doubts.append(f"the queue's model says {model:.1%} of stall, the clock {live:.1%}")
    return tuple(doubts)


def _word(live: Bounded, starved: Bounded, reasons: tuple[str, ...]) -> Word:
    if reasons:
        return Word.INCONCLUSIVE
    if live.upper < FED_BELOW and starved.upper < FED_BELOW:
        return Word.FED
    return Word.STARVED if live.lower > _STARVED_ABOVE else Word.MARGINAL


def _median(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.median(values)) if len(values) else 0.0
