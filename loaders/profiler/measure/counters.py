"""What the system counts of the thread that makes batches: waiting for a core, and what came from storage."""

from __future__ import annotations

import os
import threading


def here() -> tuple[int, int]:
    """Which thread of which process this is."""
    return os.getpid(), threading.get_ident()


class Counters:
    """What the system counts of one thread, from files that stay open: opening them anew would cost ten times more."""

    def __init__(self) -> None:
        self.owner = here()
        self._files = [_opened(path) for path in ("/proc/thread-self/schedstat", "/proc/self/io")]
        self._last = self._read()

    def __del__(self) -> None:
        for descriptor in self._files:
            if descriptor is not None:
                os.close(descriptor)

    def since(self) -> tuple[float, int]:
        """Since the last call: seconds in which the thread wanted a core, and bytes that storage gave its process."""
        (queued, stored), now = self._last, self._read()
        self._last = now
        return now[0] - queued, now[1] - stored

    def _read(self) -> tuple[float, int]:
        scheduled, stored = ((b"" if file is None else os.pread(file, 512, 0)) for file in self._files)
        waited = scheduled.split()[1:2]
        read = stored.partition(b"\nread_bytes: ")[2].split(b"\n", 1)[0]
        return int(waited[0]) / 1e9 if waited else 0.0, int(read or 0)


def _opened(path: str) -> int | None:
    """A file of the system's; None where it has none."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
