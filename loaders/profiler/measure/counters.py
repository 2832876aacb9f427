"""Kernel counters of the thread that loads batches: run-queue delay and bytes read from storage."""

from __future__ import annotations

import os
import threading


def current_thread() -> tuple[int, int]:
    """Process id and thread id."""
    return os.getpid(), threading.get_ident()


class ThreadCounters:
    """Counters of one thread, read from files that stay open: reopening them costs ten times more."""

    def __init__(self) -> None:
        self.owner = current_thread()
        self._files = [_open_or_none(path) for path in ("/proc/thread-self/schedstat", "/proc/self/io")]
        self._last = self._read()

    def __del__(self) -> None:
        for descriptor in self._files:
            if descriptor is not None:
                os.close(descriptor)

    def read_delta(self) -> tuple[float, int]:
        """Since the last call: seconds that the thread was runnable without a core, and bytes its process read from
        storage.
        """
        (core_wait_seconds, storage_bytes), current = self._last, self._read()
        self._last = current
        return current[0] - core_wait_seconds, current[1] - storage_bytes

    def _read(self) -> tuple[float, int]:
        schedstat, io_counters = ((b"" if file is None else os.pread(file, 512, 0)) for file in self._files)
        wait_nanoseconds = schedstat.split()[1:2]
        read_bytes = io_counters.partition(b"\nread_bytes: ")[2].split(b"\n", 1)[0]
        return int(wait_nanoseconds[0]) / 1e9 if wait_nanoseconds else 0.0, int(read_bytes or 0)


def _open_or_none(path: str) -> int | None:
    """File descriptor of a kernel file; None where the system has none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
