"""When each batch was made, and on what the time went: stamps that travel with it from whichever process made it.

Works on any `torch.utils.data.DataLoader`: a copy of it gets a dataset and a collate function that look at the clock,
and its iterator takes the stamps off again. The clock is CLOCK_MONOTONIC, one for all processes of a host.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import IterableDataset
from torch.utils.data._utils.pin_memory import pin_memory

from ..batch import BatchSource
from ..dataset import FaceDataset

clock = time.monotonic


@dataclass(slots=True)
class Stamp:
    """How one batch came to be. start, finish: clock, in seconds. cpu: seconds of the thread that made it.

    spans: seconds by name (read, decode, augment, fetch, collate), of those that could be told apart. bytes_read: what
    storage, not the page cache, delivered to that process meanwhile. pid: which process.
    """

    start: float
    finish: float = 0.0
    cpu: float = 0.0
    bytes_read: int = 0
    pid: int = 0
    spans: dict[str, float] = field(default_factory=dict)


@dataclass
class Stamped:
    """A batch under way with its stamp."""

    batch: Any
    stamp: Stamp

    def pin_memory(self, device: Any = None) -> Stamped:
        """Called by torch where the loader was made with `pin_memory`."""
        return Stamped(pin_memory(self.batch, device), self.stamp)  # type: ignore[no-untyped-call]


class Spans:
    """Seconds by name, of the batch that is being made; one in each process, shared by all that look at the clock."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, call: Callable[..., Any]) -> Timed:
        """The same callable, its time added to a span."""
        return Timed(self, name, call)


class Timed:
    """A callable whose time is added to a span; else it is as it was."""

    def __init__(self, spans: Spans, name: str, call: Callable[..., Any]) -> None:
        self._spans, self._name, self._call = spans, name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it."""
        began = clock()
        try:
            return self._call(*args, **kwargs)
        finally:
            seconds = self._spans.seconds
            seconds[self._name] = seconds.get(self._name, 0.0) + clock() - began

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self._call, name)


class _Maker:
    """What is common to the dataset and the collate function of a stamped loader: the batch that is being made."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self.stamp: Stamp | None = None
        self._cpu = 0.0
        self._bytes = 0

    def begin(self) -> None:
        """A batch's first item is asked for."""
        if self.stamp is None:
            self.spans.seconds = {}
            self._cpu, self._bytes = time.thread_time(), _bytes_read()
            self.stamp = Stamp(clock(), pid=os.getpid())

    def end(self, batch: Any) -> Stamped:
        """It is made."""
        stamp = self.stamp or Stamp(clock(), pid=os.getpid())
        stamp.cpu, stamp.bytes_read = time.thread_time() - self._cpu, _bytes_read() - self._bytes
        stamp.spans, stamp.finish, self.stamp = self.spans.seconds, clock(), None
        return Stamped(batch, stamp)


class _Mapped(torch.utils.data.Dataset[Any]):
    def __init__(self, dataset: Any, maker: _Maker) -> None:
        self.dataset, self.maker = dataset, maker

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, wanted: Any) -> Any:
        self.maker.begin()
        return self.dataset[wanted]

    def __getitems__(self, wanted: Sequence[Any]) -> Any:
        self.maker.begin()
        many = getattr(self.dataset, "__getitems__", None)
        return many(wanted) if many else [self.dataset[one] for one in wanted]


class _Streamed(IterableDataset[Any]):
    def __init__(self, dataset: Any, maker: _Maker) -> None:
        self.dataset, self.maker = dataset, maker

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        items = iter(self.dataset)
        while True:
            self.maker.begin()
            try:
                item = next(items)
            except StopIteration:
                return
            yield item


class _Collated:
    def __init__(self, collate: Callable[[Any], Any], maker: _Maker) -> None:
        self.collate, self.maker = collate, maker

    def __call__(self, items: Any) -> Stamped:
        began = clock()
        batch = self.collate(items)
        self.maker.spans.seconds["collate"] = clock() - began
        return self.maker.end(batch)


def _taking(batches: Any, take: Callable[[Stamp], None]) -> Any:
    """The iterator, which now takes the stamps off; the same object: torch knows it by its identity."""
    kind = type(batches)

    def _next_data(self: Any) -> Any:
        found = kind._next_data(self)  # noqa: SLF001
        take(found.stamp)
        return found.batch

    batches.__class__ = type(kind.__name__, (kind,), {"_next_data": _next_data})
    return batches


def stamped(loader: Any, take: Callable[[Stamp], None]) -> Any:
    """A copy of a torch DataLoader whose batches are as before, and which hands each one's stamp to `take`.

    `take` is called in the process that iterates, in the order of the batches, before the batch is handed out.
    """
    spans = Spans()
    maker = _Maker(spans)
    dataset = _with_spans(loader.dataset, spans)
    kind = _Streamed if isinstance(dataset, IterableDataset) else _Mapped
    made = loader.over(dataset) if isinstance(dataset, BatchSource) else copy.copy(loader)
    # torch forbids to set a loader's dataset by its name, since its sampler would not know of it: this one is as long.
    made.__dict__.update(dataset=kind(dataset, maker), collate_fn=_Collated(loader.collate_fn, maker), _iterator=None)
    original = type(loader)._get_iterator  # noqa: SLF001
    made.__dict__["_get_iterator"] = lambda: _taking(original(made), take)
    return made


def _with_spans(dataset: Any, spans: Spans) -> Any:
    """The dataset, its stages timed where they can be found: ours all, else transforms as torchvision calls them."""
    if isinstance(dataset, FaceDataset):
        return dataset.with_stages(spans.timed)
    made = copy.copy(dataset)
    for name in ("transform", "transforms"):
        if callable(getattr(made, name, None)):
            made.__dict__[name] = spans.timed("augment", getattr(made, name))
    return made


def _bytes_read() -> int:
    """What storage delivered to this process so far; 0 where the system does not say."""
    try:
        with open("/proc/self/io", "rb") as counters:  # noqa: PTH123 (once a batch: as light as can be)
            return next((int(line[12:]) for line in counters if line.startswith(b"read_bytes: ")), 0)
    except OSError:
        return 0
