"""Going through a loader as training does, with a look at the clock before and after everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from ...pipeline.errors import UsageError
from .recording import Recording, images_of, settings_of
from .stamps import Stamp, clock, stamped


class Pass:
    """A loader's batches in stretches of steps: an iteration goes on where it was left.

    opening_seconds: of the first `iter()`. first_batch_seconds: from there to the first batch. epochs: iterations.
    """

    def __init__(self, loader: Any) -> None:
        self._stamps: list[Stamp] = []
        self._loader = stamped(loader, self._stamps.append) if isinstance(loader, DataLoader) else loader
        self._workers, self._prefetch = settings_of(loader)
        self._batches: Iterator[Any] | None = None
        self.opening_seconds = self.first_batch_seconds = 0.0
        self.epochs = 0

    @property
    def ahead(self) -> int:
        """Most batches that are under way at a time."""
        return self._workers * self._prefetch

    def record(self, steps: int, step: Callable[[Any], Any], *, keep: list[Any] | None = None) -> Recording:
        """Runs `steps` steps. keep: a list that the batches are put into as well.

        Raises `UsageError` where an iteration has no batch at all.
        """
        self._stamps.clear()
        asked, handed, done = (np.zeros(steps) for _ in range(3))
        place = np.zeros(steps, np.int64)
        images = position = 0
        for number in range(steps):
            batches = self._opened() if self._batches is None else self._batches
            asked[number] = clock()
            batch = next(batches, self)
            if batch is self:
                batches, position = self._opened(), 0
                asked[number] = clock()
                batch = next(batches, self)
                if batch is self:
                    raise UsageError("the loader has no batches; give it more rows or a smaller batch_size")
            handed[number] = clock()
            self.first_batch_seconds = self.first_batch_seconds or handed[number] - asked[number]
            step(batch)
            done[number] = clock()
            place[number] = position
            position += 1
            images += images_of(batch)
            if keep is not None:
                keep.append(batch)
        return Recording(
            asked=asked, handed=handed, done=done, place=place, stamps=tuple(self._stamps), workers=self._workers,
            prefetch=self._prefetch, images=images,
        )  # fmt: skip

    def _opened(self) -> Iterator[Any]:
        began = clock()
        self._batches = iter(self._loader)
        self.opening_seconds = self.opening_seconds or clock() - began
        self.epochs += 1
        return self._batches


def replay(batches: list[Any], steps: int, step: Callable[[Any], Any]) -> Recording:
    """The same step on batches that are there already, over and over: what it takes when nothing is loaded."""
    asked, handed, done = (np.zeros(steps) for _ in range(3))
    for number in range(steps):
        asked[number] = clock()
        batch = batches[number % len(batches)]
        handed[number] = clock()
        step(batch)
        done[number] = clock()
    return Recording(
        asked=asked, handed=handed, done=done, place=np.arange(steps), stamps=(), workers=0, prefetch=0,
        images=steps * images_of(batches[0]),
    )  # fmt: skip
