"""The verdict on a job of several ranks: each waits for its own batches, and all for the last of them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..estimate.bounds import BoundedEstimate, Values, block_length, bootstrap_ratio, event_rate_bound
from ..measure.recording import Recording
from .judge import (
    MAX_UNEXPLAINED_SHARE,
    EpochStarts,
    classify,
    shares_contradict,
    too_few_steps_reasons,
    unreliable_reasons,
)
from .steady_state import draining_queue_reason, drift_reason, transient_length
from .verdict import Verdict

_LARGEST_OF_RANKS = (
    "num_transient_steps", "handover_share", "transport_floor_seconds", "median_load_seconds", "overhead_share"
)  # fmt: skip
"""Figures of a job's verdict that are the largest of any rank."""


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
class StepSeries:
    """Step times of a rank, or of all ranks of a job, (steps,): in each step a job waits as long as any rank does.

    wait_seconds, period_seconds, step_seconds: of a job the longest wait, the mean period, and the shortest step, which
    is that of the rank whose batch came last: the other ranks' steps include waiting for it. is_queue_filled: whether
    all queues have been filled once. num_transient_steps: before the steady state. num_workers: the most of any rank.
    """

    wait_seconds: Values
    period_seconds: Values
    step_seconds: Values
    is_queue_filled: NDArray[np.bool_]
    num_transient_steps: int
    num_workers: int

    @classmethod
    def of_recording(cls, recording: Recording) -> StepSeries:
        """The steps of one rank."""
        return cls(
            wait_seconds=recording.wait_seconds,
            period_seconds=recording.period_seconds,
            step_seconds=recording.step_seconds,
            num_workers=recording.num_workers,
            is_queue_filled=replace(recording, num_transient_steps=0).is_steady,
            num_transient_steps=recording.num_transient_steps,
        )

    @classmethod
    def of_job(cls, ranks: Sequence[StepSeries]) -> StepSeries:
        """The steps of a job."""
        return cls(
            wait_seconds=np.max([rank.wait_seconds for rank in ranks], axis=0),
            period_seconds=np.mean([rank.period_seconds for rank in ranks], axis=0),
            step_seconds=np.min([rank.step_seconds for rank in ranks], axis=0),
            num_workers=max(rank.num_workers for rank in ranks),
            is_queue_filled=np.logical_and.reduce([rank.is_queue_filled for rank in ranks]),
            num_transient_steps=max(rank.num_transient_steps for rank in ranks),
        )

    @property
    def is_steady(self) -> NDArray[np.bool_]:
        """Steps of the steady state, bool (steps,)."""
        return self.is_queue_filled & (np.arange(len(self.is_queue_filled)) >= self.num_transient_steps)

    def transient_length(self) -> int:
        """Number of transient steps; see `steady_state.transient_length`."""
        return transient_length(self.wait_seconds, self.num_workers)

    def drift_reason(self) -> str:
        """Why the steps after the transient are no steady state; empty where they are."""
        return drift_reason(
            self.wait_seconds[self.num_transient_steps :], self.period_seconds[self.num_transient_steps :]
        )

    def estimate_wait_share(self, confidence: float) -> tuple[BoundedEstimate, int]:
        """Waiting over total time of the steady state, and the block length of its bounds in steps."""
        wait = self.wait_seconds[self.is_steady]
        block = block_length(wait, min_length=max(self.num_workers, 1))
        return bootstrap_ratio(wait, self.period_seconds[self.is_steady], block=block, confidence=confidence), block


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What a rank sends to the others: its result and its step times.

    replayed_step_seconds: mean step on preloaded batches. epoch: of the job, the same on all ranks. doubts: about this
    rank that make the job's figures doubtful too.
    """

    rank: RankResult
    steps: StepSeries
    replayed_step_seconds: float
    epoch: EpochStarts | None
    doubts: tuple[str, ...]


def judge_job(reports: Sequence[RankReport]) -> tuple[Verdict, tuple[RankResult, ...]]:
    """The verdict on the whole job, and its ranks; for a single rank its own verdict, and no ranks.

    In each step all ranks wait until the last one's batch is ready, since their gradients are summed: so the job waits
    for the longest of their waits. That holds where they end their steps together and compute equally long; otherwise
    the job is inconclusive, since the waits would sum to more than the slowdown of its steps.

    The job is judged by this series of longest waits: its steady state, bounds, closure and estimator B. A doubt about
    one rank is a doubt about the job only where it makes that series doubtful: unreliable times of a rank (unexplained
    time, profiler overhead, unknown page cache), since any of its waits may be the longest; and a queue that has hidden
    all waits so far but still drains, since the job is yet to wait for it. Where only one rank's waits are unsteady, or
    its clock contradicts its queue model, that is reported with the rank; a job with such a model has no headroom.
    """
    if len(reports) == 1:
        return reports[0].rank.verdict, ()
    job_steps = StepSeries.of_job([report.steps for report in reports])
    rank_waits, longest_waits = (
        np.array([report.steps.wait_seconds[job_steps.is_steady] for report in reports]),
        job_steps.wait_seconds[job_steps.is_steady],
    )
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
    rank_number: int, verdict: Verdict, live: Recording, replayed: Recording, epoch: EpochStarts | None
) -> RankReport:
    """The report of rank `rank_number`. replayed: the same step on preloaded batches."""
    is_steady, stage_seconds = live.is_steady, live.stage_seconds
    wait_parts = {
        "transport": live.transport_seconds,
        "sampling": live.sampler_wait_seconds,
        "contention": live.late_seconds,
        "preparation": live.not_ready_seconds,
    }
    stage = max(stage_seconds.items(), key=lambda item: item[1]) if stage_seconds else None
    rank = RankResult(
        number=rank_number,
        host=socket.gethostname(),
        verdict=verdict,
        held_up_share=0.0,
        wait_for_others_seconds=0.0,
        wait_share_by_cause={
            name: float(part[is_steady].sum()) / max(live.steady_seconds, 1e-12) for name, part in wait_parts.items()
        },
        images_per_second=live.images_per_second,
        longest_stage=None if stage is None else (stage[0], stage[1] / sum(stage_seconds.values())),
    )
    return RankReport(
        rank=rank,
        steps=StepSeries.of_recording(live),
        replayed_step_seconds=float(replayed.step_seconds.mean()),
        epoch=epoch,
        doubts=(*unreliable_reasons(live), *filter(None, [draining_queue_reason(live)])),
    )


def slowest_rank(ranks: Sequence[RankResult]) -> int:
    """The number of the rank that held up the others most; the first where none ever waited."""
    return max(ranks, key=lambda result: (result.held_up_share, result.verdict.wait_share.value, -result.number)).number


def _job_verdict(reports: Sequence[RankReport], steps: StepSeries) -> Verdict:
    """Per-loader figures are those of the worst rank; the waits are the job's own."""
    verdicts = [rank_verdict.rank.verdict for rank_verdict in reports]
    confidence = verdicts[0].wait_share.confidence
    longest_waits, period_seconds, step_seconds = (
        each[steps.is_steady] for each in (steps.wait_seconds, steps.period_seconds, steps.step_seconds)
    )
    starved_threshold_seconds = max(rank_verdict.starved_threshold_seconds for rank_verdict in verdicts)
    wait_share, block_steps = steps.estimate_wait_share(confidence)
    starved_share = event_rate_bound(
        longest_waits > starved_threshold_seconds, block=block_steps, confidence=confidence
    )
    epoch = reports[0].epoch
    epoch_wait_share = epoch.epoch_wait_share(wait_share, float(period_seconds.mean())) if epoch is not None else None
    unexplained_share = abs(float((period_seconds - longest_waits - step_seconds).sum())) / max(
        float(period_seconds.sum()), 1e-12
    )
    replay_slowdown = 1 - max(rank_verdict.replayed_step_seconds for rank_verdict in reports) / float(
        period_seconds.mean()
    )  # estimator B of the job
    reasons = (
        *(f"rank {number}: {doubt}" for number, rank_verdict in enumerate(reports) for doubt in rank_verdict.doubts),
        *filter(None, [steps.drift_reason()]),
        *too_few_steps_reasons(len(longest_waits), block_steps),
        *_desynchronised_reasons(wait_share, replay_slowdown, unexplained_share),
    )
    fastest_step_seconds, fastest_step_upper_seconds, storage_bytes_per_image = (
        None if None in values else max(values)
        for values in (
            [getattr(rank_verdict, name) for rank_verdict in verdicts]
            for name in ("fastest_step_seconds", "fastest_step_upper_seconds", "storage_bytes_per_image")
        )
    )
    return replace(
        verdicts[0],
        kind=classify(wait_share, starved_share, epoch_wait_share, reasons),
        num_steps=len(longest_waits),
        block_steps=block_steps,
        wait_share=wait_share,
        model_wait_share=None,
        starved_share=starved_share,
        num_starved_steps=int((longest_waits > starved_threshold_seconds).sum()),
        epoch_wait_share=epoch_wait_share,
        starved_threshold_seconds=starved_threshold_seconds,
        median_step_seconds=float(np.median(step_seconds)),
        mean_step_seconds=float(step_seconds.mean()),
        fastest_step_seconds=fastest_step_seconds,
        fastest_step_upper_seconds=fastest_step_upper_seconds,
        storage_bytes_per_image=storage_bytes_per_image,
        **{name: max(getattr(rank_verdict, name) for rank_verdict in verdicts) for name in _LARGEST_OF_RANKS},
        unexplained_share=max(unexplained_share, *(rank_verdict.unexplained_share for rank_verdict in verdicts)),
        reasons=reasons,
        rank_wait_shares=tuple(rank_verdict.wait_share.value for rank_verdict in verdicts),
    )


def _desynchronised_reasons(
    wait_share: BoundedEstimate, replay_slowdown: float, unexplained_share: float
) -> tuple[str, ...]:
    """Why the ranks' waits do not sum to what the job waits, if they do not."""
    cause = "the ranks do not end their steps together, or compute for different times"
    if wait_share.value > replay_slowdown and shares_contradict(wait_share.value, replay_slowdown):
        return (
            f"some rank waits {wait_share.value:.1%} of the time, but steps take only "
            f"{max(replay_slowdown, 0.0):.1%} of it longer "
            f"than on preloaded batches: {cause}",
        )
    return (
        (f"{unexplained_share:.1%} of the job's time is not accounted for: {cause}",)
        if unexplained_share > MAX_UNEXPLAINED_SHARE
        else ()
    )
