"""Going through a loader as training does, with a look at the clock before and after everything."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...pipeline.errors import UsageError
from . import storage
from .recording import Recording, images_of
from .stamps import Stamp, clock, cost, stamped
from .ticks import HostTicks, Ticks
from .variants import over, source_of

Step = Callable[[Any], Any]


class Pass:
    """A loader's batches in stretches of steps: an iteration goes on where it was left.

    ticks: what marks the moments; None: the host's clock. opening_seconds: of the first `iter()`. first_batch_seconds:
    from there to the first batch.
    """

    def __init__(self, loader: Any, ticks: Ticks | None = None) -> None:
        self._stamps: deque[Stamp] = deque()
        source = source_of(loader)
        self._loader = loader if source is None else over(loader, stamped(source, self._stamps.append))
        self._workers = source.num_workers if source is not None else 0
        self._prefetch = (source.prefetch_factor or 0) if source is not None and source.num_workers else 0
        self._ordered = bool(getattr(source, "in_order", True))
        self._ticks: Ticks = ticks or HostTicks()
        self._batches: Iterator[Any] | None = None
        self.opening_seconds = self.first_batch_seconds = 0.0

    @property
    def ahead(self) -> int:
        """Most batches that are under way at a time."""
        return self._workers * self._prefetch

    def record(
        self, steps: int, step: Step, *, keep: list[Any] | None = None, most_seconds: float = float("inf")
    ) -> Recording:
        """Runs `steps` steps, fewer once `most_seconds` are over. keep: a list that the batches are put into as well.

        Raises `UsageError` where an iteration has no batch at all.
        """
        ticks, marks, places, stamps = self._ticks, list[Any](), list[int](), list[Stamp]()
        images, position = list[int](), 0
        read, computed = storage.bytes_read(), time.process_time()
        ticks.begin()
        until = clock() + most_seconds
        while len(places) < steps and not (places and clock() > until):
            began = clock()
            batches = self._opened() if self._batches is None else self._batches
            marks.append(ticks.mark())
            batch = next(batches, self)
            if batch is self:
                batches, position = self._opened(), 0
                marks[-1] = ticks.mark()
                batch = next(batches, self)
                if batch is self:
                    raise UsageError("the loader has no batches; give it more rows or a smaller batch_size")
            marks.append(ticks.mark())
            self.first_batch_seconds = self.first_batch_seconds or clock() - began - self.opening_seconds
            step(batch)
            marks.append(ticks.mark())
            places.append(position)
            position += 1
            images.append(images_of(batch))
            if self._stamps:  # a prefetcher is ahead of its batches, and so are their stamps
                stamps.append(self._stamps.popleft())
            if keep is not None:
                keep.append(batch)
        asked, handed, done = ticks.seconds(marks).reshape(-1, 3).T
        now = storage.bytes_read()
        return Recording(
            asked=asked, handed=handed, done=done, place=np.array(places, np.int64), stamps=tuple(stamps),
            workers=self._workers, prefetch=self._prefetch, ordered=self._ordered, images=np.array(images, np.int64),
            computed=time.process_time() - computed, stamping=_cost_of(stamps, sum(images)),
            stored_bytes=None if read is None or now is None else max(now - read, 0),
        )  # fmt: skip

    def close(self) -> None:
        """Lets the iteration and its workers go."""
        self._batches = self._loader = None

    def _opened(self) -> Iterator[Any]:
        began = clock()
        self._batches = iter(self._loader)
        self.opening_seconds = self.opening_seconds or clock() - began
        return self._batches


def _cost_of(stamps: list[Stamp], images: int) -> float:
    """What the stamps cost a batch, in seconds: a look at the clock for each, and at every stage of some."""
    looks = sum(len(stamp.spans) for stamp in stamps) / len(stamps) if stamps else 0.0
    return cost(looks * images / len(stamps)) if stamps else 0.0


def replay(batches: list[Any], steps: int, step: Step, ticks: Ticks | None = None) -> Recording:
    """The same step on batches that are there already, over and over: what it takes when nothing is loaded."""
    ticks, marks = ticks or HostTicks(), list[Any]()
    ticks.begin()
    computed = time.process_time()
    for number in range(steps):
        marks.append(ticks.mark())
        batch = batches[number % len(batches)]
        marks.append(ticks.mark())
        step(batch)
        marks.append(ticks.mark())
    asked, handed, done = ticks.seconds(marks).reshape(-1, 3).T
    return Recording(
        asked=asked, handed=handed, done=done, place=np.arange(steps), stamps=(), workers=0, prefetch=0,
        images=np.full(steps, images_of(batches[0])), computed=time.process_time() - computed, stored_bytes=0,
    )  # fmt: skip
