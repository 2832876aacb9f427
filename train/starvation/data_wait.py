"""What one rank sees of a Trainer's waiting for data: how long each fetch took of a step, and what was ready."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

import numpy as np
import torch

from ...loaders import DevicePrefetcher, FaceDataLoader
from ...loaders.loader.stats import count_ready_batches

clock = time.perf_counter


class Waits:
    """The steps of one fit, as it is told of them. Costs a step three marks, and never waits for the device."""

    def __init__(self, trainer: Any) -> None:
        self.queue = Queue(trainer)
        self._device: torch.device = trainer.strategy.root_device
        self._opened: float | None = None
        self._latest = 0.0
        self._marks: list[Any] = []  # of the step at hand: before and after each fetch
        self._unread: deque[list[Any]] = deque()  # the same of the steps before it, with their ends
        self._waits: list[float] = []
        self._seconds = 0.0

    def opened(self) -> None:
        """An epoch began; its loader was not asked for anything yet."""
        self._opened = self._latest = clock()

    def asked(self) -> None:
        """A batch is asked for."""
        self.queue.asked()
        self._marks.append(_mark(self._device))

    def handed(self) -> None:
        """It is there."""
        self._marks.append(_mark(self._device))
        self.queue.handed()
        self._latest = clock()

    def done(self) -> float | None:
        """A step is done. Of an epoch's first one only this is kept: the seconds until its batch was there."""
        marks, self._marks = self._marks, []
        if self._opened is not None:
            seconds, self._opened = self._latest - self._opened, None
            return seconds
        if marks:
            self._unread.append([*marks, _mark(self._device)])
        while self._unread and _is_over(self._unread[0][-1], steps_ago=len(self._unread) - 1):
            marks = self._unread.popleft()
            self._waits += map(_seconds, marks[:-1:2], marks[1::2])
            self._seconds += _seconds(marks[0], marks[-1])
        return None

    def take(self) -> list[float]:
        """Stall (0 to 1), 99th percentile of the waits in ms, queue depth, of the time since the last call.

        NaN where nobody knows. A window's last steps on a device may not be over yet: they count for the next one.
        """
        waits, seconds = self._waits, self._seconds
        self._waits, self._seconds = [], 0.0
        if not seconds:
            return [math.nan, math.nan, self.queue.mean()]
        longest = float(np.quantile(waits, 0.99, method="higher"))
        return [sum(waits) / seconds, 1e3 * longest, self.queue.mean()]


def tap(profiler: Any, waits: Waits) -> None:
    """Has `waits` told of every epoch and every fetch.

    Lightning tells the Trainer's profiler, of whatever kind, when `next()` of the training loader begins and ends, also
    where it fetches a batch ahead or leaves that to `training_step`. No hook lies as close: between one step's end and
    the next one's start Lightning also runs other callbacks, logs, saves, validates, has ranks wait for each other and
    copies the batch. The two names are the same from 2.4 to 2.6; under others nothing would be logged, rather than
    zeros. The profiler itself stays in its place, since people look at its type.
    """
    start, stop = profiler.start, profiler.stop

    def started(action: str) -> None:
        start(action)
        if action.endswith("train_dataloader_next"):
            waits.asked()
        elif action == "run_training_epoch":
            waits.opened()

    def stopped(action: str) -> None:
        if action.endswith("train_dataloader_next"):
            waits.handed()
        stop(action)

    profiler.start, profiler.stop = started, stopped


def untap(profiler: Any) -> None:
    """Lets the methods of the profiler's class show again."""
    for name in ("start", "stop"):
        profiler.__dict__.pop(name, None)


def _mark(device: torch.device) -> Any:
    """Now: by the clock, or an event on the current CUDA stream, behind all that was queued so far.

    While that still runs, the events before and after a fetch come to pass together: what is between them is the time
    in which the device had nothing to do, however long the host waited.
    """
    if device.type != "cuda":
        return clock()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _is_over(mark: Any, *, steps_ago: int) -> bool:
    """Whether a mark, and all before it, can be read without waiting; an event is not even asked for two steps."""
    return isinstance(mark, float) or (steps_ago >= 2 and bool(mark.query()))


def _seconds(earlier: Any, later: Any) -> float:
    return float(later - earlier if isinstance(later, float) else earlier.elapsed_time(later) / 1e3)


class Queue:
    """How many batches were ready when one was asked for: by a FaceDataLoader's own count, else by torch's queues."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._found: int | None = None  # in torch's queues, for the fetch at hand
        self._asked = self._ready = 0

    def asked(self) -> None:
        """A batch is asked for."""
        combined = getattr(self._trainer.fit_loop, "_combined_loader", None)
        running: Any = getattr(getattr(combined, "_iterator", None), "iterators", ())
        known = len(running) == 1 and hasattr(running[0], "_worker_result_queue")
        self._found = count_ready_batches(running[0]) if known else None

    def handed(self) -> None:
        """It is there."""
        loader = self._face_loader()
        found = self._found if loader is None else loader.stats().latest_ready
        if found is not None:
            self._asked += 1
            self._ready += found

    def mean(self) -> float:
        """Of the time since the last call; NaN where nobody knows."""
        mean = self._ready / self._asked if self._asked else math.nan
        self._asked = self._ready = 0
        return mean

    def _face_loader(self) -> FaceDataLoader | DevicePrefetcher | None:
        loader = self._trainer.train_dataloader
        return loader if isinstance(loader, (FaceDataLoader, DevicePrefetcher)) and loader.num_workers else None
