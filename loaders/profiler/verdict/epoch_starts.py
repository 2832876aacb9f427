"""Starts of epochs: the additional waiting from one epoch to the next, and what it adds to a whole epoch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..estimate.bounds import BoundedEstimate, mean_bounds
from .step_series import StepSeries

NOT_JUDGED = "epoch boundaries not judged: the loader has no length, and none was seen; give epoch_batches"

REST_NOT_SEEN = "{:,} of {:,} batches of an epoch were seen, in order: the rest is taken to be like them"


@dataclass(frozen=True, kw_only=True)
class EpochStarts:
    """Measured starts of an epoch of `num_batches`.

    start_wait_seconds: additional waiting from the end of the epoch before until the queue is full, of several starts.
    Below 0 where the device happened to wait less than it usually does in as many steps: were that taken for 0, the
    mean of starts that cost nothing would be above 0.
    num_steps_left_out: steps after the measured ones, in which the loop may not have settled yet.
    """

    num_batches: int
    start_wait_seconds: Sequence[float]
    num_steps_left_out: int = 0

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said of them."""
        if not self.num_steps_left_out:
            return ()
        more = f"{self.num_steps_left_out:,} more steps"
        return (f"epoch starts not judged to their end: the first one took {more} to settle than were measured",)

    @property
    def mean_start_wait_seconds(self) -> float:
        """The mean start, at least 0: what all of them take is a part of the wait, also where only some are slow."""
        return max(float(np.mean(self.start_wait_seconds)), 0.0)

    def epoch_wait_share(
        self, wait_share: BoundedEstimate, period_seconds: float, *, unseen_wait_seconds: float
    ) -> BoundedEstimate:
        """Share of waiting over an epoch whose other steps take `period_seconds` and wait for `wait_share`.

        Each bound combines one of the mean start with one of the steady state. `confidence` is that of the less
        certain of them: few starts have less than the steady state. unseen_wait_seconds: about the transfer of a ready
        batch; a start may wait for that long even if none was seen to.
        """
        steady_seconds = self.num_batches * period_seconds
        start = mean_bounds(self.start_wait_seconds, confidence=wait_share.confidence)
        start_and_share = (
            (max(start.value, 0.0), wait_share.value),
            (max(start.lower, 0.0), wait_share.lower),
            (max(start.upper, unseen_wait_seconds), wait_share.upper),
        )
        shares = [
            (start_seconds + share * steady_seconds) / (start_seconds + steady_seconds) if steady_seconds else 1.0
            for start_seconds, share in start_and_share
        ]
        confidence = min(wait_share.confidence, start.confidence)
        return BoundedEstimate(value=shares[0], lower=shares[1], upper=shares[2], confidence=confidence)


def epoch_boundaries(segment_step: NDArray[np.int64]) -> list[int]:
    """Indices of the steps that begin an epoch, of `StepTimes.segment_step`; a recording itself begins anywhere."""
    return [int(index) + 1 for index in np.flatnonzero(segment_step[1:] == 0)]


def seen_start_waits(
    steps: StepSeries, boundaries: Sequence[int], *, num_start_steps: int, mean_wait_seconds: float
) -> list[float]:
    """Seconds that the device waited longer at each boundary than in as many other steps, without the transient.

    From when the last batch of the epoch before was requested, `steps.max_in_flight` steps before the boundary, to
    `num_start_steps` after it.
    """
    num_steps, waits, end = len(steps.wait_seconds), list[float](), steps.num_transient_steps
    for boundary, following in itertools.pairwise([*boundaries, num_steps + num_start_steps]):
        start = max(boundary - steps.max_in_flight - 1, end)
        end = min(boundary + num_start_steps, following)
        if start <= boundary and end <= num_steps:
            wait_seconds = steps.wait_seconds[start:end]
            waits.append(float(wait_seconds.sum()) - mean_wait_seconds * len(wait_seconds))
    return waits
