"""Temporary files that stay in memory up to a common limit, and go to disk beyond it."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

SPOOL_BYTES = 32 << 20
"""Memory for the rows of all finished inputs of a process that wait to be written; beyond it they go to disk."""


class SpoolMemory:
    """The memory limit that all spools of one process share; thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reserved_bytes = 0
        self._lock = threading.Lock()

    def open(self) -> Spool:
        """Opens an empty spool; beyond the limit it is an unnamed file in the folder."""
        return Spool(self, self._folder)

    def reserve(self, num_bytes: int) -> bool:
        """Reserves memory; returns False, and reserves nothing, where the limit would be exceeded."""
        with self._lock:
            fits = self._reserved_bytes + num_bytes <= SPOOL_BYTES
            self._reserved_bytes += num_bytes if fits else 0
        return fits

    def release(self, num_bytes: int) -> None:
        """Returns reserved memory."""
        with self._lock:
            self._reserved_bytes -= num_bytes


class Spool(tempfile.SpooledTemporaryFile[bytes]):
    """One temporary file, written to its end and then read. Not thread-safe."""

    def __init__(self, memory: SpoolMemory, folder: Path) -> None:
        super().__init__(dir=str(folder))
        self._memory = memory
        self._reserved_bytes = 0
        self._in_memory = True

    def write(self, data: Any) -> int:
        """Appends bytes; once some do not fit into memory, the whole file moves to disk."""
        num_bytes = memoryview(data).nbytes
        if self._in_memory and self._memory.reserve(num_bytes):
            self._reserved_bytes += num_bytes
        elif self._in_memory:
            self.rollover()
            self._release()
        return super().write(data)

    def close(self) -> None:
        """Frees memory and disk."""
        super().close()
        self._release()

    def _release(self) -> None:
        self._memory.release(self._reserved_bytes)
        self._reserved_bytes, self._in_memory = 0, False
