"""Detects the steady state of a loop; the transient before it is not judged.

A queue hides a loader that is too slow until it is empty, so a loop begins with an empty queue, as training does. Waits
while a fast enough loader fills it are cut off where the standard error of the rest is least (MSER-5: White, Simulation
1997), but none once the loop has settled: a wait after that is one of the loader, which may come again. The rest is
steady unless its beginning and its end differ by more than chance explains (Geweke 1992), and unless the queue still
drains without having been empty yet.
"""

from __future__ import annotations

import math

import numpy as np

from ....pipeline.console import plural
from ..estimate.bounds import Values, block_length
from ..measure.recording import Recording
from .verdict import FED_BELOW

NOT_STEADY = "no steady state"
"""Beginning of the reasons for doubt that more steps may remove."""

_MIN_BATCH_STEPS = 5  # waits that the rule takes the mean of, at least, so that single ones do not matter
_EARLY_SHARE, _LATE_SHARE = 0.25, 0.5  # of the rest: its beginning and its end; Geweke takes less for the first
_SIGNIFICANT_STANDARD_ERRORS = 3.0  # standard errors
_MIN_DRIFT_SHARE, _MIN_RELATIVE_DRIFT = 0.005, 0.1  # of the time and the waiting: less changes no verdict
_MIN_BLOCKS = 4
_RELATIVE_ROUNDING = 1e-12  # of a sum of squares: its last digits


def settled_length(wait_seconds: Values, *, max_in_flight: int, negligible_wait_seconds: float) -> int:
    """Number of steps until the loop has settled: those up to the first, as many as the queue holds and 5 at least, of
    which none is starved, or which on average wait no longer than is usual in the second half.
    """
    num_steps = max(_MIN_BATCH_STEPS, max_in_flight)
    if len(wait_seconds) < num_steps:
        return len(wait_seconds)
    windows = np.lib.stride_tricks.sliding_window_view(wait_seconds, num_steps)
    means = windows.mean(axis=1)
    usual_seconds = float(np.median(means[len(means) // 2 :]))  # which a single wait does not change
    is_usual = means <= (1 + _MIN_RELATIVE_DRIFT) * usual_seconds
    return int(np.argmax(is_usual | (windows.max(axis=1) <= negligible_wait_seconds))) + num_steps


def least_error_length(wait_seconds: Values, num_workers: int) -> int:
    """Number of steps whose removal gives the least standard error of the rest, by MSER: half of them at most.

    Uses means over as many steps as there are workers, since these start together and their first batches arrive
    together.
    """
    batch_steps = max(_MIN_BATCH_STEPS, num_workers)
    means = wait_seconds[: len(wait_seconds) // batch_steps * batch_steps].reshape(-1, batch_steps).mean(axis=1)
    count = len(means)
    if count < 2 * _MIN_BATCH_STEPS:
        return 0
    num_left = np.arange(count, 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means**2))
    squared_deviations = squares - sums**2 / num_left
    squared_deviations[squared_deviations < _RELATIVE_ROUNDING * squares] = 0.0
    return int(np.argmin((squared_deviations / num_left**2)[: count // 2 + 1])) * batch_steps


def drift_reason(wait_seconds: Values, period_seconds: Values) -> str:
    """Why a series of waits and periods, (steps,), is no steady state; empty where it is."""
    early = wait_seconds[: round(_EARLY_SHARE * len(wait_seconds))]
    late = wait_seconds[len(wait_seconds) - round(_LATE_SHARE * len(wait_seconds)) :]
    if len(early) and period_seconds.any():
        change = float(late.mean() - early.mean())
        error = math.hypot(_standard_error(early), _standard_error(late))
        if abs(change) > max(
            _SIGNIFICANT_STANDARD_ERRORS * error,
            _MIN_DRIFT_SHARE * float(period_seconds.mean()) + _MIN_RELATIVE_DRIFT * float(wait_seconds.mean()),
        ):
            return f"{NOT_STEADY}: waiting went from {1e3 * early.mean():.2f} to {1e3 * late.mean():.2f} ms a step"
    return ""


def draining_queue_reason(recording: Recording) -> str:
    """Why a queue that has hidden all waits so far will not do so for long; empty where it keeps its depth."""
    drain_rate = _queue_drain_rate(recording)
    return f"{NOT_STEADY}: the queue loses {100 * drain_rate:.1f} batches in 100 steps" if drain_rate else ""


def unseen_queue_remarks(num_steps: int, max_hidden_batches: int | None) -> tuple[str, ...]:
    """What a verdict on `num_steps` relies on where a queue is not seen; none where it was empty at their beginning.

    A loader that is 1 % too slow takes one more batch out of its queue in each 100 steps, and waits once it is empty.
    max_hidden_batches: see `drain_unseen_queue`.
    """
    if max_hidden_batches is None:
        return ()
    depth = plural(max_hidden_batches + round(FED_BELOW * num_steps), "batch", "batches")
    return (f"the loader's queue is not seen, and assumed to hold at most {depth}",)


def _standard_error(values: Values) -> float:
    """Standard error of the mean of an autocorrelated series."""
    block = min(block_length(values, min_length=1), max(len(values) // _MIN_BLOCKS, 1))
    means = values[: len(values) // block * block].reshape(-1, block).mean(axis=1)
    return float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.inf


def _queue_drain_rate(recording: Recording) -> float:
    """Batches a step that the queue loses while it has not been empty yet; 0 where that is not significant.

    A batch that is late shows no empty queue: others may be ready behind it.
    """
    if not recording.num_workers or not recording.batch_timings:
        return 0.0
    first = recording.num_transient_steps + (len(recording) - recording.num_transient_steps) // 2
    late_depth = recording.queue_depth[first:].astype(np.float64)
    late_depth = late_depth[late_depth >= 0]
    if not late_depth.all():
        return 0.0  # it was empty, and is so again: the device will not wait longer than it did
    block = min(block_length(late_depth, min_length=1), max(len(late_depth) // (2 * _MIN_BLOCKS), 1))
    means = late_depth[: len(late_depth) // block * block].reshape(-1, block).mean(axis=1)
    count = len(means)
    if count < _MIN_BLOCKS:
        return 0.0
    centred_index = np.arange(count) - (count - 1) / 2
    power = float(centred_index @ centred_index)
    slope = float(centred_index @ means) / power
    residuals = means - means.mean() - slope * centred_index
    error = math.sqrt(float(residuals @ residuals) / (count - 2) / power)
    return -slope / block if -slope > _SIGNIFICANT_STANDARD_ERRORS * error and -slope * count > 1 else 0.0
