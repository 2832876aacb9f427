"""Whether an epoch of a loader has a steady state, which begins once as many batches have come as are in flight."""

from __future__ import annotations

import math
from typing import Any

from ....pipeline.console import plural
from ....pipeline.errors import UsageError
from ..measure.measured_loop import MeasuredLoop
from ..measure.recording import Recording

_MIN_STEADY_STEPS = 2  # closure is the time from one of them to the next


def num_epoch_batches(loader: Any) -> int | None:
    """Batches of an epoch; None where the loader has no length."""
    try:
        return len(loader) or None
    except (TypeError, NotImplementedError):
        return None


def most_in_flight(loader: Any, loop: MeasuredLoop) -> float:
    """Most batches in flight with which an epoch has two steady steps; infinite where its length is not known.

    loop: over the loader.
    """
    num_batches = None if loop.is_pipeline else num_epoch_batches(loader)  # a pipeline's may be others
    return math.inf if num_batches is None else num_batches - _MIN_STEADY_STEPS


def short_epoch_batches(loader: Any, loop: MeasuredLoop) -> int | None:
    """Batches of an epoch that is known to have no two steady steps one after the other; else None."""
    return num_epoch_batches(loader) if max(loop.max_in_flight, 1) > most_in_flight(loader, loop) else None


def short_seen_batches(loop: MeasuredLoop, recording: Recording) -> int | None:
    """Batches of the epochs that a loop saw, if they have no two steady steps one after the other; else None.

    recording: of the loop so far. Its longest epoch counts, where they differ.
    """
    if loop.seen_epoch_batches is None:
        return None
    num_batches = max(loop.seen_epoch_batches, int(recording.segment_step.max()) + 1)
    return num_batches if max(loop.max_in_flight, 1) > num_batches - _MIN_STEADY_STEPS else None


def short_epoch_error(num_batches: int, max_in_flight: int) -> UsageError:
    """The error for epochs of so many batches, of which so many can be in flight."""
    remedy = "give more data or a smaller batch_size"
    return UsageError(
        f"an epoch has {plural(num_batches, 'batch', 'batches')}, and {max_in_flight} can be made ahead: it ends "
        f"before its steady state; {remedy}{', or take fewer workers' if max_in_flight else ''}"
    )
