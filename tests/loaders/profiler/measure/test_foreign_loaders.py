"""DataLoaders of other libraries, and one's own: those that pass on other batches than torch's, or keep iterators."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from assets_clock import Clock
from assets_profiles import SlowItems
from facefeed.loaders.profiler.measure.measured_loop import MeasuredLoop
from facefeed.loaders.profiler.profile import profile
from facefeed.loaders.torch_internals import shut_down_workers, workers_of
from torch.utils.data import DataLoader, Sampler, TensorDataset

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
    assert "queue is not seen" in str(profiled.verdict)


class WithoutBatch150(DataLoader[Any]):
    """Skips one batch of an epoch."""

    def __iter__(self) -> Any:
        for number, batch in enumerate(super().__iter__()):
            if number != 150:
                yield batch


def test_a_dataloader_that_skips_its_first_batch_amid_the_run_is_reported_as_one_whose_queue_is_not_seen(
    clock: Clock,
) -> None:
    loader = WithoutBatch150(TensorDataset(torch.arange(4000.0)), 4)
    profiled = profile(loader, lambda _: clock.pass_by(STEP), steps=200, quick=True)
    assert len(profiled.live.batch_timings) == 0
    assert "queue is not seen, and assumed to hold at most 66 batches" in str(profiled.verdict)


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


class Endless(Sampler[Any]):
    """Begins a sampler anew wherever it ends."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.sampler


class MultiEpochs(DataLoader[Any]):
    """Goes on with its first iterator in all epochs, as timm's `MultiEpochsDataLoader` does."""

    iterator: Any = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        object.__setattr__(self, "batch_sampler", Endless(self.batch_sampler))

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)  # type: ignore[union-attr]

    def __iter__(self) -> Any:
        if self.iterator is None:
            self.iterator = super().__iter__()
        for _ in range(len(self)):
            yield next(self.iterator)


@pytest.mark.parametrize("workers", [0, 1])
def test_epochs_of_a_loader_that_goes_on_with_one_iterator_are_judged(clock: Clock, workers: int) -> None:
    loader = MultiEpochs(SlowItems(clock, 0.001), 4, num_workers=workers)
    profiled = profile(loader, lambda _: clock.pass_by(STEP), steps=60, quick=True)
    assert len(profiled.live.batch_timings) == len(profiled.live)
    assert profiled.verdict.num_epoch_batches == 150
    assert profiled.verdict.epoch_start_wait_seconds == pytest.approx(0.0, abs=1e-6)


class Infinite(MultiEpochs):
    """Starts its workers as it is made and ends them with itself, as Ultralytics' `InfiniteDataLoader` does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.iterator = DataLoader.__iter__(self)

    def __del__(self) -> None:
        shut_down_workers(self.iterator)


def test_a_loader_whose_workers_have_started_for_all_epochs_keeps_them(clock: Clock) -> None:
    loader = Infinite(TensorDataset(torch.arange(400.0)), 4, num_workers=1)
    (worker,) = workers_of(loader.iterator)
    profiled = profile(loader, lambda _: clock.pass_by(STEP), steps=60)
    assert worker.is_alive()
    assert len(next(iter(loader))[0]) == 4
    assert len(profiled.live.batch_timings) == 0
    assert "queue is not seen" in str(profiled.verdict)


class Prepared:
    """Holds a DataLoader and gives its class for its own, as a loader does that Accelerate has prepared."""

    def __init__(self, loader: Any) -> None:
        self.base_dataloader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "base_dataloader":
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)

    @property
    def __class__(self) -> Any:
        return self.base_dataloader.__class__

    def __len__(self) -> int:
        return len(self.base_dataloader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.base_dataloader


def test_a_loader_that_only_gives_itself_for_a_dataloader_is_measured_as_an_iterable(clock: Clock) -> None:
    loader = Prepared(DataLoader(TensorDataset(torch.arange(400.0)), 4))
    assert isinstance(loader, DataLoader)
    profiled = profile(loader, lambda _: clock.pass_by(STEP), steps=60)
    assert profiled.verdict.num_epoch_batches == 100
    assert "queue is not seen" in str(profiled.verdict)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_profile_changes_no_order(clock: Clock, prepared: bool) -> None:
    def drawn(*, profiled: bool) -> list[Any]:
        generator = torch.Generator().manual_seed(1)
        loader: Any = DataLoader(SlowItems(clock, 0.001), 4, shuffle=True, generator=generator)
        loader = Prepared(loader) if prepared else loader
        if profiled:
            profile(loader, lambda _: clock.pass_by(STEP), steps=50, quick=True)
        return [batch.tolist() for batch in loader]

    assert drawn(profiled=True) == drawn(profiled=False)


class Drawn(Sampler[int]):
    """Indices in an order by a generator that is none of torch's."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return 400

    def __iter__(self) -> Iterator[int]:
        order = [*range(400)]
        self.generator.shuffle(order)
        return iter(order)


@pytest.mark.parametrize("generator", [np.random.default_rng(0), random.Random(0)], ids=["numpy", "random"])
def test_a_loader_whose_sampler_draws_by_another_librarys_generator_is_measured(clock: Clock, generator: Any) -> None:
    loader = DataLoader(SlowItems(clock, 0.001), 4, sampler=Drawn(generator))
    assert profile(loader, lambda _: clock.pass_by(STEP), steps=60, quick=True).verdict.num_epoch_batches == 100
