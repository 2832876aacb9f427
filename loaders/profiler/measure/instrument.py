"""Instruments any `torch.utils.data.DataLoader`, so that every batch carries a `BatchTiming`.

`instrument` copies the loader and wraps its dataset and its collate function, which read the clock in whichever process
prepares the batch; its iterator removes the timings again, so that the loop receives the batches unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import ConcatDataset, IterableDataset, Subset

from ...batching.batch_dataset import BatchDataset
from ...dataset.face_dataset import FaceDataset
from ...torch_internals import intercept_batches
from .batch_timing import BatchTimer, BatchTiming, StageTimers, TimedBatch, clock


class _InstrumentedDataset:
    """A dataset, and a copy with timed stages, which is created in the worker after `worker_init_fn` has run.

    All items are the copy's: what a dataset opens with its first item, it would otherwise open twice. It has the
    attributes and, for `isinstance`, the type of the dataset: loaders of a library's own, such as litdata's, ask for
    both.
    """

    def __init__(self, dataset: Any, timer: BatchTimer) -> None:
        self.dataset, self.timer = dataset, timer
        self._timed_dataset: Any = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name in ("dataset", "timer", "_timed_dataset"):  # not set yet, while it is unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    @property  # type: ignore[misc]  # mypy holds `__class__` for an attribute that can be set
    def __class__(self) -> Any:
        return type(self.dataset)

    def __reduce__(self) -> Any:  # pickle's own way asks for `__class__`
        return type(self), (self.dataset, self.timer)

    @property
    def timed_dataset(self) -> Any:
        if self._timed_dataset is None:
            self._timed_dataset = _with_stage_timers(self.dataset, self.timer.stage_timers)
        return self._timed_dataset


class _InstrumentedMapDataset(_InstrumentedDataset, torch.utils.data.Dataset[Any]):
    def __getitem__(self, index: Any) -> Any:
        self.timer.start()
        return self.timed_dataset[index]

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        self.timer.start()
        dataset = self.timed_dataset
        get_items = getattr(dataset, "__getitems__", None)
        return get_items(indices) if get_items else [dataset[index] for index in indices]


class _InstrumentedIterableDataset(_InstrumentedDataset, IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        items = iter(self.timed_dataset)
        while True:
            self.timer.start()
            try:
                item = next(items)
            except StopIteration:
                return
            yield item


class _UserWorkerInit:
    """A `worker_init_fn` that sees the user's dataset in `get_worker_info()`, as torch documents it."""

    def __init__(self, dataset: Any, original: Callable[[int], Any] | None) -> None:
        self.dataset, self.original = dataset, original

    def __call__(self, worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        object.__setattr__(info, "dataset", self.dataset)  # else it would be what is looked into
        if self.original is not None:
            self.original(worker)


class _TimedCollate:
    def __init__(self, collate: Callable[[Any], Any], timer: BatchTimer) -> None:
        self.collate, self.timer = timer.stage_timers.wrap("collate", collate), timer

    def __call__(self, items: Any) -> TimedBatch:
        return self.timer.finish(self.collate(items))


def instrument(loader: Any, on_timing: Callable[[BatchTiming], None]) -> Any:
    """A copy of a torch DataLoader that returns the same batches and passes each batch's timing to `on_timing`.

    `on_timing` is called in the process that iterates, in batch order, before the batch is returned.
    """
    timer = BatchTimer(StageTimers())
    if isinstance(loader.dataset, BatchDataset):
        source = copy.copy(loader.dataset)
        instrumented, worker_init_fn = loader.with_batch_dataset(source), loader.worker_init_fn
    else:
        source, instrumented = loader.dataset, copy.copy(loader)
        worker_init_fn = _UserWorkerInit(source, loader.worker_init_fn)
    dataset = (_InstrumentedIterableDataset if isinstance(source, IterableDataset) else _InstrumentedMapDataset)(
        source, timer
    )
    # torch forbids to set a loader's dataset by its name, since its sampler would not know of it: this one is as long.
    instrumented.__dict__.update(
        dataset=dataset,
        collate_fn=_TimedCollate(loader.collate_fn, timer),
        worker_init_fn=worker_init_fn,
        _iterator=None,
    )

    def _strip_timing(timed_batch: TimedBatch, sampler_seconds: float) -> Any:
        timed_batch.timing.sampler_seconds = sampler_seconds
        on_timing(timed_batch.timing)
        return timed_batch.batch

    intercept_batches(instrumented, _strip_timing, clock)
    return instrumented


def _with_stage_timers(dataset: Any, timers: StageTimers) -> Any:
    """A copy of the dataset with timed stages: all stages of a `FaceDataset`, else its transforms.

    Also inside `Subset` and `ConcatDataset`. Returns the dataset itself where it cannot be copied, or where its
    transform is not an attribute of its own.
    """
    if isinstance(dataset, FaceDataset):
        return dataset.with_wrapped_stages(timers.wrap)
    attributes = getattr(dataset, "__dict__", {})
    wrapped: dict[str, Any] = {
        name: timers.wrap("augment", attributes[name])
        for name in ("transform", "transforms")
        if callable(attributes.get(name))
    }
    if isinstance(dataset, Subset):
        wrapped["dataset"] = _with_stage_timers(dataset.dataset, timers)
    if isinstance(dataset, ConcatDataset):
        wrapped["datasets"] = [_with_stage_timers(part, timers) for part in dataset.datasets]
    if not wrapped:
        return dataset
    try:
        timed_dataset = copy.copy(dataset)
    except Exception:  # whatever a user's __getattr__ or __reduce__ does
        return dataset
    timed_dataset.__dict__.update(wrapped)
    return timed_dataset
