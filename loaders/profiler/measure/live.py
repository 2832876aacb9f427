"""Going through a loader as training does, with a look at the clock before and after everything."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....pipeline.errors import UsageError
from . import page_cache
from .recording import Recording, images_of
from .stamps import Stamp, clock, cost, stamped
from .step_clock import HostTicks, Ticks
from .variants import over, source_of

Step = Callable[[Any], Any]

_LONGEST_DRAIN_SECONDS = 5.0
_UNKNOWN_AHEAD = 64  # batches that a loader which does not say so may have waiting


def another_clock() -> float:
    """Seconds of a clock that stamps and marks do not read, and that nobody sets: what they add up to is held to it."""
    return time.clock_gettime(_RAW)


_RAW = getattr(time, "CLOCK_MONOTONIC_RAW", time.CLOCK_MONOTONIC)


class Pass:
    """A loader's batches in stretches of steps: an iteration goes on where it was left.

    opening_seconds: of the first `iter()`. first_batch_seconds: from there to the first batch.
    """

    def __init__(self, loader: Any) -> None:
        self._stamps: deque[Stamp] = deque()
        source = source_of(loader)
        self._loader = loader if source is None else over(loader, stamped(source, self._stamps.append))
        self._known = source is not None
        self._workers = source.num_workers if source is not None else 0
        self._prefetch = (source.prefetch_factor or 0) if source is not None and source.num_workers else 0
        self._ordered = bool(getattr(source, "in_order", True))
        self._batches: Iterator[Any] | None = None
        self._reopens = False
        self.opening_seconds = self.first_batch_seconds = 0.0

    @property
    def ahead(self) -> int:
        """Most batches that are under way at a time."""
        return self._workers * self._prefetch

    def drain(self) -> None:
        """Takes all batches that may be waiting, so that what follows begins with an empty queue."""
        until = clock() + _LONGEST_DRAIN_SECONDS
        for _ in range(self.ahead if self._known else _UNKNOWN_AHEAD):
            self._next()
            if self._stamps:
                self._stamps.popleft()
            if clock() > until:
                return

    def reopen(self) -> None:
        """The next batch is the first of a new iteration; until then the present one and its workers stay.

        Where these have to end, they do so while that batch is waited for, as at the end of an epoch.
        """
        self._reopens = True

    def record(
        self, steps: int, step: Step, *, ticks: Ticks | None = None, keep: list[Any] | None = None,
        more: Callable[[Recording], int] | None = None, most_seconds: float = float("inf"),
    ) -> Recording:  # fmt: skip
        """Runs `steps` steps, fewer once `most_seconds` are over.

        ticks: what marks the moments; None: the host's clock. keep: a list that the batches are put into as well. more:
        asked what is seen so far, once these steps are done, how many more it wants, until it wants none. Raises
        `UsageError` where an iteration has no batch at all.
        """
        seen = _Marks(ticks or HostTicks())
        until = clock() + most_seconds
        while True:
            while len(seen) < steps and not (len(seen) and clock() > until):
                self._step(seen, step, keep)
            recording = self._recorded(seen)
            wanted = more(recording) if more and clock() <= until else 0
            if wanted <= 0:
                return recording
            steps += wanted
            seen.paused = True

    def _step(self, seen: _Marks, step: Step, keep: list[Any] | None) -> None:
        asked, called = seen.ticks.mark(), clock()
        batch, first = self._next()
        returned, handed = clock(), seen.ticks.mark()
        seen.host += (called, returned, another_clock())
        step(batch)
        seen.marks += (asked, handed, seen.ticks.mark())
        seen.places.append(0 if first or not seen.places else seen.places[-1] + 1 + seen.paused)
        seen.paused = False
        seen.images.append(images_of(batch))
        if self._stamps:  # a prefetcher is ahead of its batches, and so are their stamps
            seen.stamps.append(self._stamps.popleft())
        if keep is not None:
            keep.append(batch)

    def _next(self) -> tuple[Any, bool]:
        """The next batch, and whether an iteration began with it."""
        began = clock()
        if self._reopens:
            self._batches, self._reopens = None, False
            self._stamps.clear()
        first = self._batches is None
        batches = self._opened() if self._batches is None else self._batches
        batch = next(batches, self)
        if batch is self:
            batch, first = next(self._opened(), self), True
            if batch is self:
                raise UsageError("the loader has no batches; give it more rows or a smaller batch_size")
        self.first_batch_seconds = self.first_batch_seconds or clock() - began - self.opening_seconds
        return batch, first

    def _recorded(self, seen: _Marks) -> Recording:
        now = page_cache.bytes_read()
        return Recording(
            **seen.series(), place=np.array(seen.places, np.int64), stamps=tuple(seen.stamps), workers=self._workers,
            prefetch=self._prefetch, ordered=self._ordered, images=np.array(seen.images, np.int64),
            computed=time.process_time() - seen.computed, stamping=_cost_of(seen.stamps, sum(seen.images)),
            stored_bytes=None if seen.stored is None or now is None else max(now - seen.stored, 0),
        )  # fmt: skip

    def close(self) -> None:
        """Lets the iteration and its workers go."""
        self._batches = self._loader = None

    def _opened(self) -> Iterator[Any]:
        began = clock()
        self._batches = iter(self._loader)
        self.opening_seconds = self.opening_seconds or clock() - began
        return self._batches


class _Marks:
    """What is noted of steps while they are done, and read once they are. See `Recording`."""

    def __init__(self, ticks: Ticks) -> None:
        self.ticks = ticks
        self.marks: list[Any] = []
        self.host: list[float] = []
        self.places: list[int] = []
        self.images: list[int] = []
        self.stamps: list[Stamp] = []
        self.paused = False  # since the last step: to look at what was seen is no part of its time
        self.stored, self.computed = page_cache.bytes_read(), time.process_time()
        ticks.begin()

    def __len__(self) -> int:
        return len(self.places)

    def series(self) -> dict[str, Any]:
        """The times of a `Recording`, by name."""
        by_device = self.ticks.seconds_of(self.marks).reshape(-1, 3).T
        by_host = np.array(self.host, np.float64).reshape(-1, 3).T
        return dict(
            zip(("asked", "handed", "done", "called", "returned", "began"), (*by_device, *by_host), strict=True)
        )


def _cost_of(stamps: list[Stamp], images: int) -> float:
    """What the stamps cost a batch, in seconds: a look at the clock for each, and at every stage of some."""
    looks = sum(len(stamp.spans) for stamp in stamps) / len(stamps) if stamps else 0.0
    return cost(looks * images / len(stamps)) if stamps else 0.0


def replay(batches: list[Any], steps: int, step: Step, ticks: Ticks | None = None) -> Recording:
    """The same step on batches that are there already, over and over: what it takes when nothing is loaded."""
    seen = _Marks(ticks or HostTicks())
    for number in range(steps):
        asked, called = seen.ticks.mark(), clock()
        batch = batches[number % len(batches)]
        returned, handed = clock(), seen.ticks.mark()
        seen.host += (called, returned, another_clock())
        step(batch)
        seen.marks += (asked, handed, seen.ticks.mark())
    return Recording(
        **seen.series(), place=np.arange(steps), stamps=(), workers=0, prefetch=0,
        images=np.full(steps, images_of(batches[0])), computed=time.process_time() - seen.computed, stored_bytes=0,
    )  # fmt: skip
