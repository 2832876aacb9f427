"""From a recording to a judgement: how much of the time the step waited, how sure that is, and what it is called."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ....pipeline.machine import usable_cores
from ..estimate.bounds import Bounded, block_length, rate, share
from ..measure.recording import Recording
from .steady_state import unsteady
from .what_if import Situation

FED_BELOW, STARVED_ABOVE = 0.01, 0.02
_MUCH_HANDING = 0.05
_HUGE = 100.0
MOST_OPEN = 0.02
"""Of the time unaccounted for, and of two estimators apart."""
_OF_ITSELF = 0.1  # besides this part of the waiting
_MOST_OVERHEAD = 0.01
FEWEST_BLOCKS = 20
WARM_BYTES = 1000
"""What an image may bring from storage, with all that a process reads besides, where files are in the page cache."""


class Word(StrEnum):
    """FED: all upper bounds under 1 %. STARVED: the lower bound of the waiting, steady or of a whole epoch, over 2 %.

    MARGINAL: between.
    """

    FED = "FED"
    MARGINAL = "MARGINAL"
    STARVED = "STARVED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a recording shows of its steady state. Shares are 0 to 1, times in seconds.

    live: estimator A, the time in which the device waited over all time. model: estimator C, the same by the queue,
    from how long batches were made, handed over and worked on in the first half, for the second one; None of a loader
    whose batches bear no stamps, or come in any order. starved: share of steps that waited longer than `threshold`.
    epoch: the wait of a whole epoch of `epoch_batches`, of which `epoch_start` seconds until its queue is filled; None
    where the loader has no length. handing: share of the time that the host takes to hand over batches that are there,
    hidden by a device's work or not. closure: see `Recording.closure`. step, transport, load: medians. fastest_step:
    the shortest mean step with at most 1 % of waiting, and slowest_fastest its upper bound. settled: steps that came
    before the steady state. overhead: of the profiler itself, as a share of the time. stored_per_image: bytes an image
    that came from storage; None where the system does not say. reasons: why nothing can be concluded. ranks: of a job,
    what each waited itself; all that is said then is said of the job, which waits for the last of its ranks. See
    `job.together` for the doubts about one rank that are the job's too.
    """

    word: Word
    emulated: bool
    steps: int
    settled: int
    block: int
    live: Bounded
    model: float | None
    starved: Bounded
    starved_steps: int
    epoch: Bounded | None
    epoch_batches: int | None
    epoch_start: float
    threshold: float
    closure: float
    handing: float
    step: float
    transport: float
    load: float
    fastest_step: float | None
    slowest_fastest: float | None
    mean_step: float
    overhead: float
    stored_per_image: float | None
    reasons: tuple[str, ...] = ()
    ranks: tuple[float, ...] = ()

    @property
    def headroom(self) -> float | None:
        """How many times faster the step could be before it waits for 1 % of the time."""
        return self.mean_step / self.fastest_step if self.fastest_step else None

    @property
    def sure_headroom(self) -> float | None:
        """Its lower bound; of batches that are rarer than a part of the run sees it knows nothing."""
        return self.mean_step / self.slowest_fastest if self.slowest_fastest else None

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
        who = f"some of {len(self.ranks)} ranks wait" if self.ranks else "device waits"
        parts = [f"{'EMULATED ' if self.emulated else ''}{self.word}  {who} {self.live}"]
        if self.ranks:
            parts.append(f"each {min(self.ranks):.2%} to {max(self.ranks):.2%}")
        parts.append(f"starved {self.starved_steps}/{self.steps} (<= {self.starved.upper:.2%})")
        if self.epoch is not None:
            parts.append(f"epoch of {self.epoch_batches:,} batches {self.epoch}")
        if self.fastest_step is not None:
            fastest = f"{self.fastest_step * 1e3:.1f} ms"
            if self.emulated:
                parts.append(f"sustains steps >= {fastest}")
            parts.append(f"headroom {times(self.headroom)} (>= {times(self.sure_headroom)}, 1 % waiting at {fastest})")
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
    recording: Recording, *, emulated: bool, confidence: float = 0.95, cores: int | None = None,
    epoch: Epoch | None = None, ranks: int = 1,
) -> Verdict:  # fmt: skip
    """The verdict on a recording. emulated: the step was no real one, so it says nothing of a GPU.

    cores: that it was made on; None: those that this process may use. epoch: as long as the loader's own, if it is to
    be judged as well. ranks: that do their steps together, of which this is one: none may wait for more than its part
    of 1 % if the job is to wait for no more than that, so that is what headroom means then.
    """
    steady = recording.steady
    wait, period, step = recording.wait[steady], recording.period[steady], recording.step[steady]
    count, total = len(wait), float(period.sum())
    threshold = max(0.01 * float(np.median(step)), 3 * recording.floor) if count else 0.0
    live, block = waiting(recording, confidence)
    starved = rate(wait > threshold, block=block, confidence=confidence)
    modelled = bool(recording.made) and recording.ordered
    cores = cores or usable_cores()
    model = Agreement.of(recording, cores, confidence) if modelled and count > 1 else None
    fastest, slowest = _fastest_step(recording, cores, confidence, ranks) if modelled and count else (None, None)
    if slowest is not None and live.upper > FED_BELOW:  # then the step itself is not surely slow enough
        slowest = max(slowest, float(step.mean()))
    contradicted, moving = _contradiction(model), unsteady(recording)
    if ranks > 1 and contradicted:  # the job may be judged all the same, but not by what this model predicts
        fastest = slowest = None
    # Of a job it is asked of all ranks together whether there were enough steps.
    few = few_steps(count, block) if ranks == 1 else ()
    reasons = (*few, *unreliable(recording), *filter(None, (contradicted, moving)))
    whole = None if epoch is None else epoch.share(live, total / count if count else 0.0)
    return Verdict(
        word=word_of(live, starved, whole, reasons), emulated=emulated,
        steps=count, settled=recording.settled, block=block, live=live, model=None if model is None else model.model,
        starved=starved, starved_steps=int((wait > threshold).sum()), threshold=threshold,
        closure=recording.closure,
        epoch=whole, epoch_batches=None if epoch is None else epoch.batches, epoch_start=epoch.start if epoch else 0.0,
        handing=float(recording.handover[steady].sum()) / total if total else 0.0,
        step=_median(step), transport=recording.floor, load=_median(recording.load[steady]), fastest_step=fastest,
        slowest_fastest=slowest, mean_step=float(step.mean()) if count else 0.0,
        overhead=recording.overhead, stored_per_image=recording.stored_per_image, reasons=reasons,
    )  # fmt: skip


def waiting(recording: Recording, confidence: float) -> tuple[Bounded, int]:
    """Estimator A of the steady state, the time waited over all time, and how many steps its bounds take together."""
    steady = recording.steady
    wait = recording.wait[steady]
    block = block_length(wait, least=max(recording.workers, 1))
    return share(wait, recording.period[steady], block=block, confidence=confidence), block


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """A whole epoch. batches: in it. starts: seconds of waiting from its beginning until the queue is as it stays, as
    measured some times.
    """

    batches: int
    starts: Sequence[float]

    @property
    def start(self) -> float:
        """The median."""
        return float(np.median(self.starts))

    def share(self, live: Bounded, period: float) -> Bounded:
        """The time waited in an epoch whose other steps take `period` seconds and wait as `live` has it."""
        rest = self.batches * period
        each = ((self.start, live.value), (min(self.starts), live.lower), (max(self.starts), live.upper))
        found = [(start + part * rest) / (start + rest) if rest else 1.0 for start, part in each]
        return Bounded(value=found[0], lower=found[1], upper=found[2], confidence=live.confidence)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Estimator C, fitted on the first half of a steady state, beside what the clock says of both halves."""

    model: float
    first: Bounded
    second: Bounded

    @classmethod
    def of(cls, recording: Recording, cores: int, confidence: float) -> Agreement:
        """Of a recording with stamps, of two steady steps or more."""
        halves = [recording.part(half) for half in np.array_split(np.flatnonzero(recording.steady), 2)]
        first, second = (waiting(half, confidence)[0] for half in halves)
        return cls(model=Situation.of(halves[0], cores).wait_share(), first=first, second=second)

    @property
    def apart(self) -> bool:
        """Whether they contradict each other by more than a small difference, and than chance in either half explains.

        The model's own uncertainty is that of the half it was fitted on.
        """
        above, below = self.first.upper - self.first.value, self.first.value - self.first.lower
        return far_apart(self.model, self.second.value) and (
            self.model + above < self.second.lower or self.model - below > self.second.upper
        )


def _fastest_step(recording: Recording, cores: int, confidence: float, ranks: int) -> tuple[float | None, float | None]:
    """The fastest step with 1 % of waiting, seconds, and its upper bound: the slowest of several parts of the run.

    Each part's own lies above what is usual in half of all cases, so the slowest of five does in 31 of 32; of batches
    that are so rare that most parts have none it says nothing, but then the wait's own bound does.
    """
    whole = Situation.of(recording, cores).fastest_step(FED_BELOW / ranks)
    parts = math.ceil(-math.log2(1 - confidence))
    kept = np.array_split(np.flatnonzero(recording.steady), parts)
    if whole is None or len(kept[-1]) < FEWEST_BLOCKS:
        return whole, None
    found = [Situation.of(recording.part(one), cores).fastest_step(FED_BELOW / ranks) for one in kept]
    known = [one for one in found if one is not None]
    return whole, max(whole, *known) if len(known) == parts else None


def few_steps(count: int, block: int) -> tuple[str, ...]:
    """Why so many steps are not enough, if `block` of them belong together."""
    return (f"too few steps: {count}, needs {FEWEST_BLOCKS * block}",) if count < FEWEST_BLOCKS * block else ()


def far_apart(one: float, other: float) -> bool:
    """Whether two shares of waiting contradict each other: by 2 points, and a tenth of the second."""
    return abs(one - other) > MOST_OPEN + _OF_ITSELF * other


def unreliable(recording: Recording) -> tuple[str, ...]:
    """Why the times of a recording cannot be relied on, whatever is concluded from them; none where they can."""
    doubts = []
    if recording.closure > MOST_OPEN:
        doubts.append(f"{recording.closure:.1%} of the time is not accounted for")
    if recording.overhead > _MOST_OVERHEAD:
        doubts.append(f"the profiler itself takes {recording.overhead:.1%} of the time")
    if recording.stored_per_image is None:
        doubts.append("the system does not say what came from storage")
    return tuple(doubts)


def _contradiction(model: Agreement | None) -> str:
    if model is None or not model.apart:
        return ""
    return (
        f"the queue's model, from the first half, says {model.model:.1%} of waiting, the clock of the second half "
        f"{model.second.value:.1%}"
    )


def word_of(live: Bounded, starved: Bounded, epoch: Bounded | None, reasons: tuple[str, ...]) -> Word:
    """What these bounds are called."""
    if reasons:
        return Word.INCONCLUSIVE
    waits = [live] if epoch is None else [live, epoch]
    if all(one.upper < FED_BELOW for one in (*waits, starved)):
        return Word.FED
    return Word.STARVED if max(one.lower for one in waits) > STARVED_ABOVE else Word.MARGINAL


def _median(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    return float(np.median(values)) if len(values) else 0.0
