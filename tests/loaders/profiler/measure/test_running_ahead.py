"""A `FaceDataLoader` for a device returns a batch once the next one is there: which batch each wait is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_rows import make_small
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.profiler.measure import measured_loop
from facefeed.loaders.profiler.measure.batch_timing import BatchTiming
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.profiler.report.waits import main_cause
from facefeed.loaders.profiler.verdict.advice import advise
from facefeed.loaders.transfer.postprocessor import BatchPostprocessor
from facefeed.loaders.transfer.prefetch import one_ahead

STEP, LOAD, TRANSPORT = 0.010, 0.030, 0.0002


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("ahead") / "out")


@pytest.fixture
def runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders run ahead on the CPU in the order in which they do for CUDA."""

    def finalize(finalizer: BatchPostprocessor, batches: Iterator[Any]) -> Iterator[Any]:
        return one_ahead(batches, finalizer._finalize, lambda finalized: finalized)

    monkeypatch.setattr(BatchPostprocessor, "__call__", finalize)


@pytest.mark.usefixtures("runs_ahead")
def test_each_wait_is_for_the_batch_after_the_one_that_it_returns_and_the_last_of_an_epoch_for_none(
    clock: Clock, dataset: Path
) -> None:
    """Ten images a batch and seven in the last of eleven, of a millisecond each; the loop loads them itself."""

    def slow(image: Any) -> Any:
        clock.pass_by(0.001)
        return image

    loader = FaceDataLoader(dataset, 10, image_size=16, num_workers=0, transform=slow)
    recording = MeasuredLoop(loader).record(33, lambda _: clock.pass_by(STEP))
    waits = np.tile([0.020] + [0.010] * 8 + [0.007, 0.0], 3)
    assert recording.wait_seconds == pytest.approx(waits)
    assert recording.not_ready_seconds == pytest.approx(waits)
    assert recording.load_seconds == pytest.approx(np.minimum(waits, 0.010))
    assert recording.segment_step.tolist() == [*range(11)] * 3
    assert recording.num_images.tolist() == [*[10] * 10, 7] * 3


@dataclass
class TwoWorkers:
    """An instrumented loader of two workers, two batches ahead each, on the test's clock, that itself runs ahead."""

    clock: Clock
    on_timing: Callable[[BatchTiming], None]
    num_workers = prefetch_factor = 2

    def __iter__(self) -> Iterator[Any]:
        return one_ahead(self._received(), lambda batch: batch, lambda batch: batch)

    def _received(self) -> Iterator[Any]:
        free_at, requested_at = [self.clock.now] * 2, [self.clock.now] * 4
        for number in range(300):
            start_at = max(free_at[number % 2], requested_at[number])
            free_at[number % 2] = end_at = start_at + LOAD
            self.clock.now = max(self.clock.now, end_at) + TRANSPORT
            requested_at.append(self.clock.now)
            self.on_timing(BatchTiming(start_at, end_at, pid=number % 2))
            yield torch.zeros(4)


def test_workers_that_are_too_slow_are_the_cause_and_more_of_them_are_advised(
    clock: Clock, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers make a batch every 15 ms for steps of 10."""
    monkeypatch.setattr(measured_loop, "instrument", lambda _loader, on_timing: TwoWorkers(clock, on_timing))
    loader = FaceDataLoader(dataset, 10, image_size=16, num_workers=2)
    found = profile(loader, lambda _: clock.pass_by(STEP), steps=400, quick=True)
    assert found.verdict.wait_share.value == pytest.approx(1 / 3, abs=0.01)
    assert found.verdict.model_wait_share == pytest.approx(found.verdict.wait_share.value, abs=0.01)
    assert found.verdict.transport_floor_seconds == pytest.approx(TRANSPORT)
    assert main_cause(found)[0] == "preparation"
    assert found.step_part_seconds["preparation"] == pytest.approx(0.0048, rel=0.02)
    assert found.step_part_seconds["contention"] == 0.0
    assert found.live.turnaround_seconds == pytest.approx(0.0, abs=1e-9)
    more_workers = advise(found.live, num_cores=8)[0]
    assert more_workers.change.startswith("workers 2 -> ")
    assert more_workers.predicted_wait_share < 0.05
