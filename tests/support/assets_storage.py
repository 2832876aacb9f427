"""Storage that fails in a chosen way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from facefeed.pipeline.dataset.byte_ranges import Storage


class FailingStorage(Storage):
    """Counts opened files; the first reads fail with these errors; time passes only on its own clock."""

    def __init__(self, *failures: int, room: int = 1000, descriptors: int = 1000) -> None:
        self.failures, self.room, self.descriptors = list(failures), room, descriptors
        self.opened: list[str] = []
        self.waited: list[float] = []

    def open(self, path: Path) -> int:
        if self.descriptors == 0:
            self.descriptors = 1000
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.descriptors -= 1
        self.opened.append(path.name)
        return super().open(path)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        if self.failures:
            error_code = self.failures.pop(0)
            raise OSError(error_code, os.strerror(error_code))
        return super().read(descriptor, size, offset)

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    def max_open_files(self) -> int:
        return self.room
