"""What would help: each change worked out by the queue's model from what was measured, before anybody tries it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..measure.recording import Recording
from .judgement import FED_BELOW, Verdict, Word
from .what_if import Situation

_WORTH = 0.8  # of the stall that is there: what leaves more is no advice
_SLOW = 5.0  # times the median
_FEW = 0.05  # of the batches
_MOST_ADVICE = 4

_STAGES = {
    "read": "copy the dataset to faster storage, or let it stay in memory",
    "decode": "store smaller crops (`precompute --size`)",
    "resize": "store crops of the size that is asked for (`precompute --size`)",
    "augment": "take cheaper transforms, or leave some to the device",
    "collate": "collate less: arrays, not lists of small objects",
    "other": "the dataset's own work; do it once, before training",
}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One change. Shares of the time that steps wait, 0 to 1: now, as predicted, and once tried, None before.

    settings: the loader's, where the change is one of these.
    """

    what: str
    now: float
    predicted: float
    settings: Mapping[str, int] = field(default_factory=dict)
    measured: float | None = None

    @property
    def failed(self) -> bool:
        """Whether it was tried, and left most of the stall."""
        return self.measured is not None and self.measured > _WORTH * self.now

    def __str__(self) -> str:
        tried = "" if self.measured is None else f", measured {self.measured:.1%}"
        return f"{self.what}: waiting {self.now:.1%} -> {self.predicted:.1%}{tried}"


def advise(recording: Recording, cores: int, *, enough: float = FED_BELOW) -> list[Advice]:
    """What would help: first what can be set, then by how much.

    cores: that this process and its workers may use. enough: the share of waiting up to which nothing is advised; see
    `enough_waiting`.
    """
    if not recording.made or not recording.ordered:
        return []
    now = float(recording.wait[recording.steady].sum()) / recording.seconds
    if now <= enough:
        return []
    situation = Situation.of(recording, cores)
    spared = min(enough or FED_BELOW, _WORTH * now / 2)
    found = [*_more_workers(situation, now, spared), *_more_ahead(situation, now, spared)]
    found += _slow_batches(situation, now)
    found += [*_quicker_sampler(situation, now), *_cheaper_stage(situation, now), *_more_cores(situation, now)]
    worth = [one for one in found if one.predicted <= _WORTH * now]
    return sorted(worth, key=lambda one: (not one.settings, one.predicted))[:_MOST_ADVICE]


def enough_waiting(verdict: Verdict) -> float:
    """The share of waiting up to which a loader needs no advice.

    1 %; of one of R ranks 1/R of that, since each may keep the others waiting in other steps; and none where it is not
    for the time waited but for the number of steps that wait, however briefly, that a loader does not count as fed.
    """
    if verdict.word is Word.MARGINAL and verdict.starved.value > FED_BELOW:
        return 0.0
    return FED_BELOW / max(len(verdict.ranks), 1)


def _least_that_does(tried: Iterable[tuple[int, float]], spared: float) -> tuple[int, float]:
    """The smallest number that is as good as the best, but for a share of waiting that is not worth more of them."""
    found = list(tried)
    best = min(stall for _, stall in found)
    return next((number, stall) for number, stall in found if stall <= best + spared)


def _more_workers(situation: Situation, now: float, spared: float) -> list[Advice]:
    queue = situation.recording.queue
    most = max(2 * situation.cores, 2 * queue.workers, 4)
    queues = (replace(queue, workers=more, prefetch=queue.prefetch or 2) for more in range(queue.workers + 1, most + 1))
    workers, stall = _least_that_does(((one.workers, situation.wait_share(queue=one)) for one in queues), spared)
    settings = {"num_workers": workers, "prefetch_factor": queue.prefetch or 2}
    # Until now the loop made its batches itself.
    handed = "" if queue.workers else ", each batch then also to be handed over"
    what = f"workers {queue.workers} -> {workers}{handed}"
    return [Advice(what=what, now=now, predicted=stall, settings=settings)]


def _more_ahead(situation: Situation, now: float, spared: float) -> list[Advice]:
    queue = situation.recording.queue
    if not queue.workers:
        return []
    queues = (replace(queue, prefetch=queue.prefetch * times) for times in (2, 4, 8))
    prefetch, stall = _least_that_does(((one.prefetch, situation.wait_share(queue=one)) for one in queues), spared)
    settings = {"num_workers": queue.workers, "prefetch_factor": prefetch}
    return [Advice(what=f"prefetch {queue.prefetch} -> {prefetch}", now=now, predicted=stall, settings=settings)]


def _slow_batches(situation: Situation, now: float) -> list[Advice]:
    load, median = situation.load, float(np.median(situation.load))
    slow = load > _SLOW * median
    if not 0 < slow.mean() <= _FEW:
        return []
    what = (
        f"{int(slow.sum())} of {len(load)} batches take {load[slow].mean() / median:.0f} times as long as the others "
        f"(up to {load.max() * 1e3:.0f} ms): find their samples, make them like the others"
    )
    return [Advice(what=what, now=now, predicted=situation.wait_share(load=np.where(slow, median, load)))]


def _quicker_sampler(situation: Situation, now: float) -> list[Advice]:
    recording = situation.recording
    taken = float(recording.sampling[recording.steady].mean())
    if not taken:
        return []
    what = (
        f"the sampler keeps the loop for {taken * 1e3:.1f} ms a batch, which no worker can help: draw the order before "
        "the epoch begins"
    )
    return [Advice(what=what, now=now, predicted=situation.wait_share(sampling=False))]


def _cheaper_stage(situation: Situation, now: float) -> list[Advice]:
    spans = situation.recording.spans
    if not spans:
        return []
    name, seconds = max(spans.items(), key=lambda one: one[1])
    whole = sum(spans.values())
    part = seconds / whole if whole else 0.0
    what = f"{name} is {part:.0%} of a batch's making, at half of that: {_STAGES.get(name, _STAGES['other'])}"
    return [Advice(what=what, now=now, predicted=situation.wait_share(load=situation.load * (1 - part / 2)))]


def _more_cores(situation: Situation, now: float) -> list[Advice]:
    queue, cores = situation.recording.queue, situation.cores
    if max(queue.workers, 1) * situation.busy <= situation.free:
        return []
    doubled = replace(queue, workers=max(2 * queue.workers, 1), prefetch=queue.prefetch or 2)
    what = (
        f"the loop and {queue.workers} workers want more than the {cores} cores; "
        f"with {2 * cores} and workers {queue.workers} -> {doubled.workers}"
    )
    return [Advice(what=what, now=now, predicted=situation.wait_share(queue=doubled, more_cores=cores))]
