"""The verdict on a job of several ranks: each waits for its own batches, and all for the last of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..estimate.bounds import BoundedEstimate
from ..measure.recording import Recording
from .epoch_starts import EpochStarts
from .judge import (
    MAX_UNEXPLAINED_SHARE,
    classify,
    clock_contradicts,
    shares_contradict,
    steady_figures,
    too_few_steps_reasons,
    unreliable_reasons,
)
from .steady_state import draining_queue_reason
from .step_series import StepSeries
from .unseen_steps import has_unseen_steps
from .verdict import Verdict

_LARGEST_OF_RANKS = (
    "num_transient_steps", "host_transport_share", "transport_floor_seconds", "median_load_seconds", "overhead_share"
)  # fmt: skip
"""Figures of a job's verdict that are the largest of any rank."""
_LARGEST_IF_KNOWN_TO_ALL = ("fastest_step_seconds", "fastest_step_upper_seconds", "storage_bytes_per_image")
"""Figures that are the largest of any rank, and None where they are None for one of them."""


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """One rank of a job: its own verdict, and the causes of its waits. Shares are 0 to 1.

    wait_share_by_cause: share of its time by cause, named as in `Profile.step_part_seconds`. held_up_share: of the
    job's waiting, the share in steps in which this rank's batch came last. wait_for_others_seconds: mean seconds that
    its step lasts longer because other ranks wait. longest_stage: the stage that dominates loading, with its share;
    None without batch timings.
    """

    number: int
    host: str
    verdict: Verdict
    wait_share_by_cause: dict[str, float]
    held_up_share: float
    wait_for_others_seconds: float
    images_per_second: float
    longest_stage: tuple[str, float] | None

    @property
    def main_cause(self) -> tuple[str, float]:
        """The largest cause of its waits, and its share of the time."""
        return max(self.wait_share_by_cause.items(), key=lambda item: item[1])


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What a rank sends to the others: its result and its step times.

    replayed_step_seconds: mean step on preloaded batches. epoch: of the job, the same on all ranks. doubts: about this
    rank that make the job's figures doubtful too. draining_doubts: those that do unless the job surely waits too long.
    """

    rank: RankResult
    steps: StepSeries
    replayed_step_seconds: float
    epoch: EpochStarts | None
    doubts: tuple[str, ...]
    draining_doubts: tuple[str, ...]


def judge_job(reports: Sequence[RankReport]) -> tuple[Verdict, tuple[RankResult, ...]]:
    """The verdict on the whole job, and its ranks; for a single rank its own verdict, and no ranks.

    In each step all ranks wait until the last one's batch is ready, since their gradients are summed: so the job waits
    for the longest of their waits. That holds where they end their steps together and compute equally long; otherwise
    the job is inconclusive, since the waits would sum to more than the slowdown of its steps.

    The job is judged by this series of longest waits: its steady state, bounds, unexplained share and replay slowdown.
    A doubt about one rank is a doubt about the job only where it makes that series doubtful: unreliable times of a rank
    (unexplained time, profiler overhead, unknown page cache, steps that its clock does not see), since any of its waits
    may be the longest; and a queue that has not been empty so far but drains, since the job is yet to wait for it.
    Where only one rank's waits are unsteady, or its clock contradicts its queue model, that is reported with the rank;
    a job with such a model has no headroom.
    """
    if len(reports) == 1:
        return reports[0].rank.verdict, ()
    job_steps = StepSeries.of_job([report.steps for report in reports])
    rank_waits = np.array([report.steps.wait_seconds[job_steps.is_steady] for report in reports])
    longest_waits = job_steps.wait_seconds[job_steps.is_steady]
    held_up_seconds = [
        float(longest_waits[rank_waits.argmax(axis=0) == number].sum()) for number in range(len(reports))
    ]
    total_seconds = max(sum(held_up_seconds), 1e-12)
    rank_results = tuple(
        replace(
            report.rank,
            held_up_share=seconds / total_seconds,
            wait_for_others_seconds=float(
                (report.steps.step_seconds - job_steps.step_seconds)[report.steps.is_steady].mean()
            ),
        )
        for report, seconds in zip(reports, held_up_seconds, strict=True)
    )
    return _job_verdict(reports, job_steps), rank_results


def report_of_rank(
    rank_number: int, verdict: Verdict, live: Recording, replayed: Recording, epoch: EpochStarts | None, *,
    doubts: tuple[str, ...] = (),
) -> RankReport:  # fmt: skip
    """The report of rank `rank_number`. replayed: the same step on preloaded batches. doubts: see `judge`."""
    is_steady, stage_seconds = live.is_steady, live.stage_seconds
    stage = max(stage_seconds.items(), key=lambda item: item[1]) if stage_seconds else None
    rank = RankResult(
        number=rank_number,
        host=socket.gethostname(),
        verdict=verdict,
        held_up_share=0.0,
        wait_for_others_seconds=0.0,
        wait_share_by_cause={
            cause: float(seconds[is_steady].sum()) / max(live.steady_seconds, 1e-12)
            for cause, seconds in live.waits_by_cause.items()
        },
        images_per_second=live.images_per_second,
        longest_stage=None if stage is None else (stage[0], stage[1] / sum(stage_seconds.values())),
    )
    return RankReport(
        rank=rank,
        steps=StepSeries.of_recording(live),
        replayed_step_seconds=float(replayed.step_seconds.mean()),
        epoch=epoch,
        doubts=(*unreliable_reasons(live), *doubts),
        draining_doubts=tuple(filter(None, [draining_queue_reason(live)])),
    )


def slowest_rank(ranks: Sequence[RankResult]) -> int:
    """The number of the rank that held up the others most; the first where none ever waited."""
    return max(ranks, key=lambda result: (result.held_up_share, result.verdict.wait_share.value, -result.number)).number


def _job_verdict(reports: Sequence[RankReport], steps: StepSeries) -> Verdict:
    """Per-loader figures are those of the worst rank; the waits are the job's own."""
    verdicts = [report.rank.verdict for report in reports]
    steady = steady_figures(
        steps,
        starved_threshold_seconds=max(verdict.starved_threshold_seconds for verdict in verdicts),
        confidence=verdicts[0].wait_share.confidence,
        epoch=reports[0].epoch,
    )
    unexplained_share, replay_slowdown = _unexplained_share(steps), _replay_slowdown(reports, steps)
    rank_doubts = [
        f"rank {number}: {doubt}"
        for number, report in enumerate(reports)
        for doubt in (*report.doubts, *(() if steady.is_surely_starved else report.draining_doubts))
    ]
    reasons = (
        *rank_doubts,
        *filter(None, [steps.drift_reason()]),
        *too_few_steps_reasons(steady),
        # Waits beside the device's work exceed what replays show, whether or not the ranks end their steps together.
        *(
            ()
            if has_unseen_steps(rank_doubts)
            else _desynchronised_reasons(steady.wait_share, replay_slowdown, unexplained_share)
        ),
    )
    largest_if_known: dict[str, Any] = {}
    for name in _LARGEST_IF_KNOWN_TO_ALL:
        values = [getattr(verdict, name) for verdict in verdicts]
        largest_if_known[name] = None if None in values else max(values)
    if clock_contradicts(largest_if_known["fastest_step_seconds"], steady):
        largest_if_known["fastest_step_seconds"] = None
    if not steady.is_surely_fed_once_steady or largest_if_known["fastest_step_seconds"] is None:
        largest_if_known["fastest_step_upper_seconds"] = None
    return replace(
        verdicts[0],
        **vars(steady),
        **largest_if_known,
        **{name: max(getattr(verdict, name) for verdict in verdicts) for name in _LARGEST_OF_RANKS},
        kind=classify(steady, reasons),
        model_wait_share=None,
        replay_slowdown=replay_slowdown,
        unexplained_share=max(unexplained_share, *(verdict.unexplained_share for verdict in verdicts)),
        reasons=reasons,
        remarks=_remarks(verdicts),
        rank_wait_shares=tuple(verdict.wait_share.value for verdict in verdicts),
    )


def _remarks(verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """The remarks of all ranks; the rank is named where not all have the same."""
    remarks = dict.fromkeys(remark for verdict in verdicts for remark in verdict.remarks)
    return tuple(
        text
        for remark in remarks
        for text in (
            [remark]
            if all(remark in verdict.remarks for verdict in verdicts)
            else [f"rank {number}: {remark}" for number, verdict in enumerate(verdicts) if remark in verdict.remarks]
        )
    )


def _unexplained_share(steps: StepSeries) -> float:
    """Share of the job's steady time that its waits and steps do not explain, 0 to 1."""
    period_seconds, wait_seconds, step_seconds = (
        series[steps.is_steady] for series in (steps.period_seconds, steps.wait_seconds, steps.step_seconds)
    )
    unexplained_seconds = abs(float((period_seconds - wait_seconds - step_seconds).sum()))
    return unexplained_seconds / max(float(period_seconds.sum()), 1e-12)


def _replay_slowdown(reports: Sequence[RankReport], steps: StepSeries) -> float:
    """`Estimator.DIFFERENTIAL` of the job: against the slowest rank's step on preloaded batches."""
    slowest_replayed_seconds = max(report.replayed_step_seconds for report in reports)
    return 1 - slowest_replayed_seconds / float(steps.period_seconds[steps.is_steady].mean())


def _desynchronised_reasons(
    wait_share: BoundedEstimate, replay_slowdown: float, unexplained_share: float
) -> tuple[str, ...]:
    """Why the ranks' waits do not sum to what the job waits, if they do not."""
    cause = "the ranks do not end their steps together, or compute for different times"
    if wait_share.value > replay_slowdown and shares_contradict(wait_share.value, replay_slowdown):
        return (
            f"some rank waits {wait_share.value:.1%} of the time, but steps take only "
            f"{max(replay_slowdown, 0.0):.1%} of it longer than on preloaded batches: {cause}",
        )
    return (
        (f"{unexplained_share:.1%} of the job's time is not accounted for: {cause}",)
        if unexplained_share > MAX_UNEXPLAINED_SHARE
        else ()
    )
