"""Marks and counters that are collected while steps run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from . import page_cache
from .batch_timing import BatchTiming, timing_cost_seconds
from .step_clock import StepClock


class StepMarks:
    """Marks and counters collected while steps run, from which a `Recording` is made."""

    def __init__(self, step_clock: StepClock) -> None:
        self.step_clock = step_clock
        self.batch: Any = None
        self.marks: list[Any] = []
        self.host_times: list[float] = []
        self.segment_steps: list[int] = []
        self.segment_step = -1
        self.num_images: list[int] = []
        self.batch_timings: list[BatchTiming] = []
        self.is_paused = False  # since the last step: to look at what was seen is no part of its time
        self.storage_bytes_at_start, self.cpu_seconds_at_start = page_cache.storage_bytes_read(), time.process_time()
        step_clock.begin()

    def __len__(self) -> int:
        return len(self.segment_steps)

    def advance(self, *, is_first: bool) -> None:
        """Counts a step of the current segment; `is_first`: of a new one."""
        self.segment_step = 0 if is_first else self.segment_step + 1

    def series(self) -> dict[str, Any]:
        """The time series of a `Recording`, by name."""
        device_times = self.step_clock.seconds_of(self.marks).reshape(-1, 3).T
        host_times = np.array(self.host_times, np.float64).reshape(-1, 3).T
        names = (
            "requested_at", "received_at", "step_end_at", "host_requested_at", "host_received_at", "step_begin_raw_at"
        )  # fmt: skip
        return dict(zip(names, (*device_times, *host_times), strict=True))


def timing_cost_per_batch(batch_timings: list[BatchTiming], num_images: int) -> float:
    """Seconds that timing costs a batch on average, with stages timed in some batches only."""
    if not batch_timings:
        return 0.0
    timed_stages = sum(len(timing.stage_seconds) for timing in batch_timings) / len(batch_timings)
    return timing_cost_seconds(timed_stages * num_images / len(batch_timings))
