"""A job of several ranks: each waits for its own batches, and all for the last of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..estimate.bounds import Bounded, Values, block_length, rate, share
from ..measure.recording import Recording
from .judgement import MOST_OPEN, Epoch, Verdict, far_apart, few_steps, unreliable, word_of
from .steady_state import drifting, emptying, settled_after


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One rank of a job: its own verdict, and what its waits were for. Shares are 0 to 1.

    waits: share of its time by what the waits were for, named as in `Profile.bars`. held_up: of all that the job
    waited, the share in steps to which this rank's batch came last. for_others: seconds that a step of its own lasts
    longer because other ranks wait for theirs. stage: of a batch's making that takes longest, and
    its share of it; None where batches bear no stamps.
    """

    number: int
    host: str
    verdict: Verdict
    waits: dict[str, float]
    held_up: float
    for_others: float
    images_per_second: float
    stage: tuple[str, float] | None

    @property
    def cause(self) -> tuple[str, float]:
        """What it waited for most, and how much of its time."""
        return max(self.waits.items(), key=lambda one: one[1])


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of a rank, or of all ranks of a job together, (steps,): in each the job waits as long as any rank does.

    wait, period, step: seconds; of a job the longest wait, the mean period, and the shortest step, which is that of the
    rank whose batch came last: the other ranks' steps also wait for it. filled: whether all queues have been filled
    once. settled: the steps before the steady state. workers: of a rank, the most.
    """

    wait: Values
    period: Values
    step: Values
    filled: NDArray[np.bool_]
    settled: int
    workers: int

    @classmethod
    def of(cls, recording: Recording) -> Steps:
        """Those of one rank."""
        return cls(
            wait=recording.wait, period=recording.period, step=recording.step, workers=recording.workers,
            filled=replace(recording, settled=0).steady, settled=recording.settled,
        )  # fmt: skip

    @classmethod
    def joined(cls, ranks: Sequence[Steps]) -> Steps:
        """Those of a job."""
        return cls(
            wait=np.max([one.wait for one in ranks], axis=0), period=np.mean([one.period for one in ranks], axis=0),
            step=np.min([one.step for one in ranks], axis=0), workers=max(one.workers for one in ranks),
            filled=np.logical_and.reduce([one.filled for one in ranks]), settled=max(one.settled for one in ranks),
        )  # fmt: skip

    @property
    def steady(self) -> NDArray[np.bool_]:
        """The steps of the steady state, bool (steps,)."""
        return self.filled & (np.arange(len(self.filled)) >= self.settled)

    def settled_after(self) -> int:
        """How many of the first steps are a transient; see `steady`."""
        return settled_after(self.wait, self.workers)

    def unsteady(self) -> str:
        """Why the steps after `settled` are no steady state; empty where they are."""
        return drifting(self.wait[self.settled :], self.period[self.settled :])

    def waiting(self, confidence: float) -> tuple[Bounded, int]:
        """The time waited in the steady state over all its time, and how many steps its bounds take together."""
        wait = self.wait[self.steady]
        block = block_length(wait, least=max(self.workers, 1))
        return share(wait, self.period[self.steady], block=block, confidence=confidence), block


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a rank tells the others: itself, and the times of its steps.

    alone: seconds of a step on batches that were there already. epoch: of the job, so the same on all ranks. doubts:
    about this rank that make the job's figures doubtful too.
    """

    rank: Rank
    steps: Steps
    alone: float
    epoch: Epoch | None
    doubts: tuple[str, ...]


def together(seen: Sequence[Seen]) -> tuple[Verdict, tuple[Rank, ...]]:
    """The verdict on the whole job, and its ranks; of a rank that is alone its own, and none.

    In each step all ranks wait until the last one's batch is there, since their gradients are summed: so the job waits
    for the longest of their waits. That holds where they end their steps together and compute equally long in them; of
    others nothing is concluded, since their waits would then come to more than their steps take longer than without.

    The job is judged by this series of longest waits: by its steady state, its bounds, its closure and its estimator B.
    A doubt about one rank is a doubt about the job only where it makes that series doubtful: times of a rank that are
    unreliable (not accounted for, taken by the profiler, page cache unknown), since any of its waits may be the
    longest; and a queue that has hidden all waits so far but still empties, since the job is yet to wait for it. Where
    one rank's waits alone are not steady, or the clock contradicts its queue's model, that is stated with the rank; no
    headroom is known of a job with such a model.
    """
    if len(seen) == 1:
        return seen[0].rank.verdict, ()
    steps = Steps.joined([one.steps for one in seen])
    waits, longest = (np.array([one.steps.wait[steps.steady] for one in seen]), steps.wait[steps.steady])
    held_up = [float(longest[waits.argmax(axis=0) == number].sum()) for number in range(len(seen))]
    whole = max(sum(held_up), 1e-12)
    found = tuple(
        replace(one.rank, held_up=part / whole,
                for_others=float((one.steps.step - steps.step)[one.steps.steady].mean()))
        for one, part in zip(seen, held_up, strict=True)
    )  # fmt: skip
    return _of_all(seen, steps), found


def seen_by(number: int, verdict: Verdict, live: Recording, alone: Recording, epoch: Epoch | None) -> Seen:
    """What rank `number` has seen; alone: the same step on batches that were there already."""
    steady, spans = live.steady, live.spans
    parts = {"transport": live.transport, "sampling": live.sampling, "contention": live.contention,
             "preparation": live.unmade}  # fmt: skip
    stage = max(spans.items(), key=lambda one: one[1]) if spans else None
    rank = Rank(
        number=number, host=socket.gethostname(), verdict=verdict, held_up=0.0, for_others=0.0,
        waits={name: float(part[steady].sum()) / max(live.seconds, 1e-12) for name, part in parts.items()},
        images_per_second=live.images_per_second,
        stage=None if stage is None else (stage[0], stage[1] / sum(spans.values())),
    )  # fmt: skip
    return Seen(
        rank=rank, steps=Steps.of(live), alone=float(alone.step.mean()), epoch=epoch,
        doubts=(*unreliable(live), *filter(None, [emptying(live)])),
    )  # fmt: skip


def slowest(ranks: Sequence[Rank]) -> int:
    """The number of the rank that held the others up most; the first where none ever waited."""
    return max(ranks, key=lambda one: (one.held_up, one.verdict.live.value, -one.number)).number


def _of_all(seen: Sequence[Seen], steps: Steps) -> Verdict:
    """What every rank's verdict says of its own loader is said of the worst; the waits are the job's own."""
    verdicts = [one.rank.verdict for one in seen]
    confidence = verdicts[0].live.confidence
    longest, period, step = (each[steps.steady] for each in (steps.wait, steps.period, steps.step))
    threshold = max(one.threshold for one in verdicts)
    live, block = steps.waiting(confidence)
    starved = rate(longest > threshold, block=block, confidence=confidence)
    epoch = seen[0].epoch
    whole = epoch.share(live, float(period.mean())) if epoch is not None else None
    closure = abs(float((period - longest - step).sum())) / max(float(period.sum()), 1e-12)
    slower = 1 - max(one.alone for one in seen) / float(period.mean())  # estimator B of the job
    reasons = (
        *(f"rank {number}: {doubt}" for number, one in enumerate(seen) for doubt in one.doubts),
        *filter(None, [steps.unsteady()]), *few_steps(len(longest), block), *_not_together(live, slower, closure),
    )  # fmt: skip
    fastest, slowest_fastest, stored = (
        None if None in values else max(values)
        for values in ([getattr(one, name) for one in verdicts]
                       for name in ("fastest_step", "slowest_fastest", "stored_per_image"))
    )  # fmt: skip
    return replace(
        verdicts[0], word=word_of(live, starved, whole, reasons), steps=len(longest), block=block, live=live,
        model=None, starved=starved, starved_steps=int((longest > threshold).sum()), epoch=whole,
        threshold=threshold, step=float(np.median(step)),
        mean_step=float(step.mean()), fastest_step=fastest, slowest_fastest=slowest_fastest, stored_per_image=stored,
        **{name: max(getattr(one, name) for one in verdicts)
           for name in ("settled", "handing", "transport", "load", "overhead")},
        closure=max(closure, *(one.closure for one in verdicts)), reasons=reasons,
        ranks=tuple(one.live.value for one in verdicts),
    )  # fmt: skip


def _not_together(live: Bounded, slower: float, closure: float) -> tuple[str, ...]:
    """Why the ranks' waits do not add up to what the job waits, if they do not."""
    why = "the ranks do not end their steps together, or compute for different times"
    if live.value > slower and far_apart(live.value, slower):
        return (
            f"some rank waits {live.value:.1%} of the time, but steps take only {max(slower, 0.0):.1%} of it longer "
            f"than on batches at hand: {why}",
        )  # fmt: skip
    return (f"{closure:.1%} of the job's time is not accounted for: {why}",) if closure > MOST_OPEN else ()
