"""Loaders and steps with known delays, whose items and steps time themselves.

A sleep lasts 0.06 ms longer than requested, and 1 ms or more on a busy machine. The injected delay is therefore what
really happened, read inside the items and the steps: compared with the requested delay, the profiler would be blamed
for the system's timer; compared with its own timings, it would only agree with itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from ...torch_internals import occupy_gpu
from ...workers.processes import WorkerInit, worker_context
from ..estimate.queue_model import Seconds
from ..measure.measured_loop import MeasuredLoop
from ..measure.page_cache import storage_bytes_read
from ..measure.recording import Recording
from ..measure.step_clock import CudaStepClock, StepClock
from ..measure.steps import SleepingStep

clock = time.monotonic
sleep = time.sleep

HOST_SHARE = 0.1  # of a step: two workers that sleep and this fit on two cores
_PAUSE_SECONDS = 0.02  # in which a queue of batches without delay fills
_CALIBRATED_CYCLES = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Delays of batches and durations of the steps on them, in seconds, float64 (batches,)."""

    delay_seconds: Seconds
    step_seconds: Seconds


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A loader's settings, and the segments to play.

    A segment finds a full queue where its first `max_in_flight` batches have no delay.
    """

    segments: Sequence[Segment]
    num_workers: int = 0
    prefetch_factor: int = 0

    @property
    def max_in_flight(self) -> int:
        """Most batches that are requested but not yet returned."""
        return self.num_workers * self.prefetch_factor


@dataclass(frozen=True, kw_only=True)
class PlayedSegment:
    """A segment as the profiler recorded it, and as its items and steps timed themselves. Times are float64 (steps,).

    opened_at: before the first request. item_start_at, file_read_at, collated_at: of each batch. received_at,
    step_end_at: beginning and end of each step. storage_bytes: read from storage meanwhile, 0 where that is not known.
    """

    recording: Recording
    opened_at: float
    item_start_at: Seconds
    file_read_at: Seconds
    collated_at: Seconds
    received_at: Seconds
    step_end_at: Seconds
    storage_bytes: int = 0

    @property
    def delay_seconds(self) -> Seconds:
        """Load time of each batch."""
        return self.collated_at - self.item_start_at

    @property
    def step_seconds(self) -> Seconds:
        """Duration of each step on the host."""
        return self.step_end_at - self.received_at

    @property
    def wait_seconds(self) -> Seconds:
        """Wait of the loop for each batch."""
        return self.received_at - self.loop_free_at

    @property
    def loop_free_at(self) -> Seconds:
        """When the loop was free for each batch."""
        return np.append(self.opened_at, self.step_end_at[:-1])

    @property
    def not_ready_seconds(self) -> Seconds:
        """Part of each wait in which the batch was not ready."""
        return np.clip(self.collated_at - np.maximum(self.loop_free_at, self.item_start_at), 0.0, self.wait_seconds)

    @property
    def transport_seconds(self) -> Seconds:
        """The rest of each wait."""
        return self.wait_seconds - self.not_ready_seconds

    @property
    def transport_floor_seconds(self) -> float:
        """Hand-over time without contention, in seconds; independent of the profiler's own floor."""
        return float(np.quantile(self.transport_seconds, 0.1))


class Items(Dataset[torch.Tensor]):
    """Items with given delays that use no CPU; each item is its own times (2,): start, file read."""

    def __init__(self, delays: Seconds) -> None:
        self.delays = delays

    def __len__(self) -> int:
        return len(self.delays)

    def __getitem__(self, wanted: int) -> torch.Tensor:
        began = clock()
        if self.delays[wanted]:  # even a sleep of nothing takes 0.06 ms
            sleep(self.delays[wanted])
        return torch.tensor([began, began], dtype=torch.float64)


def collate_times(items: Sequence[torch.Tensor]) -> torch.Tensor:
    """Collates the times of one item and appends its own: (1, 3), start, file read, collated."""
    batch = torch.nn.functional.pad(torch.stack(list(items)), (0, 1))
    batch[:, 2] = clock()
    return batch


class Device(Protocol):
    """A device that works asynchronously. seconds: duration of each piece of work."""

    seconds: float
    step_clock: StepClock

    def work(self, batch: Any) -> None:
        """Queues a piece of work and returns at once."""


class CudaDevice:
    """A GPU with a kernel of known duration."""

    def __init__(self, seconds: float) -> None:
        device = torch.device("cuda", torch.cuda.current_device())
        self.step_clock: StepClock = CudaStepClock(device)
        self._cycles = _CALIBRATED_CYCLES
        self._seconds_taken()  # the first launch loads the kernel
        self._cycles = round(self._cycles * seconds / self._seconds_taken())
        self.seconds = self._seconds_taken()

    def work(self, _batch: Any) -> None:
        """Launches the kernel."""
        occupy_gpu(self._cycles)

    def _seconds_taken(self) -> float:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        self.work(None)
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3


def play(plan: Plan, device: Device | None = None) -> list[PlayedSegment]:
    """Plays a plan with the profiler and a real loader. device: runs work instead of steps that sleep."""
    opening = max(plan.max_in_flight, 1)  # a batch of every worker at least, so that all of them run
    delays = np.concatenate([np.zeros(opening), *(segment.delay_seconds for segment in plan.segments)])
    options: dict[str, Any] = {}
    if plan.num_workers:
        options = {"prefetch_factor": plan.prefetch_factor, "multiprocessing_context": worker_context(None),
                   "worker_init_fn": WorkerInit(None)}  # fmt: skip
    loader = DataLoader(Items(delays), 1, collate_fn=collate_times, num_workers=plan.num_workers, **options)
    loop = MeasuredLoop(loader)
    loop.record(opening, lambda _: None)
    played = []
    for segment in plan.segments:
        if plan.num_workers:
            sleep(_PAUSE_SECONDS)
        steps = [device.work if device else SleepingStep(seconds, HOST_SHARE) for seconds in segment.step_seconds]
        played.append(record_segment(loop, steps, None if device is None else device.step_clock))
    loop.close()
    return played


def record_segment(
    loop: MeasuredLoop, steps: Sequence[Callable[[Any], None]], step_clock: StepClock | None = None
) -> PlayedSegment:
    """Records one segment of a loader whose batches are times."""
    times, batches, step = list[float](), list[torch.Tensor](), iter(steps)

    def timed_step(batch: Any) -> None:
        times.append(clock())
        next(step)(batch)
        times.append(clock())

    storage_bytes, opened_at = storage_bytes_read() or 0, clock()
    recording = loop.record(len(steps), timed_step, step_clock=step_clock, batches_out=batches)
    storage_bytes = (storage_bytes_read() or 0) - storage_bytes
    item_start_at, file_read_at, collated_at = torch.cat(batches).T.numpy()
    received_at, step_end_at = np.array(times).reshape(-1, 2).T
    return PlayedSegment(
        recording=recording, opened_at=opened_at, item_start_at=item_start_at, file_read_at=file_read_at,
        collated_at=collated_at, received_at=received_at, step_end_at=step_end_at,
        storage_bytes=storage_bytes,
    )  # fmt: skip
