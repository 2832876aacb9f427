"""What loading costs where that is known: files in memory and on storage, batches with the profiler and without."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from ..measure import page_cache
from ..measure.measured_loop import MeasuredLoop
from ..measure.steps import SleepingStep
from .scenarios import HOST_SHARE, Seen, clock, seen_of, sleep, timed

_BATCH_ITEMS, _ITEM_SECONDS = 20, 0.001
_PERIODS = 5  # of one measurement: from the first step to the last


class Files(Dataset[torch.Tensor]):
    """Items that read a file each, then take a given time; times as `Items`."""

    def __init__(self, files: Sequence[Path], delay: float) -> None:
        self.files, self.transform = files, Sleeping(delay)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, wanted: int) -> torch.Tensor:
        began = clock()
        self.files[wanted].read_bytes()
        read = clock()
        self.transform(None)
        return torch.tensor([began, read], dtype=torch.float64)


@dataclass(frozen=True)
class Sleeping:
    """A transform that takes a given time and no core."""

    seconds: float

    def __call__(self, _item: Any) -> None:
        """Takes it."""
        sleep(self.seconds)


class Busy(Dataset[torch.Tensor]):
    """Items that cost a given time of a core, wherever else that core is wanted meanwhile."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds
        self.transform = self.compute

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, wanted: int) -> torch.Tensor:
        self.transform()
        return torch.tensor(wanted)

    def compute(self) -> None:
        """Costs it."""
        until = time.thread_time() + self.seconds
        while time.thread_time() < until:
            pass


def play_files(folder: Path, *, count: int, size_bytes: int, delay: float, step: float, rounds: int) -> list[Seen]:
    """Reads files that are in the page cache and files that are not, in turns: warm, cold, warm ... (2 x rounds,)."""
    files = [_written(folder / f"{number}.bin", size_bytes) for number in range(count)]
    passing = MeasuredLoop(DataLoader(Files(files, delay), 1, collate_fn=timed))
    seen = []
    for _ in range(rounds):
        for path in files:
            path.read_bytes()
        seen.append(seen_of(passing, [SleepingStep(step, HOST_SHARE)] * count))
        page_cache.evict(files)
        seen.append(seen_of(passing, [SleepingStep(step, HOST_SHARE)] * count))
    return seen


def _written(path: Path, size_bytes: int) -> Path:
    """On storage at once: what is not written yet cannot leave the page cache."""
    with path.open("wb") as file:
        file.write(bytes(size_bytes))
        file.flush()
        os.fsync(file.fileno())
    return path


def play_pairs(pairs: int) -> NDArray[np.float64]:
    """Seconds a batch without the profiler and with it, by turns, (pairs, 2); a batch costs 20 ms of a core.

    From step to step: what the profiler does once before and after hundreds of steps is no part of it.
    """
    plain = DataLoader(Busy((_PERIODS + 1) * pairs * _BATCH_ITEMS, _ITEM_SECONDS), _BATCH_ITEMS)
    passing, batches = MeasuredLoop(plain), iter(plain)
    found = []
    for number in range(pairs):
        both = {}
        for profiled in (False, True) if number % 2 else (True, False):
            both[profiled] = _with(passing) if profiled else _without(batches)
        found.append((both[False], both[True]))
    return np.array(found)


def _without(batches: Iterator[Any]) -> float:
    times = [clock() for _ in itertools.islice(batches, _PERIODS + 1)]
    return (times[-1] - times[0]) / _PERIODS


def _with(passing: MeasuredLoop) -> float:
    times: list[float] = []
    passing.record(_PERIODS + 1, lambda _: times.append(clock()))
    return (times[-1] - times[0]) / _PERIODS
