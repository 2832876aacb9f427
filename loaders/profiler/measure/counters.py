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
        self._storage_bytes = self._storage_bytes_so_far()

    def __del__(self) -> None:
        for descriptor in self._files:
            if descriptor is not None:
                os.close(descriptor)

    def core_wait_seconds(self) -> float:
        """Seconds that the thread was runnable without a core, so far."""
        wait_nanoseconds = self._read(0).split()[1:2]
        return int(wait_nanoseconds[0]) / 1e9 if wait_nanoseconds else 0.0

    def new_storage_bytes(self) -> int:
        """Bytes that the process read from storage since the last call."""
        storage_bytes_before, self._storage_bytes = self._storage_bytes, self._storage_bytes_so_far()
        return self._storage_bytes - storage_bytes_before

    def _storage_bytes_so_far(self) -> int:
        return int(self._read(1).partition(b"\nread_bytes: ")[2].split(b"\n", 1)[0] or 0)

    def _read(self, index: int) -> bytes:
        descriptor = self._files[index]
        return b"" if descriptor is None else os.pread(descriptor, 512, 0)


def _open_or_none(path: str) -> int | None:
    """File descriptor of a kernel file; None where the system has none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
