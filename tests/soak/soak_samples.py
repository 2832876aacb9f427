"""What the long-lived processes of a soak hold, sampled by themselves at a quiet moment, and whether it stays flat."""

from __future__ import annotations

import gc
import json
import re
import statistics
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

MEMORY = "anonymous_mb"
COUNTS = ("descriptors", "threads", "children", "shared")
MOST_GROWTH_MB = 12.0
MOST_GROWTH = 0.05
"""A process may grow by the larger of the two from the first third of its samples to the last."""
MIN_SAMPLES = 9
"""Fewer say nothing: the first quarter is warm-up, and a third of the rest is to have two at least."""


class Sampler:
    """Appends a sample of this process to a file, at most one in `seconds`."""

    def __init__(self, path: Path, role: str, seconds: float) -> None:
        self._path, self._role, self._seconds = path, role, seconds
        self._last = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Never, where `seconds` are infinite."""
        return time.monotonic() - self._last >= self._seconds

    def take(self) -> None:
        """Called where the process has released all that it does not keep."""
        if not self.is_due:
            return
        self._last = time.monotonic()
        gc.collect()
        process = psutil.Process()
        sample = {
            "role": self._role, "pid": process.pid, "time": time.time(),
            **_memory_mb(), "descriptors": process.num_fds(),
            "threads": threading.active_count(), "children": len(process.children(recursive=True)),
            "shared": sum("/dev/shm/" in line for line in Path("/proc/self/maps").read_text().splitlines()),
        }  # fmt: skip
        with self._path.open("a") as file:  # one write of less than a page: processes do not mix their lines
            file.write(json.dumps(sample) + "\n")


def _memory_mb() -> dict[str, float]:
    """`pss_mb`, which other processes that map the same libraries change too; and the part of it that no file backs."""
    kilobytes = {name: int(size) for name, size in re.findall(r"^(Pss\w*): +(\d+) kB", _smaps(), re.MULTILINE)}
    return {"pss_mb": kilobytes["Pss"] / 1000, "anonymous_mb": kilobytes["Pss_Anon"] / 1000}


def _smaps() -> str:
    return Path("/proc/self/smaps_rollup").read_text()


def read_samples(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def by_process(samples: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The samples of each process in order of time, by its role and number."""
    series: dict[str, list[Mapping[str, Any]]] = {}
    for sample in samples:
        series.setdefault(f"{sample['role']} {sample['pid']}", []).append(sample)
    return series


def growth(series: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """First and last third after the warm-up: medians of memory, largest counts; None for too short a series."""
    if len(series) < MIN_SAMPLES:
        return None
    warm = series[len(series) // 4 :]
    third = len(warm) // 3
    first, last = warm[:third], warm[-third:]
    slope = statistics.linear_regression(
        [sample["time"] / 3600 for sample in warm], [sample[MEMORY] for sample in warm]
    ).slope
    memory = [statistics.median(sample[MEMORY] for sample in part) for part in (first, last)]
    counts = {name: [max(sample[name] for sample in part) for part in (first, last)] for name in COUNTS}
    allowed = max(MOST_GROWTH_MB, MOST_GROWTH * memory[0])
    is_flat = memory[1] - memory[0] <= allowed and all(late <= early for early, late in counts.values())
    return {
        "samples": len(series), MEMORY: [round(value, 1) for value in memory], "mb_an_hour": round(slope, 1),
        **counts, "is_flat": is_flat,
    }  # fmt: skip
