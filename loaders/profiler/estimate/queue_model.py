"""`Estimator.MODEL`: torch's DataLoader as a queue, which predicts device waits from load and step times.

torch requests the first `num_workers * prefetch_factor` batches at once, then one more for each that it returns;
workers take the requests in rotation, and batches are returned in order (`torch/utils/data/dataloader.py`,
`_MultiProcessingDataLoaderIter`). With load times L, step times S, W workers and prefetch factor P:

    requested[n]  = max(received[n - 1] + launch[n - 1], step_end[n - 1 - lead])
    load_start[n] = max(load_end[n - W] + turnaround, received[n - W * P] + request)
    load_end[n]   = load_start[n] + L[n]
    received[n]   = max(requested[n], load_end[n]) + transport
    step_begin[n] = max(received[n], step_end[n - 1]),  step_end[n] = step_begin[n] + S[n]
    wait[n]       = step_begin[n] - step_end[n - 1]

The host requests a batch `lead` steps before the device is free: 0 where the host runs the step itself, 1 where it
launches work on a device and continues, `launch[n]` seconds after it received batch n. Without workers a batch is
loaded when it is requested. Everything is in seconds; nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....pipeline.errors import UsageError

Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class QueueTimeline:
    """Simulated times of each batch, float64 (batches,), in seconds since the iteration began.

    load_start_at, load_end_at: of loading the batch. requested_at, received_at: by the host. device_free_at: when the
    device ended the step before. step_begin_at, step_seconds: of the step on the batch.
    """

    load_start_at: Seconds
    load_end_at: Seconds
    requested_at: Seconds
    received_at: Seconds
    device_free_at: Seconds
    step_begin_at: Seconds
    step_seconds: Seconds

    @property
    def wait_seconds(self) -> Seconds:
        """Device idle time before each step."""
        return self.step_begin_at - self.device_free_at

    @property
    def not_ready_seconds(self) -> Seconds:
        """Part of each wait in which the batch was still being loaded."""
        return np.clip(self.load_end_at - self.device_free_at, 0.0, self.wait_seconds)

    @property
    def total_seconds(self) -> float:
        """From the beginning to the end of the last step."""
        return float(self.step_begin_at[-1] + self.step_seconds[-1]) if len(self.step_begin_at) else 0.0

    def wait_share(self, *, skip_batches: int = 0) -> float:
        """Share of the time that the device waited, 0 to 1, without the first `skip_batches` (queue filling)."""
        if len(self.step_begin_at) <= skip_batches:
            return 0.0
        return float(self.wait_seconds[skip_batches:].sum() / (self.total_seconds - self.device_free_at[skip_batches]))


@dataclass(frozen=True, kw_only=True)
class QueueModel:
    """A loader's settings and overheads.

    prefetch_factor: batches a worker. transport_seconds: of a ready batch to the host. turnaround_seconds: of a worker
    between two batches. request_seconds: from the host to an idle worker. launch_seconds: of the host, to launch a
    step. lead_steps: how far the host runs ahead of the device. Raises `UsageError` on negative values.
    """

    num_workers: int
    prefetch_factor: int = 2
    transport_seconds: float = 0.0
    turnaround_seconds: float = 0.0
    request_seconds: float = 0.0
    lead_steps: int = 0
    launch_seconds: float = 0.0

    def __post_init__(self) -> None:
        if (
            self.num_workers < 0
            or (self.num_workers and self.prefetch_factor < 1)
            or self.transport_seconds < 0
            or self.lead_steps < 0
        ):
            raise UsageError(
                f"{self}: needs at least 0 workers, 1 batch of prefetch, a transport of 0 s and a lead of 0 steps"
            )

    @property
    def max_in_flight(self) -> int:
        """Most batches that are requested but not yet returned."""
        return self.num_workers * self.prefetch_factor

    def replay(
        self, load_seconds: ArrayLike, step_seconds: ArrayLike, transport_seconds: ArrayLike | None = None,
        launch_seconds: ArrayLike | None = None,
    ) -> QueueTimeline:  # fmt: skip
        """Simulates an iteration in which batch n loads for `load_seconds[n]` and step n takes `step_seconds[n]`.

        Each is (batches,), or one number for all. transport_seconds, launch_seconds: measured ones in place of the
        queue's own.
        """
        durations = (
            load_seconds,
            step_seconds,
            self.transport_seconds if transport_seconds is None else transport_seconds,
            self.launch_seconds if launch_seconds is None else launch_seconds,
        )
        loads, steps, transports, launches = np.broadcast_arrays(
            *(np.array(given, np.float64, ndmin=1) for given in durations)
        )
        count, turnaround_seconds, request_seconds = len(loads), self.turnaround_seconds, self.request_seconds
        # Element n is the time that batch n waits for, 0.0 where nothing precedes it. A verdict takes hundreds of
        # replays: so lists of Python's floats, only three, from which the other times follow, and no calls of max().
        worker_free_at = [0.0] * max(self.num_workers, 1)
        slot_free_at = [0.0] * max(self.max_in_flight, 1)
        step_ended_at = [0.0] * (1 + self.lead_steps)
        launched = step_end = 0.0
        for n, (load, step, transport, launch) in enumerate(
            zip(loads.tolist(), steps.tolist(), transports.tolist(), launches.tolist(), strict=True)
        ):
            requested = step_ended_at[n]
            if launched > requested:
                requested = launched
            load_end = worker_free_at[n] if self.num_workers else requested
            if self.num_workers and slot_free_at[n] + request_seconds > load_end:
                load_end = slot_free_at[n] + request_seconds
            load_end += load
            received = (load_end if load_end > requested else requested) + transport
            launched = received + launch
            step_end = (received if received > step_end else step_end) + step
            worker_free_at.append(load_end + turnaround_seconds)
            slot_free_at.append(received)
            step_ended_at.append(step_end)
        device_free_at = np.array(step_ended_at[self.lead_steps :][:count])
        received_at = np.array(slot_free_at[max(self.max_in_flight, 1) :])
        may_request_at = np.concatenate(([0.0], received_at + launches))[:count]
        requested_at = np.maximum(may_request_at, step_ended_at[:count])
        load_start_at = requested_at
        if self.num_workers:
            load_start_at = np.maximum(worker_free_at[:count], np.array(slot_free_at[:count]) + request_seconds)
        return QueueTimeline(
            load_start_at=load_start_at,
            load_end_at=load_start_at + loads,
            requested_at=requested_at,
            received_at=received_at,
            device_free_at=device_free_at,
            step_begin_at=np.maximum(received_at, device_free_at),
            step_seconds=steps.copy(),
        )
