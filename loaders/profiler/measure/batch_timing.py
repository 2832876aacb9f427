"""Timing of one batch: when and where it was loaded, and how long each stage took.

Timings travel with the batch from the process that loaded it. The clock is CLOCK_MONOTONIC, which all processes of a
host share. See `instrument` for how a loader gets them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...torch_internals import pin_batch
from .counters import ThreadCounters, current_thread

clock = time.monotonic

STAGES = ("read", "decode", "resize", "augment", "collate")
"""Stages of loading a batch, in their order; not every loader has all of them."""

_COST_REPEATS = 200
_STAGE_TIMING_INTERVAL = 4
"""Stages are timed in every fourth batch of a process: in all of them, timing took 1 % of the load time."""


@dataclass(slots=True)
class BatchTiming:
    """How one batch was loaded. start_at, end_at: on `clock`, in seconds. pid: of the process that loaded it.

    cpu_seconds: CPU time of the loading thread; core_wait_seconds: time in which it was runnable without a core.
    storage_bytes: read from storage, not the page cache, by that process since its last batch, so that the sum of all
    batches has what threads of the dataset read in between. stage_seconds: seconds by stage; only of every fourth
    batch, since timing costs time too. sampler_seconds: time of the loader's sampler in the `next()` that returned the
    batch, in the loop's process.
    """

    start_at: float
    end_at: float = 0.0
    cpu_seconds: float = 0.0
    core_wait_seconds: float = 0.0
    storage_bytes: int = 0
    pid: int = 0
    sampler_seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class TimedBatch:
    """A batch with its timing, on its way to the loop."""

    batch: Any
    timing: BatchTiming

    def pin_memory(self, device: Any = None) -> TimedBatch:
        """Called by torch where the loader has `pin_memory`."""
        return TimedBatch(pin_batch(self.batch, device), self.timing)


class StageTimers:
    """Seconds by stage of the current batch; one instance a process, shared by all `TimedStage`s."""

    def __init__(self) -> None:
        self.seconds_by_stage: dict[str, float] = {}
        self.is_timing = True  # the current batch

    def collect(self) -> dict[str, float]:
        """Stage seconds of the finished batch, in the order of `STAGES`; resets them to 0."""
        stage_seconds = {name: self.seconds_by_stage[name] for name in STAGES if name in self.seconds_by_stage}
        for name in self.seconds_by_stage:
            self.seconds_by_stage[name] = 0.0
        return stage_seconds

    def wrap(self, stage: str, call: Callable[..., Any]) -> TimedStage:
        """The callable, its time added to a stage."""
        self.seconds_by_stage.setdefault(stage, 0.0)
        return TimedStage(self, stage, call)


class TimedStage:
    """A callable whose time is added to a stage; otherwise transparent. Called for every image, so kept minimal."""

    def __init__(self, timers: StageTimers, stage: str, call: Callable[..., Any]) -> None:
        self._timers, self._stage, self.untimed = timers, stage, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it."""
        if not self._timers.is_timing:
            return self.untimed(*args, **kwargs)
        started_at = clock()
        result = self.untimed(*args, **kwargs)
        self._timers.seconds_by_stage[self._stage] += clock() - started_at
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "untimed":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.untimed, name)


class BatchTimer:
    """Times the current batch; shared by the dataset and the collate function of an instrumented loader."""

    def __init__(self, timers: StageTimers) -> None:
        self.stage_timers = timers
        self.timing: BatchTiming | None = None
        self._num_batches = 0
        self._counters: ThreadCounters | None = None
        self._cpu_start_seconds = self._core_wait_start_seconds = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_counters": None}

    def start(self) -> None:
        """Starts a batch with its first item; does nothing for further items."""
        if self.timing is None:
            if self._counters is None or self._counters.owner != current_thread():  # after a fork
                self._counters = ThreadCounters()
            self.stage_timers.is_timing = self._num_batches % _STAGE_TIMING_INTERVAL == 0
            self._num_batches += 1
            self._core_wait_start_seconds = self._counters.core_wait_seconds()
            self._cpu_start_seconds = time.thread_time()
            self.timing = BatchTiming(clock(), pid=os.getpid())

    def finish(self, batch: Any) -> TimedBatch:
        """Ends the batch. Also called without a start, where a sampler yields a batch of no items."""
        self.start()
        timing = self.timing
        assert timing is not None
        assert self._counters is not None
        timing.end_at, timing.cpu_seconds = clock(), time.thread_time() - self._cpu_start_seconds
        timing.core_wait_seconds = self._counters.core_wait_seconds() - self._core_wait_start_seconds
        timing.storage_bytes = self._counters.new_storage_bytes()
        stage_seconds, self.timing = self.stage_timers.collect(), None
        timing.stage_seconds = stage_seconds if self.stage_timers.is_timing else {}
        return TimedBatch(batch, timing)


def timing_cost_seconds(num_stage_calls: float) -> float:
    """Seconds that timing costs a batch with `num_stage_calls` timed calls, measured now."""
    timer = BatchTimer(StageTimers())
    timed_no_op = timer.stage_timers.wrap("nothing", _no_op)
    started_at = clock()
    for _ in range(_COST_REPEATS):
        timed_no_op()
    stages_timed_at = clock()
    for _ in range(_COST_REPEATS):
        timer.start()
        timer.finish(None)
    return (num_stage_calls * (stages_timed_at - started_at) + clock() - stages_timed_at) / _COST_REPEATS


def _no_op() -> None:
    return None
