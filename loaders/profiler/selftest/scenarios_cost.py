"""Loaders with known costs: files in the page cache and in storage, batches with and without the profiler."""

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
from .scenarios import HOST_SHARE, PlayedSegment, clock, collate_times, record_segment, sleep

_BATCH_ITEMS, _ITEM_SECONDS = 20, 0.001
_PERIODS = 5  # of one measurement: from the first step to the last


class FileItems(Dataset[torch.Tensor]):
    """Items that read a file each, then take a given time; times as in `Items`."""

    def __init__(self, files: Sequence[Path], delay_seconds: float) -> None:
        self.files, self.transform = files, Sleeping(delay_seconds)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        began = clock()
        self.files[index].read_bytes()
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


class BusyItems(Dataset[torch.Tensor]):
    """Items that use a given amount of CPU time."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds
        self.transform = self.compute

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        self.transform()
        return torch.tensor(index)

    def compute(self) -> None:
        """Costs it."""
        until = time.thread_time() + self.seconds
        while time.thread_time() < until:
            pass


def play_files(
    folder: Path, *, count: int, size_bytes: int, delay_seconds: float, step_seconds: float, rounds: int
) -> list[PlayedSegment]:
    """Reads files alternately from the page cache and from storage: warm, cold, warm ... (2 x rounds,)."""
    files = [_write_synced(folder / f"{number}.bin", size_bytes) for number in range(count)]
    loop = MeasuredLoop(DataLoader(FileItems(files, delay_seconds), 1, collate_fn=collate_times))
    played = []
    for _ in range(rounds):
        for path in files:
            path.read_bytes()
        played.append(record_segment(loop, [SleepingStep(step_seconds, HOST_SHARE)] * count))
        page_cache.evict(files)
        played.append(record_segment(loop, [SleepingStep(step_seconds, HOST_SHARE)] * count))
    return played


def _write_synced(path: Path, size_bytes: int) -> Path:
    """Writes a file and syncs it: dirty pages cannot leave the page cache."""
    with path.open("wb") as file:
        file.write(bytes(size_bytes))
        file.flush()
        os.fsync(file.fileno())
    return path


def play_pairs(pairs: int) -> NDArray[np.float64]:
    """Seconds a batch without and with the profiler, alternately, (pairs, 2); a batch uses 20 ms of CPU.

    Measured from step to step, without the profiler's work before and after hundreds of steps.
    """
    plain = DataLoader(BusyItems((_PERIODS + 1) * pairs * _BATCH_ITEMS, _ITEM_SECONDS), _BATCH_ITEMS)
    loop, batches = MeasuredLoop(plain), iter(plain)
    pair_seconds = []
    for number in range(pairs):
        both = {}
        for profiled in (False, True) if number % 2 else (True, False):
            both[profiled] = _profiled_batch_seconds(loop) if profiled else _plain_batch_seconds(batches)
        pair_seconds.append((both[False], both[True]))
    return np.array(pair_seconds)


def _plain_batch_seconds(batches: Iterator[Any]) -> float:
    times = [clock() for _ in itertools.islice(batches, _PERIODS + 1)]
    return (times[-1] - times[0]) / _PERIODS


def _profiled_batch_seconds(loop: MeasuredLoop) -> float:
    times: list[float] = []
    loop.record(_PERIODS + 1, lambda _: times.append(clock()))
    return (times[-1] - times[0]) / _PERIODS
