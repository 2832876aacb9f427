"""The profiler's waits on a GPU beside the kernels that CUPTI saw."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.measure.step_clock import CudaStepClock, step_clock_for
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

pytestmark = pytest.mark.gpu

STEPS = 60


class Delayed:
    """Batches on the device, of which every `every`-th comes `seconds` late."""

    def __init__(self, every: int, seconds: float) -> None:
        self.every, self.seconds = every, seconds
        self.batch = torch.randn(2048, 2048, device="cuda")

    def __iter__(self) -> Iterator[Tensor]:
        for number in range(10_000):
            if self.every and number % self.every == 0:
                time.sleep(self.seconds)
            yield self.batch


LAUNCH_GAP_US = 500.0
"""Above the gaps between kernels of one step, while the host launches them one by one."""


def idle_seconds(trace: profile) -> tuple[float, float]:
    """Time without a kernel from the first kernel to the end of the last but launch gaps, and all time between them."""
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in trace.events() or []
        if event.device_type == torch.autograd.DeviceType.CUDA and event.time_range.end > event.time_range.start
    )
    idle, busy_until = 0.0, spans[0][0]
    for start, end in spans:
        if start - busy_until > LAUNCH_GAP_US:
            idle += start - busy_until
        busy_until = max(busy_until, end)
    return idle / 1e6, (busy_until - spans[0][0]) / 1e6


@pytest.mark.parametrize(("every", "seconds"), [(0, 0.0), (5, 0.030), (1, 0.012)], ids=["fed", "some late", "all late"])
def test_what_it_calls_waiting_is_what_the_device_idled_by_cupti(every: int, seconds: float) -> None:
    step_clock = step_clock_for("cuda")
    assert isinstance(step_clock, CudaStepClock)
    weights = torch.randn(2048, 2048, device="cuda")

    def step(batch: Tensor) -> None:
        for _ in range(12):
            batch = torch.tanh(batch @ weights)

    loop = MeasuredLoop(Delayed(every, seconds))
    loop.record(10, step, step_clock=step_clock)  # kernels are loaded
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        recording = loop.record(STEPS, step, step_clock=step_clock)
        torch.cuda.synchronize()
    idle, total = idle_seconds(trace)
    waited = float(np.sum(recording.wait_seconds[1:]))  # the first is before the first kernel
    print(f"waited {waited * 1e3:.2f} ms; idle by CUPTI {idle * 1e3:.2f} ms of {total * 1e3:.2f} ms")
    # Between the last mark of a wait and the first kernel of the step the host launches it, which is the step's time.
    late_steps = STEPS / every if every else 0
    assert -0.5e-3 <= idle - waited <= 0.5e-3 * (1 + late_steps)
