"""Estimator C: torch's DataLoader as a queue. From how long batches and steps take to how long the steps wait.

torch gives its first `workers x prefetch` batches out at once, then one more for each that it hands over; workers take
them in turn, and batches are handed over in order (`torch/utils/data/dataloader.py`, `_MultiProcessingDataLoaderIter`).
So with load times L and step times S

    start[n]  = max(finish[n - workers] + turnaround, handed[n - workers * prefetch])
    finish[n] = start[n] + L[n]
    handed[n] = max(free[n], finish[n]) + transport,  free[n] = handed[n - 1] + S[n - 1]
    stall[n]  = max(0, finish[n] - free[n])

Without workers a batch is made when it is asked for. Everything is in seconds; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...pipeline.errors import UsageError

Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What happened to each batch, float64 (batches,), in seconds since the iteration began.

    start, finish: of its making. free: when the training loop asked for it. handed: when it had it. step: how long the
    loop then worked on it. transport: of handing it over once it was made.
    """

    start: Seconds
    finish: Seconds
    free: Seconds
    handed: Seconds
    step: Seconds
    transport: Seconds

    @property
    def stall(self) -> Seconds:
        """How long the loop waited for each batch to be made."""
        return np.maximum(0.0, self.finish - self.free)

    @property
    def total_seconds(self) -> float:
        """From the beginning to the end of the last step."""
        return float(self.handed[-1] + self.step[-1]) if len(self.handed) else 0.0

    def stall_share(self, *, after: int = 0) -> float:
        """Part of the time that the loop waited, 0 to 1; without the first `after` batches, while the queue fills."""
        if len(self.handed) <= after:
            return 0.0
        began = self.free[after]
        return float(self.stall[after:].sum() / (self.total_seconds - began))


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A loader's settings. prefetch: batches a worker. In seconds: transport, that a batch which is made takes to hand
    over; turnaround, that a worker takes between two batches.
    """

    workers: int
    prefetch: int = 2
    transport: float = 0.0
    turnaround: float = 0.0

    def __post_init__(self) -> None:
        if self.workers < 0 or (self.workers and self.prefetch < 1) or self.transport < 0:
            raise UsageError(f"{self}: needs at least 0 workers, 1 batch of prefetch and a transport of 0 s")

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
        start, finish, free, handed = (np.zeros(count) for _ in range(4))
        workers, ahead = self.workers, self.ahead
        for n in range(count):
            free[n] = handed[n - 1] + steps[n - 1] if n else 0.0
            if workers == 0:
                start[n] = free[n]
            else:
                idle = finish[n - workers] + self.turnaround if n >= workers else 0.0
                start[n] = max(idle, handed[n - ahead] if n >= ahead else 0.0)
            finish[n] = start[n] + loads[n]
            handed[n] = max(free[n], finish[n]) + transports[n]
        return Timeline(start=start, finish=finish, free=free, handed=handed, step=steps, transport=transports)
