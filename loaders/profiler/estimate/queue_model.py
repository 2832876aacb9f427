"""Estimator C: torch's DataLoader as a queue. From how long batches and steps take to how long the device waits.

torch gives its first `workers x prefetch` batches out at once, then one more for each that it hands over; workers take
them in turn, and batches are handed over in order (`torch/utils/data/dataloader.py`, `_MultiProcessingDataLoaderIter`).
So with load times L and step times S

    asked[n]  = max(handed[n - 1] + launch, done[n - 1 - lead])
    start[n]  = max(finish[n - workers] + turnaround, handed[n - workers * prefetch])
    finish[n] = start[n] + L[n]
    handed[n] = max(asked[n], finish[n]) + transport
    begin[n]  = max(handed[n], done[n - 1]),  done[n] = begin[n] + S[n]
    wait[n]   = begin[n] - done[n - 1]

where the host asks for a batch `lead` steps before the device is free: 0 where the host does the step itself, 1 where
it goes on while a device works, after `launch` seconds in which it launched the step before. Without workers a batch is
made when it is asked for. Everything is in seconds; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....pipeline.errors import UsageError

Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What happened to each batch, float64 (batches,), in seconds since the iteration began.

    start, finish: of its making. asked: when the host asked for it. handed: when it had it. free: when the device had
    done the step before. begin: of the step on it. step: how long that took.
    """

    start: Seconds
    finish: Seconds
    asked: Seconds
    handed: Seconds
    free: Seconds
    begin: Seconds
    step: Seconds

    @property
    def wait(self) -> Seconds:
        """How long the device had nothing to do before each step."""
        return self.begin - self.free

    @property
    def unmade(self) -> Seconds:
        """Of each wait, how long the batch was not made yet."""
        return np.clip(self.finish - self.free, 0.0, self.wait)

    @property
    def total_seconds(self) -> float:
        """From the beginning to the end of the last step."""
        return float(self.begin[-1] + self.step[-1]) if len(self.begin) else 0.0

    def wait_share(self, *, after: int = 0) -> float:
        """Part of the time that the device waited, 0 to 1; without the first `after` batches, while the queue fills."""
        if len(self.begin) <= after:
            return 0.0
        return float(self.wait[after:].sum() / (self.total_seconds - self.free[after]))


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A loader's settings. prefetch: batches a worker. In seconds: transport, that a batch which is made takes to hand
    over; turnaround, that a worker takes between two batches; launch, that the host takes to launch a step. lead: steps
    that the host is ahead of the device.
    """

    workers: int
    prefetch: int = 2
    transport: float = 0.0
    turnaround: float = 0.0
    lead: int = 0
    launch: float = 0.0

    def __post_init__(self) -> None:
        if self.workers < 0 or (self.workers and self.prefetch < 1) or self.transport < 0 or self.lead < 0:
            raise UsageError(
                f"{self}: needs at least 0 workers, 1 batch of prefetch, a transport of 0 s and a lead of 0 steps"
            )

    @property
    def ahead(self) -> int:
        """Most batches that are under way at a time."""
        return self.workers * self.prefetch

    def replay(self, load: ArrayLike, step: ArrayLike, transport: ArrayLike | None = None) -> Timeline:
        """The iteration in which batch n takes `load[n]` seconds to make and step n then takes `step[n]`.

        Each (batches,), or a single number for all. transport: as it was measured, in place of the queue's own.
        """
        given = (load, step, self.transport if transport is None else transport)
        loads, steps, transports = (np.array(each) for each in np.broadcast_arrays(*map(np.atleast_1d, given)))
        count = len(loads)
        start, finish, asked, handed, free, begin, done = (np.zeros(count) for _ in range(7))
        workers, ahead, lead = self.workers, self.ahead, self.lead
        for n in range(count):
            free[n] = done[n - 1] if n else 0.0
            asked[n] = max(handed[n - 1] + self.launch if n else 0.0, done[n - 1 - lead] if n > lead else 0.0)
            if workers == 0:
                start[n] = asked[n]
            else:
                idle = finish[n - workers] + self.turnaround if n >= workers else 0.0
                start[n] = max(idle, handed[n - ahead] if n >= ahead else 0.0)
            finish[n] = start[n] + loads[n]
            handed[n] = max(asked[n], finish[n]) + transports[n]
            begin[n] = max(handed[n], free[n])
            done[n] = begin[n] + steps[n]
        return Timeline(start=start, finish=finish, asked=asked, handed=handed, free=free, begin=begin, step=steps)
