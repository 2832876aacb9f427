"""What stands for the training step: a callable of the user's, or, without a GPU, a time that is stated."""

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
from .stamps import clock


@dataclass(frozen=True)
class SleepingStep:
    """Takes `seconds`, of which the host computes a `host_share` and sleeps the rest, as in a loop that reads its loss.

    A step that only slept would give the loader the whole machine; one that only computed would take a core away that
    a GPU leaves free.
    """

    seconds: float
    host_share: float = 0.2

    def __post_init__(self) -> None:
        _check(self, self.seconds, self.host_share)

    def __call__(self, _batch: Any) -> None:
        """Takes its time."""
        began = clock()
        _compute(began + self.seconds * self.host_share)
        _sleep_until(began + self.seconds)


@dataclass
class EmulatedDevice:
    """A device whose every step takes `seconds`, as a GPU's that is told in time: the step, and the marks of its clock.

    The host computes for a `host_share` of that, launching the step, and goes on; it is at most one step ahead. So what
    the host does while the device works, such as taking the next batch, is no waiting of the device. Its clock is
    worked out, not slept: no timer of the system's makes a step longer.
    """

    seconds: float
    host_share: float = 0.2
    _free_at: float = field(default=-math.inf, init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self, self.seconds, self.host_share)

    def __call__(self, _batch: Any) -> None:
        """Launches a step, and waits until it begins."""
        told = clock()
        begins = max(told, self._free_at)
        self._free_at = begins + self.seconds
        _compute(told + self.seconds * self.host_share)
        _sleep_until(begins)

    def begin(self) -> None:
        """Until the device is idle."""
        _sleep_until(self._free_at)

    def mark(self) -> Any:
        """When the device has done all it was told so far: now, if it has nothing to do."""
        return max(clock(), self._free_at)

    def seconds_of(self, marks: list[Any]) -> NDArray[np.float64]:
        """The marks as they are."""
        return np.array(marks, np.float64)


@dataclass
class EmulatedRank(EmulatedDevice):
    """The device of one of several ranks on this host, whose steps end together, as when they sum up their gradients.

    Its step begins with its own batch and ends `seconds` after the last rank's began. Needs torch.distributed's default
    group; the ranks tell each other when they began while their devices work.
    """

    _ends: list[float] = field(default_factory=list, init=False, repr=False)
    _told: tuple[Any, torch.Tensor] | None = field(default=None, init=False, repr=False)
    _begun: int = field(default=0, init=False, repr=False)

    def __call__(self, _batch: Any) -> None:
        """Launches a step, and waits until this rank's part of it begins."""
        told = clock()
        _compute(told + self.seconds * self.host_share)
        begins = max(told, self._end())
        moment = torch.tensor([begins], dtype=torch.float64)
        self._told = distributed.all_reduce(moment, distributed.ReduceOp.MAX, async_op=True), moment
        self._begun += 1
        _sleep_until(begins)

    def _end(self) -> float:
        """When the last step ends that was begun."""
        if self._told is not None:
            work, moment = self._told
            work.wait()
            self._ends.append(float(moment) + self.seconds)
            self._told = None
        return self._ends[-1] if self._ends else -math.inf

    def begin(self) -> None:
        """Until the devices are idle."""
        _sleep_until(self._end())

    def mark(self) -> Any:
        """Now, and how many steps the device was told: the others' part in these may not be known yet."""
        return clock(), self._begun

    def seconds_of(self, marks: list[Any]) -> NDArray[np.float64]:
        """When the device had done all that it was told before each mark."""
        self._end()
        ends = [-math.inf, *self._ends]
        return np.array([max(moment, ends[begun]) for moment, begun in marks], np.float64)


def _check(step: Any, seconds: float, host_share: float) -> None:
    if not 0 < seconds < math.inf or not 0 <= host_share <= 1:
        raise UsageError(f"{step}: needs more than 0 seconds and a host_share from 0 to 1; try 0.01 and 0.2")


def _compute(until: float) -> None:
    while clock() < until:
        pass


def _sleep_until(moment: float) -> None:
    rest = moment - clock()
    if rest > 0:
        time.sleep(rest)
