"""Empties the queue of a loader that is not torch's: how deep it is, and what is ready in it, is not seen."""

from __future__ import annotations

from typing import Any

from .measured_loop import MeasuredLoop

_ROUND_BATCHES = 64
_ENOUGH_BATCHES = 256  # a deeper queue would hold gigabytes
_MAX_SECONDS = 10.0


def drain_unseen_queue(loop: MeasuredLoop, step_seconds: float) -> int | None:
    """Takes batches as fast as they come, until none is ready or more have come than any usual queue holds.

    None: batches came no faster than steps of `step_seconds` take them, so the queue is empty. Otherwise the number of
    batches that came beyond those that a loader no faster than the step makes meanwhile. A loader that is slower than
    the step must have had more than these ready, if it can still hide that.
    """
    num_beyond = total_seconds = 0.0
    while num_beyond < _ENOUGH_BATCHES and total_seconds < _MAX_SECONDS:
        recording = loop.record(_ROUND_BATCHES, _no_step, max_seconds=_MAX_SECONDS)
        seconds = float(recording.period_seconds.sum())
        if seconds >= len(recording) * step_seconds:
            return None
        total_seconds += seconds
        num_beyond += len(recording) - seconds / step_seconds
    return int(num_beyond)


def _no_step(_batch: Any) -> None:
    return None
