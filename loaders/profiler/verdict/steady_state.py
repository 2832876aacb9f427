"""When a loop through a loader has come to its steady state: what was before is not judged.

A queue hides a loader that is too slow until it is empty, so a loop begins with an empty one, as training does. What
the device waits while a loader that is fast enough fills it is cut off where the standard error of the rest is least
(MSER-5: White, Simulation 1997). The rest is held for steady unless its beginning and its end differ by more than
chance explains (Geweke 1992), and unless the queue still empties without the device having waited yet.
"""

from __future__ import annotations

import math

import numpy as np

from ..estimate.bounds import Values, block_length
from ..measure.recording import Recording

_TOGETHER = 5  # waits that the rule takes the mean of, at least, so that single ones do not matter
_FIRST, _LAST = 0.25, 0.5  # of the rest: its beginning and its end, as Geweke compares them, with more for the first
_SURE = 3.0  # standard errors
_MATTERS, _OF_ITSELF = 0.005, 0.1  # of the time, and of the waiting: a smaller difference changes no verdict
_FEWEST_BLOCKS = 4
_ROUNDING = 1e-12  # of a sum of squares: its last digits


def settled_after(wait: Values, workers: int) -> int:
    """How many of the first steps, which waited so long (steps,), belong to a transient: half of them at most.

    By means over as many steps as there are workers: these begin together, so their batches first come together too.
    """
    together = max(_TOGETHER, workers)
    means = wait[: len(wait) // together * together].reshape(-1, together).mean(axis=1)
    count = len(means)
    if count < 2 * _TOGETHER:
        return 0
    left = np.arange(count, 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means**2))
    powers = squares - sums**2 / left
    powers[powers < _ROUNDING * squares] = 0.0
    return int(np.argmin((powers / left**2)[: count // 2 + 1])) * together


def unsteady(recording: Recording) -> str:
    """Why the steps after `settled` are no steady state; empty where they are."""
    settled = recording.settled
    return drifting(recording.wait[settled:], recording.period[settled:]) or emptying(recording)


def drifting(wait: Values, period: Values) -> str:
    """Why steps that waited and took so long, (steps,), are no steady state; empty where they are."""
    early, late = wait[: round(_FIRST * len(wait))], wait[len(wait) - round(_LAST * len(wait)) :]
    if len(early) and period.any():
        change = float(late.mean() - early.mean())
        error = math.hypot(_error(early), _error(late))
        if abs(change) > max(_SURE * error, _MATTERS * float(period.mean()) + _OF_ITSELF * float(wait.mean())):
            return f"no steady state: waiting went from {1e3 * early.mean():.2f} to {1e3 * late.mean():.2f} ms a step"
    return ""


def emptying(recording: Recording) -> str:
    """Why a queue that has hidden all waits so far will not go on to; empty where it is as full as it stays."""
    gone = _loss(recording)
    return f"no steady state: the queue loses {100 * gone:.1f} batches in 100 steps" if gone else ""


def _error(values: Values) -> float:
    """Of the mean of a series whose values follow each other."""
    block = min(block_length(values, least=1), max(len(values) // _FEWEST_BLOCKS, 1))
    means = values[: len(values) // block * block].reshape(-1, block).mean(axis=1)
    return float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.inf


def _loss(recording: Recording) -> float:
    """Batches a step by which the queue gets emptier, where no step had to wait yet; 0 where that is not sure."""
    if not recording.workers or not recording.stamps:
        return 0.0
    first = recording.settled + (len(recording) - recording.settled) // 2
    if (recording.unmade[first:] > 0).any():
        return 0.0  # it was empty, and is so again: the device will not wait longer than it did
    late = recording.depth[first:].astype(np.float64)
    late = late[late >= 0]
    block = min(block_length(late, least=1), max(len(late) // (2 * _FEWEST_BLOCKS), 1))
    means = late[: len(late) // block * block].reshape(-1, block).mean(axis=1)
    count = len(means)
    if count < _FEWEST_BLOCKS:
        return 0.0
    places = np.arange(count) - (count - 1) / 2
    power = float(places @ places)
    slope = float(places @ means) / power
    spread = means - means.mean() - slope * places
    error = math.sqrt(float(spread @ spread) / (count - 2) / power)
    return -slope / block if -slope > _SURE * error and -slope * count > 1 else 0.0
