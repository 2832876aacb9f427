"""Empties the queue of a loader that is not torch's: how deep it is, and what is ready in it, is not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .measured_loop import MeasuredLoop

_ROUND_BATCHES = 64
_ENOUGH_BATCHES = 256  # a deeper queue would hold gigabytes
_MAX_SECONDS = 10.0


def drain_unseen_queue(loop: MeasuredLoop, step_seconds: float, *, all_max: Callable[[int], int] = int) -> int | None:
    """Takes batches as fast as they come, until none is ready or more have come than any usual queue holds.

    None: batches came no faster than steps of `step_seconds` take them, so the queue is empty, or it is seen.
    Otherwise the number of batches that came beyond those that a loader no faster than the step makes meanwhile. A
    loader that is slower than the step must have had more than these ready, if it can still hide that.

    all_max: the largest value of any rank. All ranks go on until each is done: the queue of one that waited for the
    others would be full again.
    """
    num_beyond = total_seconds = 0.0
    is_empty = loop.sees_batches
    while all_max(int(not is_empty and num_beyond < _ENOUGH_BATCHES and total_seconds < _MAX_SECONDS)):
        recording = loop.record(_ROUND_BATCHES, _no_step, max_seconds=_MAX_SECONDS)
        seconds = float(recording.period_seconds.sum())
        is_empty = is_empty or seconds >= len(recording) * step_seconds
        total_seconds += seconds
        num_beyond += len(recording) - seconds / step_seconds
    return None if is_empty else int(num_beyond)


def _no_step(_batch: Any) -> None:
    return None
