"""Clocks for the moments of a step: the host's clock, or events on a CUDA stream."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .batch_timing import clock


class StepClock(Protocol):
    """Marks moments during a loop and converts them to seconds on CLOCK_MONOTONIC afterwards."""

    def begin(self) -> None:
        """Called once before the first mark of a segment."""

    def mark(self) -> Any:
        """The current moment. Must be cheap, and must not wait for the device."""

    def seconds_of(self, marks: list[Any]) -> NDArray[np.float64]:
        """Times of the marks, float64 (marks,). May wait for the device."""


class HostStepClock:
    """The host's clock: exact where the step runs on the host."""

    def begin(self) -> None:
        """Does nothing."""

    def mark(self) -> float:
        """The current time."""
        return clock()

    def seconds_of(self, marks: list[float]) -> NDArray[np.float64]:
        """The marks themselves."""
        return np.array(marks, np.float64)


class SynchronisedHostClock(HostStepClock):
    """The host's clock, from an idle accelerator until it is idle again.

    The last step lasts until the device has done all of them. So the mean step is the device's, although the host may
    only launch each: its clock sees no single one of them.
    """

    def begin(self) -> None:
        """Waits until the accelerator is idle."""
        torch.accelerator.synchronize()

    def seconds_of(self, marks: list[float]) -> NDArray[np.float64]:
        """The marks, of which the last is when the accelerator is idle again. Waits for that."""
        torch.accelerator.synchronize()
        return np.array([*marks[:-1], clock()], np.float64)


class CudaStepClock:
    """Events on the current stream of a CUDA device: when the device reaches each mark, not the host.

    While kernels queued earlier still run, the marks before and after `next()` resolve together: the time between them
    is device idle time, however long the host waited. Nothing synchronises with the device until a segment is over.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._origin: tuple[float, Any] | None = None

    def begin(self) -> None:
        """Waits until the device is idle, and aligns its clock with the host's."""
        torch.cuda.synchronize(self._device)
        event = self.mark()
        event.synchronize()
        self._origin = clock(), event

    def mark(self) -> torch.cuda.Event:
        """An event behind all work queued so far."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds_of(self, marks: list[torch.cuda.Event]) -> NDArray[np.float64]:
        """Waits for the last mark; sums the gaps between marks, since an event's milliseconds are float32."""
        assert self._origin is not None
        origin_seconds, previous = self._origin
        if marks:
            marks[-1].synchronize()
        gap_seconds = []
        for event in marks:
            gap_seconds.append(previous.elapsed_time(event) / 1e3)
            previous = event
        return origin_seconds + np.cumsum(np.array(gap_seconds, np.float64))


def step_clock_for(device: str | torch.device | None) -> StepClock:
    """The step clock of a device; None: the host."""
    step_device = torch.device("cpu" if device is None else device)
    return CudaStepClock(step_device) if step_device.type == "cuda" else HostStepClock()
