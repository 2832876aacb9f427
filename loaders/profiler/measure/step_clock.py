"""When something happened, as whoever runs the step saw it: by the host's clock, or by events on a CUDA stream."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from .stamps import clock


class Ticks(Protocol):
    """What a loop marks its moments with; `seconds_of` gives them on CLOCK_MONOTONIC, once it is over."""

    def begin(self) -> None:
        """Called before the first mark of a stretch."""

    def mark(self) -> Any:
        """Now. Must cost next to nothing, and must not wait for the device."""

    def seconds_of(self, marks: list[Any]) -> NDArray[np.float64]:
        """The marks' times, in their order, float64 (marks,). May wait."""


class HostTicks:
    """The host's clock: the truth where the step runs on the host."""

    def begin(self) -> None:
        """Needs nothing."""

    def mark(self) -> float:
        """Now."""
        return clock()

    def seconds_of(self, marks: list[float]) -> NDArray[np.float64]:
        """The marks as they are."""
        return np.array(marks, np.float64)


class CudaTicks:
    """Events on the current stream of a CUDA device: when the device came to each mark, not when the host did.

    While kernels that were queued before still run, the marks before and after `next()` resolve together: what is
    between them is the time in which the device had nothing to do, however long the host waited. Nothing waits for the
    device until a stretch is over.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began: tuple[float, Any] | None = None

    def begin(self) -> None:
        """Ties the device's clock to the host's, once the device is idle."""
        torch.cuda.synchronize(self._device)
        event = self.mark()
        event.synchronize()
        self._began = clock(), event

    def mark(self) -> torch.cuda.Event:
        """An event behind all that was queued so far."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds_of(self, marks: list[torch.cuda.Event]) -> NDArray[np.float64]:
        """Waits for the last mark; from one to the next, since an event's milliseconds are float32."""
        assert self._began is not None
        began, before = self._began
        if marks:
            marks[-1].synchronize()
        gaps = []
        for event in marks:
            gaps.append(before.elapsed_time(event) / 1e3)
            before = event
        return began + np.cumsum(np.array(gaps, np.float64))


def ticks_of(device: str | torch.device | None) -> Ticks:
    """What fits the device that the step runs on; None: the host."""
    where = torch.device(device or "cpu")
    return CudaTicks(where) if where.type == "cuda" else HostTicks()
