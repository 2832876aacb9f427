"""From a recording to a verdict: the share of time that steps waited, with bounds, and the reasons for doubt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....pipeline.machine import usable_cores
from ..estimate.bounds import MIN_BLOCKS, BoundedEstimate, Values, event_rate_bound, num_values_for_median
from ..measure.recording import Recording
from .epoch_starts import EpochStarts
from .steady_state import draining_queue_reason
from .step_series import STARVED_FLOORS, StepSeries, starved_threshold_seconds
from .verdict import FED_BELOW, STARVED_ABOVE, SteadyFigures, Verdict, VerdictKind
from .what_if import WhatIfModel

MAX_UNEXPLAINED_SHARE = 0.02
"""Largest share of the time that may be unexplained, and largest gap between two estimators."""
_RELATIVE_TOLERANCE = 0.1  # of the waiting, besides that gap
_MAX_OVERHEAD_SHARE = 0.01


def judge(
    recording: Recording, *, emulated: bool, confidence: float = 0.95, num_cores: int | None = None,
    epoch: EpochStarts | None = None, num_ranks: int = 1, doubts: tuple[str, ...] = (), remarks: tuple[str, ...] = (),
) -> Verdict:  # fmt: skip
    """The verdict on a recording.

    Args:
        recording: steps of one loader.
        emulated: the step ran on an emulated device, so the verdict is not about a GPU.
        confidence: of the bounds.
        num_cores: of the machine; None: the cores that this process may use.
        epoch: measured epoch starts, where a whole epoch is judged too.
        num_ranks: ranks that run their steps together, of which this is one. Each may wait for 1 / num_ranks of 1 %,
            which is what headroom refers to.
        doubts: reasons why nothing can be concluded, besides those that the recording itself shows.
        remarks: see `Verdict`.

    """
    num_cores, steps = num_cores or usable_cores(), StepSeries.of_recording(recording)
    steady = steady_figures(
        steps, starved_threshold_seconds=starved_threshold_seconds(recording), confidence=confidence, epoch=epoch
    )
    can_be_modelled = bool(recording.steady_batch_timings) and recording.in_order
    model_check = ModelCheck.fit(recording, num_cores, confidence) if can_be_modelled and steady.num_steps > 1 else None
    contradiction = _contradiction_reason(model_check)
    # What waits too long in both halves by the clock does so whatever the model says. Nor does its rank's model decide
    # on a job. But what such a model predicts counts for nothing then.
    is_starved_by_clock = model_check is not None and model_check.is_surely_starved
    fastest_step_seconds, fastest_step_upper_seconds = (
        _fastest_fed_step(recording, steady, num_cores, num_ranks)
        if can_be_modelled and steady.num_steps and not (contradiction and (num_ranks > 1 or is_starved_by_clock))
        else (None, None)
    )
    if contradiction and is_starved_by_clock:
        contradiction, remarks = "", (*remarks, f"{contradiction}: headroom is not known")
    if clock_contradicts(fastest_step_seconds, steady, FED_BELOW / num_ranks):
        fastest_step_seconds = fastest_step_upper_seconds = None
    # For a job, `judge_job` checks the number of steps of all ranks together.
    too_few = too_few_steps_reasons(steady) if num_ranks == 1 else ()
    # Once its queue is empty, a device that surely waits too long waits even longer.
    drift = steps.drift_reason() or ("" if steady.is_surely_starved else draining_queue_reason(recording))
    reasons = (*too_few, *unreliable_reasons(recording), *doubts, *filter(None, (contradiction, drift)))
    host_transport_seconds = float(recording.host_transport_seconds[steps.is_steady].sum())
    return Verdict(
        **vars(steady),
        kind=classify(steady, reasons),
        emulated=emulated,
        num_transient_steps=recording.num_transient_steps,
        model_wait_share=None if model_check is None else model_check.model_wait_share,
        unexplained_share=recording.unexplained_share,
        host_transport_share=host_transport_seconds / recording.steady_seconds if recording.steady_seconds else 0.0,
        transport_floor_seconds=recording.transport_floor_seconds,
        median_load_seconds=_median_or_zero(recording.load_seconds[steps.is_steady]),
        fastest_step_seconds=fastest_step_seconds,
        fastest_step_upper_seconds=fastest_step_upper_seconds,
        overhead_share=recording.overhead_share,
        storage_bytes_per_image=recording.storage_bytes_per_image,
        reasons=reasons,
        remarks=remarks,
    )


def steady_figures(
    steps: StepSeries, *, starved_threshold_seconds: float, confidence: float, epoch: EpochStarts | None
) -> SteadyFigures:
    """The figures of a steady state, with bounds."""
    wait_seconds, period_seconds, step_seconds = (
        series[steps.is_steady] for series in (steps.wait_seconds, steps.period_seconds, steps.step_seconds)
    )
    is_starved, num_steps = wait_seconds > starved_threshold_seconds, len(wait_seconds)
    wait_share, block_steps = steps.estimate_wait_share(confidence)
    wait_share = wait_share.without_upper_if_few_blocks(num_steps, block_steps)
    starved_share = event_rate_bound(is_starved, block=block_steps, confidence=confidence)
    epoch_wait_share = None if epoch is None else epoch.epoch_wait_share(
        wait_share, _mean_or_zero(period_seconds), unseen_wait_seconds=starved_threshold_seconds / STARVED_FLOORS
    )  # fmt: skip
    return SteadyFigures(
        num_steps=num_steps,
        block_steps=block_steps,
        wait_share=wait_share,
        starved_share=starved_share.without_upper_if_few_blocks(num_steps, block_steps),
        num_starved_steps=int(is_starved.sum()),
        starved_threshold_seconds=starved_threshold_seconds,
        epoch_wait_share=epoch_wait_share,
        num_epoch_batches=None if epoch is None else epoch.num_batches,
        epoch_start_wait_seconds=0.0 if epoch is None else epoch.mean_start_wait_seconds,
        median_step_seconds=_median_or_zero(step_seconds),
        mean_step_seconds=_mean_or_zero(step_seconds),
    )


@dataclass(frozen=True, kw_only=True)
class ModelCheck:
    """`Estimator.MODEL` fitted on the first half of a steady state, and `Estimator.LIVE` of both halves."""

    model_wait_share: float
    first_half: BoundedEstimate
    second_half: BoundedEstimate

    @classmethod
    def fit(cls, recording: Recording, num_cores: int, confidence: float) -> ModelCheck:
        """Of a recording with batch timings and at least two steady steps."""
        halves = [recording.select(half) for half in np.array_split(np.flatnonzero(recording.is_steady), 2)]
        first, second = (StepSeries.of_recording(half).estimate_wait_share(confidence)[0] for half in halves)
        return cls(
            model_wait_share=WhatIfModel.fit(halves[0], num_cores).wait_share(), first_half=first, second_half=second
        )

    @property
    def is_surely_starved(self) -> bool:
        """Whether the clock alone shows over 2 % of waiting in both halves."""
        return min(self.first_half.lower, self.second_half.lower) > STARVED_ABOVE

    @property
    def contradicts(self) -> bool:
        """Whether model and clock differ by more than a small gap, and by more than chance explains in either half.

        The model's own uncertainty is that of the half it was fitted on.
        """
        upper_margin = self.first_half.upper - self.first_half.value
        lower_margin = self.first_half.value - self.first_half.lower
        return shares_contradict(self.model_wait_share, self.second_half.value) and (
            self.model_wait_share + upper_margin < self.second_half.lower
            or self.model_wait_share - lower_margin > self.second_half.upper
        )


def _fastest_fed_step(
    recording: Recording, steady: SteadyFigures, num_cores: int, num_ranks: int
) -> tuple[float | None, float | None]:
    """The fastest step with 1 % of waiting, in seconds, and its upper bound: the slowest of several parts of the run.

    No upper bound where the present step is not surely under 1 %: whatever is faster is not proved to be, either.

    The estimate of one part is above the median in half of all cases, so the slowest of five is in 31 of 32. Batches so
    rare that most parts have none are not covered, but then the bound of the waiting covers them.
    """
    max_wait_share = FED_BELOW / num_ranks
    overall = WhatIfModel.fit(recording, num_cores).fastest_step_seconds(max_wait_share)
    num_parts = num_values_for_median(steady.wait_share.confidence)
    part_steps = np.array_split(np.flatnonzero(recording.is_steady), num_parts)
    if overall is None or not steady.is_surely_fed_once_steady or len(part_steps[-1]) < MIN_BLOCKS:
        return overall, None
    parts = [
        WhatIfModel.fit(recording.select(part), num_cores).fastest_step_seconds(max_wait_share) for part in part_steps
    ]
    known = [part for part in parts if part is not None]
    if len(known) < num_parts:
        return overall, None
    return overall, max(overall, *known)


def clock_contradicts(
    fastest_step_seconds: float | None, steady: SteadyFigures, max_wait_share: float = FED_BELOW
) -> bool:
    """Whether steps wait for more than a share of the time, and faster ones would not, by the queue's model.

    Both may be within their bounds, where these are wide. But nothing faster is known to be fed then.
    """
    return (
        fastest_step_seconds is not None
        and steady.wait_share.value > max_wait_share
        and fastest_step_seconds < steady.mean_step_seconds
    )


def too_few_steps_reasons(steady: SteadyFigures) -> tuple[str, ...]:
    """The reason for doubt where there are too few blocks of steps for an upper bound, and the lower is not enough."""
    needed = MIN_BLOCKS * steady.block_steps
    if steady.num_steps >= needed or steady.is_surely_starved:
        return ()
    return (f"too few steps: {steady.num_steps}, needs {needed}",)


def shares_contradict(share: float, other_share: float) -> bool:
    """Whether two shares of waiting differ by over 2 points and a tenth of the second."""
    return abs(share - other_share) > MAX_UNEXPLAINED_SHARE + _RELATIVE_TOLERANCE * other_share


def unreliable_reasons(recording: Recording) -> tuple[str, ...]:
    """Reasons why the times of a recording are unreliable, whatever is concluded from them."""
    doubts = []
    if recording.unexplained_share > MAX_UNEXPLAINED_SHARE:
        doubts.append(f"{recording.unexplained_share:.1%} of the time is not accounted for")
    if recording.overhead_share > _MAX_OVERHEAD_SHARE:
        doubts.append(f"the profiler itself takes {recording.overhead_share:.1%} of the time")
    if recording.storage_bytes_per_image is None:
        doubts.append("the system does not say what came from storage")
    return tuple(doubts)


def _contradiction_reason(check: ModelCheck | None) -> str:
    if check is None or not check.contradicts:
        return ""
    return (
        f"the queue's model, from the first half, says {check.model_wait_share:.1%} of waiting, the clock of the "
        f"second half {check.second_half.value:.1%}"
    )


def classify(steady: SteadyFigures, reasons: tuple[str, ...]) -> VerdictKind:
    """The kind of verdict that follows from these bounds."""
    if reasons:
        return VerdictKind.INCONCLUSIVE
    if all(share.upper < FED_BELOW for share in (*steady.wait_shares, steady.starved_share)):
        return VerdictKind.FED
    return VerdictKind.STARVED if steady.is_surely_starved else VerdictKind.MARGINAL


def _mean_or_zero(values: Values) -> float:
    return float(values.mean()) if len(values) else 0.0


def _median_or_zero(values: Values) -> float:
    return float(np.median(values)) if len(values) else 0.0
