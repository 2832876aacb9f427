"""Loaders and steps that take as long as they are told, and say by clocks of their own how long they really took.

A sleep lasts 0.06 ms longer than it was asked to, and 1 ms or more on a busy machine. So what counts as injected is
what really happened, read inside the items and the steps themselves: beside the delay that was asked for, the profiler
would be blamed for the system's timer; beside its own stamps, it would only agree with itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from ...workers.processes import WorkerInit, worker_context
from ..estimate.queue_model import Seconds
from ..measure.measured_loop import MeasuredLoop
from ..measure.recording import Recording
from ..measure.step_clock import CudaStepClock, StepClock
from ..measure.steps import SleepingStep

clock = time.monotonic
sleep = time.sleep

HOST_SHARE = 0.1  # of a step: two workers that sleep and this fit on two cores
_PAUSE_SECONDS = 0.02  # in which a queue of batches without delay fills
_CALIBRATED_CYCLES = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Batches that take `delays` to make, each followed by a step of `steps`; seconds, float64 (batches,)."""

    delays: Seconds
    steps: Seconds


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A loader with `workers` of `prefetch` batches each, and what it goes through.

    A stretch finds a full queue where its first `ahead` batches have no delay.
    """

    stretches: Sequence[Stretch]
    workers: int = 0
    prefetch: int = 0

    @property
    def ahead(self) -> int:
        """Most batches that are under way at a time."""
        return self.workers * self.prefetch


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A stretch as the profiler recorded it, and as items and steps saw it. Times are of one clock, float64 (steps,).

    opened: before the first batch was asked for. began, read, made: of each batch: before its item, after the item's
    file was read, once it was collated. handed, done: the beginning and the end of each step. stored_bytes: what
    storage gave this process meanwhile, as the system counts it.
    """

    recording: Recording
    opened: float
    began: Seconds
    read: Seconds
    made: Seconds
    handed: Seconds
    done: Seconds
    stored_bytes: int = 0

    @property
    def delays(self) -> Seconds:
        """How long each batch took to make."""
        return self.made - self.began

    @property
    def steps(self) -> Seconds:
        """How long each step took, as far as the host saw."""
        return self.done - self.handed

    @property
    def waited(self) -> Seconds:
        """How long the loop waited for each batch, by its own clock, (steps,)."""
        return self.handed - self.free

    @property
    def free(self) -> Seconds:
        """When the loop was free for each batch, (steps,)."""
        return np.append(self.opened, self.done[:-1])

    @property
    def unready(self) -> Seconds:
        """How long each batch was not made while the loop waited for it, (steps,)."""
        return np.clip(self.made - np.maximum(self.free, self.began), 0.0, self.waited)

    @property
    def handing(self) -> Seconds:
        """What each wait took besides, (steps,)."""
        return self.waited - self.unready

    @property
    def floor(self) -> float:
        """What that takes when nothing is in the way, in seconds: the profiler's own floor may be what is wrong."""
        return float(np.quantile(self.handing, 0.1))

    @property
    def withheld(self) -> Seconds:
        """How much longer than usual each batch that was made took to come, where that is far longer, (steps,).

        Nobody injected it: for want of a core, or since the core had fallen asleep. It is waiting all the same.
        """
        return np.where(self.handing > 3 * self.floor, self.handing - self.floor, 0.0)


class Items(Dataset[torch.Tensor]):
    """Items that take a given time and no core; each is its own times (2,): began, read."""

    def __init__(self, delays: Seconds) -> None:
        self.delays = delays

    def __len__(self) -> int:
        return len(self.delays)

    def __getitem__(self, wanted: int) -> torch.Tensor:
        began = clock()
        if self.delays[wanted]:  # even a sleep of nothing takes 0.06 ms
            sleep(self.delays[wanted])
        return torch.tensor([began, began], dtype=torch.float64)


def timed(items: Sequence[torch.Tensor]) -> torch.Tensor:
    """Collates the times of one item, and notes its own: (1, 3), began, read, made."""
    batch = torch.nn.functional.pad(torch.stack(list(items)), (0, 1))
    batch[:, 2] = clock()
    return batch


class Device(Protocol):
    """What works on its own once it was told to, while the host goes on. seconds: that each piece of work takes."""

    seconds: float
    ticks: StepClock

    def work(self, batch: Any) -> None:
        """Queues a piece of work and returns at once."""


class CudaDevice:
    """A GPU with a kernel of known length. See `Device`."""

    def __init__(self, seconds: float) -> None:
        device = torch.device("cuda", torch.cuda.current_device())
        self.ticks: StepClock = CudaStepClock(device)
        self._cycles = _CALIBRATED_CYCLES
        self._seconds_taken()  # the first launch loads the kernel
        self._cycles = round(self._cycles * seconds / self._seconds_taken())
        self.seconds = self._seconds_taken()

    def work(self, _batch: Any) -> None:
        """See `Device`."""
        torch.cuda._sleep(self._cycles)  # type: ignore[no-untyped-call]  # noqa: SLF001 (as torch's own tests do)

    def _seconds_taken(self) -> float:
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        began.record()
        self.work(None)
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3


def play(plan: Plan, device: Device | None = None) -> list[Seen]:
    """Goes through a plan with the profiler and a real loader. device: works instead of steps that sleep."""
    opening = max(plan.ahead, 1)  # a batch of every worker at least, so that all of them run
    delays = np.concatenate([np.zeros(opening), *(stretch.delays for stretch in plan.stretches)])
    options: dict[str, Any] = {}
    if plan.workers:
        options = {"prefetch_factor": plan.prefetch, "multiprocessing_context": worker_context(None),
                   "worker_init_fn": WorkerInit(None)}  # fmt: skip
    loader = DataLoader(Items(delays), 1, collate_fn=timed, num_workers=plan.workers, **options)
    passing = MeasuredLoop(loader)
    passing.record(opening, lambda _: None)
    seen = []
    for stretch in plan.stretches:
        if plan.workers:
            sleep(_PAUSE_SECONDS)
        steps = [device.work if device else SleepingStep(seconds, HOST_SHARE) for seconds in stretch.steps]
        seen.append(seen_of(passing, steps, None if device is None else device.ticks))
    passing.close()
    return seen


def seen_of(passing: MeasuredLoop, steps: Sequence[Callable[[Any], None]], ticks: StepClock | None = None) -> Seen:
    """One stretch of a loader whose batches are times, with its steps."""
    times, batches, step = list[float](), list[torch.Tensor](), iter(steps)

    def taken(batch: Any) -> None:
        times.append(clock())
        next(step)(batch)
        times.append(clock())

    stored, opened = stored_bytes(), clock()
    recording = passing.record(len(steps), taken, step_clock=ticks, batches_out=batches)
    stored = stored_bytes() - stored
    began, read, made = torch.cat(batches).T.numpy()
    handed, done = np.array(times).reshape(-1, 2).T
    return Seen(
        recording=recording, opened=opened, began=began, read=read, made=made, handed=handed, done=done,
        stored_bytes=stored,
    )  # fmt: skip


def stored_bytes() -> int:
    """What storage gave this process so far, as the system counts it; 0 where it does not say."""
    try:
        return int(psutil.Process().io_counters().read_bytes)
    except (psutil.Error, AttributeError, OSError, NotImplementedError):
        return 0
