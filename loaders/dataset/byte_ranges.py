"""Byte ranges of a dataset's files: one `pread` an image, files that stay open, and storage that fails for a while."""

from __future__ import annotations

import errno
import os
import resource
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from ...pipeline.errors import CorruptDataError

PAUSES_SECONDS = (0.1, 0.5, 2.0, 8.0, 24.0)
"""Before each further attempt where storage fails in a way that may pass, such as a server that restarts."""

_MAY_PASS = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
_NO_DESCRIPTOR_LEFT = (errno.EMFILE, errno.ENFILE)
_MOST_OPEN_IN_WORKERS = 1 << 16


class UnreadableFileError(CorruptDataError):
    """A file that is gone, or that storage does not hand over: no damage of one image that could be replaced."""


class Storage:
    """What `ByteRanges` asks of the system; tests give one that fails, with a clock of its own."""

    def open(self, path: Path) -> int:
        """A descriptor to read from; raises `OSError`."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset` on; raises `OSError`."""
        return os.pread(descriptor, size, offset)

    def wait(self, seconds: float) -> None:
        """Lets that time pass."""
        time.sleep(seconds)

    def most_open(self) -> int:
        """How many files may stay open: half of what the process may open at all."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _MOST_OPEN_IN_WORKERS if soft == resource.RLIM_INFINITY else max(soft // 2, 1)


class ByteRanges:
    """Reads byte ranges of files below a folder; keeps the last used ones open, pickles no descriptor.

    For one thread at a time.
    """

    def __init__(self, root: Path, storage: Storage | None = None) -> None:
        self._root, self._storage = root, storage or Storage()
        self._descriptors: dict[str, int] = {}  # in the order of their last use

    def __reduce__(self) -> tuple[type[ByteRanges], tuple[Path, Storage]]:
        return type(self), (self._root, self._storage)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone before this object
        for descriptor in self._descriptors.values():
            close(descriptor)

    def read(self, name: str, offset: int, size: int, crc32: int | None) -> bytes:
        """Bytes `offset` .. `offset + size` of the file `name`; waits and tries again where storage fails.

        `crc32`: what they must have; None for a mask, whose PNG has checksums of its own. Raises `CorruptDataError`
        on a wrong one, and its child `UnreadableFileError` where the file cannot be read, also after `PAUSES_SECONDS`.
        """
        data = self._bytes(name, offset, size)
        if len(data) != size or (crc32 is not None and zlib.crc32(data) != crc32):
            raise CorruptDataError(
                f"{self._root / name}: the image at byte {offset} is not the one that was written; "
                f"run `facefeed verify {self._root}`"
            )
        return data

    def _bytes(self, name: str, offset: int, size: int) -> bytes:
        for pause_seconds in (*PAUSES_SECONDS, None):
            try:
                return self._storage.read(self._descriptor(name), size, offset)
            except OSError as error:
                if error.errno not in _MAY_PASS:
                    raise UnreadableFileError(
                        f"{self._root / name}: {error.strerror}; run `facefeed verify {self._root}`"
                    ) from error
                self._close(name)  # a stale one never recovers
                last = error
            if pause_seconds is not None:
                self._storage.wait(pause_seconds)
        raise UnreadableFileError(
            f"{self._root / name}: {last.strerror} ({errno.errorcode[last.errno or 0]}), also after "
            f"{len(PAUSES_SECONDS)} further attempts within {sum(PAUSES_SECONDS):.0f} s: storage does not return the "
            f"file, so its images can be neither used nor called damaged; see to the disk or mount of {self._root}, "
            "then resume from the last saved state"
        ) from last

    def _descriptor(self, name: str) -> int:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is None:
            while len(self._descriptors) >= self._storage.most_open():
                self._close(next(iter(self._descriptors)))
            descriptor = self._opened(name)
        self._descriptors[name] = descriptor
        return descriptor

    def _opened(self, name: str) -> int:
        """Opens a file; where the process has no descriptor left, closes those that were not used for longest."""
        while True:
            try:
                return self._storage.open(self._root / name)
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR_LEFT or not self._descriptors:
                    raise
                for oldest in list(self._descriptors)[: (len(self._descriptors) + 1) // 2]:
                    self._close(oldest)

    def _close(self, name: str) -> None:
        if (descriptor := self._descriptors.pop(name, None)) is not None:
            os.close(descriptor)


def allow_many_files() -> None:
    """Raises this process's own limit of open files as far as the system lets it; for workers, which are ours."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_IN_WORKERS if hard == resource.RLIM_INFINITY else min(hard, _MOST_OPEN_IN_WORKERS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
