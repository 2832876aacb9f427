"""Steps for hosts without a GPU: a step that sleeps, and emulated devices with a given step time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed

from ....pipeline.errors import UsageError
from .batch_timing import clock


@dataclass(frozen=True)
class SleepingStep:
    """A step of `seconds`, of which the host computes a `host_share` and sleeps the rest, as if it read every loss.

    A step that only slept would leave the loader the whole machine; one that only computed would occupy a core that a
    GPU leaves free. Raises `UsageError` on values out of range.
    """

    seconds: float
    host_share: float = 0.2

    def __post_init__(self) -> None:
        _check_options(self, self.seconds, self.host_share)

    def __call__(self, _batch: Any) -> None:
        """Runs the step."""
        started_at = clock()
        _spin_until(started_at + self.seconds * self.host_share)
        _sleep_until(started_at + self.seconds)


@dataclass
class EmulatedDevice:
    """An emulated device: both the step, which takes `seconds`, and the `StepClock` of the device.

    The host computes for a `host_share` of the step, as if launching it, and continues; it is at most one step ahead.
    Host work during a step, such as fetching the next batch, is no device wait. Device times are computed, not slept,
    so timer inaccuracy does not lengthen a step. Raises `UsageError` on values out of range.
    """

    seconds: float
    host_share: float = 0.2
    _free_at: float = field(default=-math.inf, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_options(self, self.seconds, self.host_share)

    def __call__(self, _batch: Any) -> None:
        """Launches a step, and waits until the device begins it."""
        launched_at = clock()
        begins_at = max(launched_at, self._free_at)
        self._free_at = begins_at + self.seconds
        _spin_until(launched_at + self.seconds * self.host_share)
        _sleep_until(begins_at)

    def begin(self) -> None:
        """Waits until the device is idle."""
        _sleep_until(self._free_at)

    def mark(self) -> Any:
        """When the device finishes all launched work; now, if it is idle."""
        return max(clock(), self._free_at)

    def seconds_of(self, marks: list[Any]) -> NDArray[np.float64]:
        """The marks themselves."""
        return np.array(marks, np.float64)


@dataclass
class EmulatedRank(EmulatedDevice):
    """The emulated device of one of several ranks on this host, whose steps end together, as with an all-reduce.

    A step begins with the rank's own batch and ends `seconds` after the last rank has begun. Needs torch.distributed's
    default group; the ranks exchange their begin times while their devices work.
    """

    _step_ends_at: list[float] = field(default_factory=list, init=False, repr=False)
    _pending_all_reduce: tuple[Any, torch.Tensor] | None = field(default=None, init=False, repr=False)
    _num_launched: int = field(default=0, init=False, repr=False)

    def __call__(self, _batch: Any) -> None:
        """Launches a step, and waits until this rank's part of it begins."""
        launched_at = clock()
        _spin_until(launched_at + self.seconds * self.host_share)
        begins_at = max(launched_at, self._last_step_end_at())
        latest_begin = torch.tensor([begins_at], dtype=torch.float64)
        self._pending_all_reduce = (
            distributed.all_reduce(latest_begin, distributed.ReduceOp.MAX, async_op=True),
            latest_begin,
        )
        self._num_launched += 1
        _sleep_until(begins_at)

    def _last_step_end_at(self) -> float:
        """When the last launched step ends."""
        if self._pending_all_reduce is not None:
            all_reduce, latest_begin = self._pending_all_reduce
            all_reduce.wait()
            self._step_ends_at.append(float(latest_begin) + self.seconds)
            self._pending_all_reduce = None
        return self._step_ends_at[-1] if self._step_ends_at else -math.inf

    def begin(self) -> None:
        """Waits until the devices are idle."""
        _sleep_until(self._last_step_end_at())

    def mark(self) -> Any:
        """The time and the number of launched steps, whose end the other ranks may not have reported yet."""
        return clock(), self._num_launched

    def seconds_of(self, marks: list[Any]) -> NDArray[np.float64]:
        """When the device finished all work launched before each mark."""
        self._last_step_end_at()
        step_ends_at = [-math.inf, *self._step_ends_at]
        return np.array([max(marked_at, step_ends_at[num_launched]) for marked_at, num_launched in marks], np.float64)


def _check_options(step: Any, seconds: float, host_share: float) -> None:
    if not 0 < seconds < math.inf or not 0 <= host_share <= 1:
        raise UsageError(f"{step}: needs more than 0 seconds and a host_share from 0 to 1; try 0.01 and 0.2")


def _spin_until(until_at: float) -> None:
    while clock() < until_at:
        pass


def _sleep_until(until_at: float) -> None:
    remaining_seconds = until_at - clock()
    if remaining_seconds > 0:
        time.sleep(remaining_seconds)
