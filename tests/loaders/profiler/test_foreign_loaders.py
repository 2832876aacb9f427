"""DataLoaders that pass on other batches than torch's."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from assets_clock import Clock
from assets_profiles import SlowItems
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.profile import profile
from torch.utils.data import DataLoader, TensorDataset

STEP = 0.02


class EveryThird(DataLoader[Any]):
    """Leaves two batches out after each."""

    def __iter__(self) -> Any:
        return itertools.islice(super().__iter__(), 0, None, 3)


class Echoed(DataLoader[Any]):
    """Yields each batch twice."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch
            yield batch


@pytest.mark.parametrize("loader_class", [EveryThird, Echoed])
def test_a_dataloader_that_skips_or_repeats_batches_is_measured_as_an_iterable(
    clock: Clock, loader_class: type[DataLoader[Any]]
) -> None:
    loader = loader_class(TensorDataset(torch.arange(4000.0)), 4)
    profiled = profile(loader, lambda _: clock.pass_by(STEP), steps=100)
    assert len(profiled.live.batch_timings) == 0
    assert profiled.verdict.headroom is None
    assert not profiled.advice
    assert "its queue is not seen" in str(profiled.verdict)


class FirstHundred(DataLoader[Any]):
    """Ends its epochs early, with a batch that nobody gets."""

    def __iter__(self) -> Any:
        for number, batch in enumerate(super().__iter__()):
            if number == 100:
                return
            yield batch


def test_a_batch_that_is_dropped_at_the_end_of_an_epoch_is_not_taken_for_that_of_a_step(clock: Clock) -> None:
    loader = FirstHundred(SlowItems(clock, 0.01), 1)
    recording = MeasuredLoop(loader).record(350, lambda _: clock.pass_by(STEP))
    assert len(recording.batch_timings) == 350
    assert recording.not_ready_seconds == pytest.approx(recording.wait_seconds)
