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
from torch.utils.data import ConcatDataset, IterableDataset, Subset
from torch.utils.data._utils.pin_memory import pin_memory

from ...batching.batch_dataset import BatchDataset
from ...dataset.face_dataset import FaceDataset
from .counters import Counters, here

clock = time.monotonic

STAGES = ("read", "decode", "resize", "augment", "collate")
"""What a batch's making is told apart by, in the order in which it is done; not every loader has each."""

_TRIED = 200
_LOOKED_INTO = 4
"""Every so manyth batch of a process is told apart: a look at the clock around every stage of every image of all of
them took 1 % of their making."""


@dataclass(slots=True)
class Stamp:
    """How one batch came to be. start, finish: clock, in seconds. pid: of the process that made it.

    cpu: seconds in which the thread that made it computed; queued: in which it could have, had a core been free.
    bytes_read: what storage, not the page cache, delivered to that process meanwhile. spans: seconds by stage, of those
    that could be told apart; of every fourth batch, since looking costs time too. sampled: seconds that the loader's
    sampler took in the `next()` that handed the batch out, in the loop itself.
    """

    start: float
    finish: float = 0.0
    cpu: float = 0.0
    queued: float = 0.0
    bytes_read: int = 0
    pid: int = 0
    sampled: float = 0.0
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

    def take(self) -> dict[str, float]:
        """What was seen of the batch that is made, in the order of its stages; the next one begins at 0."""
        seen = {name: self.seconds[name] for name in STAGES if name in self.seconds}
        for name in self.seconds:
            self.seconds[name] = 0.0
        return seen

    def timed(self, name: str, call: Callable[..., Any]) -> Timed:
        """The same callable, its time added to a span."""
        self.seconds.setdefault(name, 0.0)
        return Timed(self.seconds, name, call)


class Timed:
    """A callable whose time is added to a span; else it is as it was. Called once an image: as light as can be."""

    def __init__(self, seconds: dict[str, float], name: str, call: Callable[..., Any]) -> None:
        self._seconds, self._name, self.untimed = seconds, name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls it."""
        began = clock()
        made = self.untimed(*args, **kwargs)
        self._seconds[self._name] += clock() - began
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "untimed":  # while it is being unpickled
            raise AttributeError(name)
        return getattr(self.untimed, name)


class _Maker:
    """What is common to the dataset and the collate function of a stamped loader: the batch that is being made."""

    def __init__(self, spans: Spans) -> None:
        self.spans = spans
        self.stamp: Stamp | None = None
        self.looking = False
        self._made = 0
        self._counters: Counters | None = None
        self._cpu = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_counters": None}

    def begin(self) -> None:
        """A batch's first item is asked for."""
        if self.stamp is None:
            if self._counters is None or self._counters.owner != here():  # after a fork
                self._counters = Counters()
            self.looking = self._made % _LOOKED_INTO == 0
            self._made += 1
            self._cpu = time.thread_time()
            self.stamp = Stamp(clock(), pid=os.getpid())

    def end(self, batch: Any) -> Stamped:
        """It is made. Called without a beginning where a sampler gave a batch of no items."""
        self.begin()
        stamp = self.stamp
        assert stamp is not None
        assert self._counters is not None
        stamp.finish, stamp.cpu = clock(), time.thread_time() - self._cpu
        stamp.queued, stamp.bytes_read = self._counters.since()
        seen, self.stamp = self.spans.take(), None
        stamp.spans = seen if self.looking else {}
        return Stamped(batch, stamp)


class _LookedInto:
    """A dataset and its copy with timed stages, made in the process that uses it: after `worker_init_fn` saw to it."""

    def __init__(self, dataset: Any, maker: _Maker) -> None:
        self.dataset, self.maker = dataset, maker
        self._timed: Any = None

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def timed(self) -> Any:
        if self._timed is None:
            self._timed = _with_spans(self.dataset, self.maker.spans)
        return self._timed


class _Mapped(_LookedInto, torch.utils.data.Dataset[Any]):
    def __getitem__(self, wanted: Any) -> Any:
        return self._due()[wanted]

    def __getitems__(self, wanted: Sequence[Any]) -> Any:
        dataset = self._due()
        many = getattr(dataset, "__getitems__", None)
        return many(wanted) if many else [dataset[one] for one in wanted]

    def _due(self) -> Any:
        """What makes the next item: the dataset with its stages timed, or as it is."""
        self.maker.begin()
        return self.timed if self.maker.looking else self.dataset


class _Streamed(_LookedInto, IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        items = iter(self.timed)
        while True:
            self.maker.begin()
            try:
                item = next(items)
            except StopIteration:
                return
            yield item


class _Init:
    """A `worker_init_fn` that finds the user's dataset where torch's documentation says that it is."""

    def __init__(self, dataset: Any, original: Callable[[int], Any] | None) -> None:
        self.dataset, self.original = dataset, original

    def __call__(self, worker: int) -> None:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        object.__setattr__(info, "dataset", self.dataset)  # else it would be what is looked into
        if self.original is not None:
            self.original(worker)


class _Collated:
    def __init__(self, collate: Callable[[Any], Any], maker: _Maker) -> None:
        self.collate, self.maker = maker.spans.timed("collate", collate), maker

    def __call__(self, items: Any) -> Stamped:
        return self.maker.end(self.collate(items))


def _taking(batches: Any, take: Callable[[Stamp], None]) -> Any:
    """The iterator, which now takes the stamps off; the same object: torch knows it by its identity."""
    kind = type(batches)

    def _next_index(self: Any) -> Any:
        began = clock()
        try:
            return kind._next_index(self)  # noqa: SLF001
        finally:
            self.sampled += clock() - began

    def _next_data(self: Any) -> Any:
        self.sampled = 0.0
        found = kind._next_data(self)  # noqa: SLF001
        found.stamp.sampled = self.sampled
        take(found.stamp)
        return found.batch

    batches.__class__ = type(kind.__name__, (kind,), {"_next_data": _next_data, "_next_index": _next_index})
    return batches


def stamped(loader: Any, take: Callable[[Stamp], None]) -> Any:
    """A copy of a torch DataLoader whose batches are as before, and which hands each one's stamp to `take`.

    `take` is called in the process that iterates, in the order of the batches, before the batch is handed out.
    """
    maker = _Maker(Spans())
    if isinstance(loader.dataset, BatchDataset):
        source = copy.copy(loader.dataset)
        made, init = loader.with_batch_dataset(source), loader.worker_init_fn
    else:
        source, made = loader.dataset, copy.copy(loader)
        init = _Init(source, loader.worker_init_fn)
    looked_into = (_Streamed if isinstance(source, IterableDataset) else _Mapped)(source, maker)
    # torch forbids to set a loader's dataset by its name, since its sampler would not know of it: this one is as long.
    made.__dict__.update(
        dataset=looked_into, collate_fn=_Collated(loader.collate_fn, maker), worker_init_fn=init, _iterator=None
    )
    # By its class, since a method of its own would tie it, and the iterator that it keeps, to the garbage collector.
    made.__class__ = _handing_to(type(loader), take)
    return made


def _handing_to(kind: type[Any], take: Callable[[Stamp], None]) -> type[Any]:
    """The loader's class, its iterators taking the stamps off."""

    def _get_iterator(self: Any) -> Any:
        return _taking(kind._get_iterator(self), take)  # noqa: SLF001

    return type(kind.__name__, (kind,), {"_get_iterator": _get_iterator, "__module__": kind.__module__})


def _with_spans(dataset: Any, spans: Spans) -> Any:
    """The dataset, its stages timed where they can be found: ours all, else transforms as torchvision calls them.

    Also in parts of it (`Subset`) and in all of several (`ConcatDataset`). As it is, where it cannot be copied or its
    transform is none of its own attributes.
    """
    if isinstance(dataset, FaceDataset):
        return dataset.with_wrapped_stages(spans.timed)
    own = getattr(dataset, "__dict__", {})
    timed: dict[str, Any] = {
        name: spans.timed("augment", own[name]) for name in ("transform", "transforms") if callable(own.get(name))
    }
    if isinstance(dataset, Subset):
        timed["dataset"] = _with_spans(dataset.dataset, spans)
    if isinstance(dataset, ConcatDataset):
        timed["datasets"] = [_with_spans(one, spans) for one in dataset.datasets]
    if not timed:
        return dataset
    try:
        made = copy.copy(dataset)
    except Exception:  # whatever a user's __getattr__ or __reduce__ does
        return dataset
    made.__dict__.update(timed)
    return made


def cost(spans: float) -> float:
    """What all this costs a batch with so many timed calls, in seconds, as tried here and now."""
    maker = _Maker(Spans())
    nothing = maker.spans.timed("nothing", _nothing)
    began = clock()
    for _ in range(_TRIED):
        nothing()
    after_spans = clock()
    for _ in range(_TRIED):
        maker.begin()
        maker.end(None)
    return (spans * (after_spans - began) + clock() - after_spans) / _TRIED


def _nothing() -> None:
    return None
