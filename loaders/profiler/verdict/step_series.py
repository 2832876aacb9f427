"""Step times of a rank, or of a job of several ranks, as its verdict sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..estimate.bounds import BoundedEstimate, Values, block_length, bootstrap_ratio
from ..measure.recording import Recording
from .steady_state import drift_reason, least_error_length, settled_length

STARVED_FLOORS = 3
"""A step that waits for longer than so many transfers of a ready batch is starved."""


@dataclass(frozen=True, kw_only=True)
class StepSeries:
    """Step times of a rank, or of all ranks of a job, (steps,): in each step a job waits as long as any rank does.

    wait_seconds, period_seconds, step_seconds: of a job the longest wait, the mean period, and the shortest step, which
    is that of the rank whose batch came last: the other ranks' steps include waiting for it. is_queue_filled: whether
    all queues have been filled once. num_transient_steps: before the steady state. num_workers, max_in_flight,
    negligible_wait_seconds, up to which a step is not starved: the most of any rank.
    """

    wait_seconds: Values
    period_seconds: Values
    step_seconds: Values
    is_queue_filled: NDArray[np.bool_]
    num_transient_steps: int
    num_workers: int
    max_in_flight: int
    negligible_wait_seconds: float

    @classmethod
    def of_recording(cls, recording: Recording) -> StepSeries:
        """The steps of one rank."""
        return cls(
            wait_seconds=recording.wait_seconds,
            period_seconds=recording.period_seconds,
            step_seconds=recording.step_seconds,
            num_workers=recording.num_workers,
            max_in_flight=recording.num_workers * recording.prefetch_factor,
            negligible_wait_seconds=starved_threshold_seconds(recording),
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
            max_in_flight=max(rank.max_in_flight for rank in ranks),
            negligible_wait_seconds=max(rank.negligible_wait_seconds for rank in ranks),
            is_queue_filled=np.logical_and.reduce([rank.is_queue_filled for rank in ranks]),
            num_transient_steps=max(rank.num_transient_steps for rank in ranks),
        )

    @property
    def is_steady(self) -> NDArray[np.bool_]:
        """Steps of the steady state, bool (steps,)."""
        return self.is_queue_filled & (np.arange(len(self.is_queue_filled)) >= self.num_transient_steps)

    def transient_length(self) -> int:
        """Number of transient steps at the beginning; see `steady_state`."""
        settled = settled_length(
            self.wait_seconds,
            max_in_flight=self.max_in_flight,
            negligible_wait_seconds=self.negligible_wait_seconds,
        )
        return min(least_error_length(self.wait_seconds, self.num_workers), settled)

    def drift_reason(self) -> str:
        """Why the steps after the transient are no steady state; empty where they are."""
        return drift_reason(
            self.wait_seconds[self.num_transient_steps :], self.period_seconds[self.num_transient_steps :]
        )

    def estimate_wait_share(self, confidence: float) -> tuple[BoundedEstimate, int]:
        """`Estimator.LIVE` of the steady state, waiting over total time; block length of its bounds in steps."""
        wait = self.wait_seconds[self.is_steady]
        block = block_length(wait, min_length=max(self.num_workers, 1))
        return bootstrap_ratio(wait, self.period_seconds[self.is_steady], block=block, confidence=confidence), block


def starved_threshold_seconds(recording: Recording) -> float:
    """Wait above which a step counts as starved: 1 % of the median step, and above the noise of transport."""
    steady_step_seconds = recording.step_seconds[recording.is_steady]
    if not len(steady_step_seconds):
        return 0.0
    return max(0.01 * float(np.median(steady_step_seconds)), STARVED_FLOORS * recording.transport_floor_seconds)
