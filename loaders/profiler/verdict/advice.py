"""Advice: the effect of each possible change, predicted by `WhatIfModel` from one recording."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....pipeline.console import plural
from ..estimate.queue_model import QueueModel
from ..measure.recording import Recording
from .judge import shares_contradict
from .unseen_steps import has_unseen_steps
from .verdict import FED_BELOW, Verdict, VerdictKind
from .what_if import WhatIfModel

_MAX_REMAINING_PART = 0.8  # of the present waiting of a step: what leaves more is no advice
_SLOW_BATCH_FACTOR = 5.0  # times the median
_MAX_SLOW_SHARE = 0.05  # of the batches
_MAX_ADVICE = 4

_STAGES = {
    "read": ("reading", "copy the dataset to faster storage, or let it stay in memory"),
    "decode": ("decoding", "store smaller crops, `precompute --size`"),
    "resize": ("resizing", "store crops of the size that is asked for, `precompute --size`"),
    "augment": ("augmenting", "take cheaper transforms, or leave some to the device"),
    "collate": ("collating", "collate arrays, not lists of small objects"),
    "other": ("the dataset's own work", "do some of it once, before training"),
}
"""What each stage is, and how it may take less time."""
_MAX_NAMED_BATCHES = 3


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One change, with the share of the time that steps wait, 0 to 1: now, as predicted, and as measured once tried.

    settings: of the loader, where the change is one of these.
    """

    change: str
    current_wait_share: float
    predicted_wait_share: float
    settings: Mapping[str, int] = field(default_factory=dict)
    measured_wait_share: float | None = None

    @property
    def code(self) -> str:
        """The settings as keyword arguments of a DataLoader."""
        return ", ".join(f"{name}={value}" for name, value in self.settings.items())

    @property
    def failed(self) -> bool:
        """Whether the change was tried and left most of the waiting of a step."""
        return self.measured_wait_share is not None and not _is_worthwhile(
            self.measured_wait_share, self.current_wait_share
        )

    def __str__(self) -> str:
        tried = "" if self.measured_wait_share is None else f", measured {self.measured_wait_share:.1%}"
        tried += ", it did not help" if self.failed else ""
        return f"{self.change}: waiting {self.current_wait_share:.1%} -> {self.predicted_wait_share:.1%}{tried}"


def advise(
    recording: Recording, num_cores: int, *, acceptable_share: float = FED_BELOW, unexplained_share: float = 0.0,
    max_in_flight: float = math.inf,
) -> list[Advice]:  # fmt: skip
    """The changes that would help: settings first, then by predicted waiting.

    num_cores: that this process and its workers may use. acceptable_share: waiting up to which nothing is advised; see
    `acceptable_wait_share`. unexplained_share: see `unexplained_wait_share`; no change is predicted to take that away.
    max_in_flight: most batches ahead that is advised; see `epoch_length.most_in_flight`.
    """
    if not recording.steady_batch_timings or not recording.in_order:
        return []
    current_share = float(recording.wait_seconds[recording.is_steady].sum()) / recording.steady_seconds
    if current_share <= acceptable_share:
        return []
    model = WhatIfModel.fit(recording, num_cores)
    tolerance_share = min(acceptable_share or FED_BELOW, _MAX_REMAINING_PART * current_share / 2)
    candidates = [
        *_other_settings(model, tolerance_share, max_in_flight),
        *_slow_batches(model, np.flatnonzero(recording.is_steady)),
        *_cheaper_stage(model),
        *_more_cores(model, max_in_flight),
    ]
    candidates = [candidate._replace(wait_share=candidate.wait_share + unexplained_share) for candidate in candidates]
    candidates += _faster_sampler(model, current_share)  # how long that keeps the loop was seen
    advice = [
        Advice(
            change=candidate.change,
            current_wait_share=current_share,
            predicted_wait_share=candidate.wait_share,
            settings=candidate.settings,
        )
        for candidate in candidates
        if _is_worthwhile(candidate.wait_share, current_share)
    ]
    return sorted(advice, key=lambda each: (not each.settings, each.predicted_wait_share))[:_MAX_ADVICE]


def wait_per_step(wait_share: float) -> float:
    """Waiting of a step, in times of the rest of it, 0 to infinity.

    Changes are compared by that: where 95 % is waiting, four times as many batches a second leave 80 %, which seems
    little, but 4 instead of 19 times of the step.
    """
    return wait_share / (1 - wait_share) if wait_share < 1 else math.inf


def _is_worthwhile(new_wait_share: float, wait_share: float) -> bool:
    return wait_per_step(new_wait_share) <= _MAX_REMAINING_PART * wait_per_step(wait_share)


def acceptable_wait_share(verdict: Verdict) -> float:
    """The share of waiting up to which a loader needs no advice.

    1 %; for one of R ranks 1/R of that, since each may keep the others waiting in other steps; 0 where a loader is not
    fed because of how many steps wait, however briefly, and not because of the time they wait. 1 where nothing is to
    be advised: the verdict is FED, or the clock shows waits in which the device works, and to shorten them may change
    nothing.
    """
    if verdict.kind is VerdictKind.FED or has_unseen_steps(verdict.reasons):
        return 1.0
    if verdict.kind is VerdictKind.MARGINAL and verdict.starved_share.value > FED_BELOW:
        return 0.0
    return FED_BELOW / max(len(verdict.rank_wait_shares), 1)


def unexplained_wait_share(verdict: Verdict) -> float:
    """The share of waiting by the clock that the queue's model surely does not explain, 0 to 1; 0 within tolerance."""
    model_wait_share, waits = verdict.model_wait_share, verdict.wait_share
    if model_wait_share is None or model_wait_share >= waits.lower:
        return 0.0
    return waits.value - model_wait_share if shares_contradict(model_wait_share, waits.value) else 0.0


class _Candidate(NamedTuple):
    """A change, the predicted share of waiting with it, and the loader's settings, where it is one of these."""

    change: str
    wait_share: float
    settings: Mapping[str, int] = {}


def _other_settings(model: WhatIfModel, tolerance_share: float, max_in_flight: float) -> Iterator[_Candidate]:
    """More workers, and more batches ahead: of each the first whose waiting is within the tolerance of the best."""
    queue = model.recording.queue_model
    prefetch = queue.prefetch_factor or 2
    max_workers = max(2 * model.num_cores, 2 * queue.num_workers, 4)
    more_workers = [
        replace(queue, num_workers=num_workers, prefetch_factor=prefetch)
        for num_workers in range(queue.num_workers + 1, max_workers + 1)
    ]
    more_prefetch = [replace(queue, prefetch_factor=prefetch * factor) for factor in (2, 4, 8)]
    for queues in (more_workers, more_prefetch if queue.num_workers else []):
        shares = {each: model.wait_share(queue=each) for each in queues if each.max_in_flight <= max_in_flight}
        least_share = min(shares.values(), default=0.0)
        best = next((each for each, share in shares.items() if share <= least_share + tolerance_share), None)
        if best is not None:
            settings = {"num_workers": best.num_workers, "prefetch_factor": best.prefetch_factor}
            yield _Candidate(_settings_change(queue, best), shares[best], settings)


def _settings_change(queue: QueueModel, other: QueueModel) -> str:
    if other.num_workers == queue.num_workers:
        return f"prefetch {queue.prefetch_factor} -> {other.prefetch_factor}"
    # Without workers the loop loads its batches itself.
    transport_note = "" if queue.num_workers else ", each batch is then transferred too"
    return f"workers {queue.num_workers} -> {other.num_workers}{transport_note}"


def _slow_batches(model: WhatIfModel, steady_steps: NDArray[np.intp]) -> Iterator[_Candidate]:
    """steady_steps: indices of the steady steps, which end with those of the model; as `--trace` numbers them."""
    load_seconds, median_seconds = model.load_seconds, float(np.median(model.load_seconds))
    is_slow = load_seconds > _SLOW_BATCH_FACTOR * median_seconds
    if not 0 < is_slow.mean() <= _MAX_SLOW_SHARE:
        return
    slow_steps = steady_steps[-len(load_seconds) :][is_slow].tolist()
    change = (
        f"{len(slow_steps)} of {len(load_seconds):,} batches {'takes' if len(slow_steps) == 1 else 'take'} "
        f"{load_seconds[is_slow].mean() / median_seconds:.0f} times as long as the others "
        f"(up to {load_seconds.max() * 1e3:.0f} ms), {_first_steps(slow_steps)}: find out what their samples have in "
        "common, and make them like the others"
    )
    yield _Candidate(change, model.wait_share(load_seconds=np.where(is_slow, median_seconds, load_seconds)))


def _first_steps(step_indices: Sequence[int]) -> str:
    named = ", ".join(f"{index:,}" for index in step_indices[:_MAX_NAMED_BATCHES])
    if len(step_indices) == 1:
        return f"at step {named} of `--trace`"
    return f"{'the first ' if len(step_indices) > _MAX_NAMED_BATCHES else ''}at steps {named} of `--trace`"


def _faster_sampler(model: WhatIfModel, current_share: float) -> Iterator[_Candidate]:
    recording = model.recording
    steady_sampler_seconds = recording.sampler_wait_seconds[recording.is_steady]
    sampler_seconds = float(steady_sampler_seconds.mean())
    if not sampler_seconds:
        return
    # The loop is spared at most the sampler's own time, whatever a model says that doesn't fit this recording.
    least_share = current_share - float(steady_sampler_seconds.sum()) / recording.steady_seconds
    change = (
        f"the sampler keeps the loop for {sampler_seconds * 1e3:.1f} ms a batch, which no worker can take away: "
        "give one that draws the order of an epoch at once, as a FaceDataLoader does"
    )
    yield _Candidate(change, max(model.wait_share(with_sampler=False), least_share))


def _cheaper_stage(model: WhatIfModel) -> Iterator[_Candidate]:
    stage_seconds = model.recording.stage_seconds
    if not stage_seconds:
        return
    name, seconds = max(stage_seconds.items(), key=lambda item: item[1])
    total_seconds = sum(stage_seconds.values())
    stage_share = seconds / total_seconds if total_seconds else 0.0
    stage, remedy = _STAGES.get(name, _STAGES["other"])
    change = f"{stage} is {stage_share:.0%} of a batch's load time; if it took half as long ({remedy})"
    yield _Candidate(change, model.wait_share(load_seconds=model.load_seconds * (1 - stage_share / 2)))


def _more_cores(model: WhatIfModel, max_in_flight: float) -> Iterator[_Candidate]:
    queue, num_cores = model.recording.queue_model, model.num_cores
    doubled = replace(queue, num_workers=max(2 * queue.num_workers, 1), prefetch_factor=queue.prefetch_factor or 2)
    if max(queue.num_workers, 1) * model.busy_share <= model.free_cores or doubled.max_in_flight > max_in_flight:
        return
    cores = plural(num_cores, "core")
    lack = (
        f"the loop and {plural(queue.num_workers, 'worker')} need more than {cores}"
        if queue.num_workers
        else f"{cores} {'is' if num_cores == 1 else 'are'} too few to load batches while the loop runs"
    )
    change = f"{lack}; with {2 * num_cores} cores and workers {queue.num_workers} -> {doubled.num_workers}"
    yield _Candidate(change, model.wait_share(queue=doubled, extra_cores=num_cores))
