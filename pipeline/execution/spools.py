"""Temporary files that lie in memory as long as all of them together stay below a bound, and on disk beyond it."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any


class SpoolMemory:
    """What the spools of one process may take in memory, in all; for any thread."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._taken_bytes = 0
        self._lock = threading.Lock()

    def open(self) -> Spool:
        """An empty file; beyond the bound it lies in the folder, without a name."""
        return Spool(self, self._folder)

    def take(self, num_bytes: int) -> bool:
        """Reserve memory, if there is so much left."""
        with self._lock:
            fits = self._taken_bytes + num_bytes <= self._most_bytes
            self._taken_bytes += num_bytes if fits else 0
        return fits

    def release(self, num_bytes: int) -> None:
        """Return what was reserved."""
        with self._lock:
            self._taken_bytes -= num_bytes


class Spool(tempfile.SpooledTemporaryFile[bytes]):
    """One file; written to its end, then read. For one thread at a time."""

    def __init__(self, memory: SpoolMemory, folder: Path) -> None:
        super().__init__(dir=str(folder))
        self._memory = memory
        self._reserved_bytes = 0
        self._in_memory = True

    def write(self, data: Any) -> int:
        """Append bytes; the first that do not fit into memory take all others to disk with them."""
        num_bytes = memoryview(data).nbytes
        if self._in_memory and self._memory.take(num_bytes):
            self._reserved_bytes += num_bytes
        elif self._in_memory:
            self.rollover()
            self._release()
        return super().write(data)

    def close(self) -> None:
        """Free memory and disk."""
        super().close()
        self._release()

    def _release(self) -> None:
        self._memory.release(self._reserved_bytes)
        self._reserved_bytes, self._in_memory = 0, False
