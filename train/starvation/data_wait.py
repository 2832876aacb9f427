"""Measures on one rank how long a Trainer waits for data in each step, and how many batches were ready."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...loaders import DevicePrefetcher, FaceDataLoader
from ...loaders.torch_internals import count_ready_batches
from ..lightning_internals import train_iterator
from ..torch_internals import has_workers

clock = time.perf_counter


@dataclass(frozen=True)
class WaitWindow:
    """Data wait of some consecutive steps on one rank; NaN where unknown.

    stall: fraction of the time spent waiting for data, 0 to 1; near 0: always fed. wait_p99_ms: 99th percentile of the
    waits, in milliseconds. queue_depth: mean number of batches ready at a fetch; near 0: the workers are too slow.
    """

    stall: float
    wait_p99_ms: float
    queue_depth: float


class DataWaitTimer:
    """Times the fetches and steps of one fit. Takes three timestamps a step and never waits for the device."""

    def __init__(self, trainer: Any) -> None:
        self.queue = QueueDepth(trainer)
        self._device: torch.device = trainer.strategy.root_device
        self._epoch_started_at: float | None = None
        self._fetch_ended_at = 0.0
        self._timestamps: list[Any] = []  # timestamps of the current step: before and after each fetch
        self._unread: deque[list[Any]] = deque()  # the same of previous steps, with their ends
        self._waits: list[float] = []
        self._seconds = 0.0

    def epoch_started(self) -> None:
        """Marks the start of an epoch, before its first fetch."""
        self._epoch_started_at = self._fetch_ended_at = clock()

    def fetch_started(self) -> None:
        """Marks the start of a fetch."""
        self.queue.fetch_started()
        self._timestamps.append(_timestamp(self._device))

    def fetch_ended(self) -> None:
        """Marks the end of a fetch."""
        self._timestamps.append(_timestamp(self._device))
        self.queue.fetch_ended()
        self._fetch_ended_at = clock()

    def step_ended(self) -> float | None:
        """Marks the end of a step. Returns the seconds to the first batch for an epoch's first step, else None.

        An epoch's first step is not part of the waits.
        """
        timestamps, self._timestamps = self._timestamps, []
        if self._epoch_started_at is not None:
            seconds, self._epoch_started_at = self._fetch_ended_at - self._epoch_started_at, None
            return seconds
        if timestamps:
            self._unread.append([*timestamps, _timestamp(self._device)])
        while self._unread and _is_readable(self._unread[0][-1], steps_ago=len(self._unread) - 1):
            timestamps = self._unread.popleft()
            self._waits += map(_seconds, timestamps[:-1:2], timestamps[1::2])
            self._seconds += _seconds(timestamps[0], timestamps[-1])
        return None

    def pop_window(self) -> WaitWindow:
        """Returns the window since the last call. Steps still running on the device count for the next one."""
        waits, seconds = self._waits, self._seconds
        self._waits, self._seconds = [], 0.0
        if not seconds:
            return WaitWindow(math.nan, math.nan, self.queue.mean())
        wait_p99_seconds = float(np.quantile(waits, 0.99, method="inverted_cdf"))
        return WaitWindow(sum(waits) / seconds, 1e3 * wait_p99_seconds, self.queue.mean())


def attach(profiler: Any, timer: DataWaitTimer) -> None:
    """Wraps `start` and `stop` of a Trainer's profiler so that `timer` is called at every epoch and every fetch.

    Lightning reports to its profiler, of whatever kind, when `next()` of the training loader begins and ends, also
    where it prefetches a batch or leaves fetching to `training_step`. No hook is as close: between two steps Lightning
    also runs other callbacks, logs, saves, validates, synchronises ranks and copies the batch. The two action names
    are the same from Lightning 2.4 to 2.6; with others nothing would be logged, rather than zeros. The profiler object
    is not replaced, since users check its type.
    """
    start, stop = profiler.start, profiler.stop

    def started(action: str) -> None:
        start(action)
        if action.endswith("train_dataloader_next"):
            timer.fetch_started()
        elif action == "run_training_epoch":
            timer.epoch_started()

    def stopped(action: str) -> None:
        if action.endswith("train_dataloader_next"):
            timer.fetch_ended()
        stop(action)

    profiler.start, profiler.stop = started, stopped


def detach(profiler: Any) -> None:
    """Removes the wrappers from the profiler."""
    for name in ("start", "stop"):
        profiler.__dict__.pop(name, None)


def _timestamp(device: torch.device) -> Any:
    """Returns a timestamp: the clock, or an event on the current CUDA stream, behind all work queued so far.

    While that work still runs, the events before and after a fetch complete together: the time between them is the
    time in which the device was idle, however long the host waited.
    """
    if device.type != "cuda":
        return clock()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _is_readable(timestamp: Any, *, steps_ago: int) -> bool:
    """Whether a timestamp can be read without waiting; an event is not even queried for two steps."""
    return isinstance(timestamp, float) or (steps_ago >= 2 and bool(timestamp.query()))


def _seconds(earlier: Any, later: Any) -> float:
    return float(later - earlier if isinstance(later, float) else earlier.elapsed_time(later) / 1e3)


class QueueDepth:
    """Number of batches ready at each fetch, from a FaceDataLoader's statistics, else from torch's worker queues."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._ready_in_torch: int | None = None  # in torch's queues, at the current fetch
        self._num_fetches = self._sum_ready = 0

    def fetch_started(self) -> None:
        """Reads torch's queues at the start of a fetch."""
        iterator = train_iterator(self._trainer)
        self._ready_in_torch = count_ready_batches(iterator) if has_workers(iterator) else None

    def fetch_ended(self) -> None:
        """Counts the batches that were ready for a fetch."""
        loader = self._face_loader()
        ready = self._ready_in_torch if loader is None else loader.stats().latest_ready
        if ready is not None:
            self._num_fetches += 1
            self._sum_ready += ready

    def mean(self) -> float:
        """Returns the mean since the last call; NaN if unknown."""
        mean = self._sum_ready / self._num_fetches if self._num_fetches else math.nan
        self._num_fetches = self._sum_ready = 0
        return mean

    def _face_loader(self) -> FaceDataLoader | DevicePrefetcher | None:
        loader = self._trainer.train_dataloader
        return loader if isinstance(loader, (FaceDataLoader, DevicePrefetcher)) and loader.num_workers else None
