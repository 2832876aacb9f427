"""`ByteRangeReader`: one `pread` an image from files that stay open, with retries where storage fails temporarily."""

from __future__ import annotations

import errno
import os
import resource
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from ...pipeline.errors import CorruptDataError

RETRY_DELAYS_SECONDS = (0.1, 0.5, 2.0, 8.0, 24.0)
"""Delay before each further attempt after a transient error of storage, such as a server that restarts."""

_TRANSIENT_ERRNOS = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
_TOO_MANY_OPEN_ERRNOS = (errno.EMFILE, errno.ENFILE)
_MAX_OPEN_FILES_IN_WORKERS = 1 << 16


class UnreadableFileError(CorruptDataError):
    """A file that is missing or cannot be read: not the damage of a single image, so nothing is replaced."""


class Storage:
    """The system calls of `ByteRangeReader`; tests pass a fake that fails and has its own clock."""

    def open(self, path: Path) -> int:
        """Opens a file for reading and returns its descriptor; raises `OSError`."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Reads up to `size` bytes at `offset`; raises `OSError`."""
        return os.pread(descriptor, size, offset)

    def sleep(self, seconds: float) -> None:
        """Sleeps before another attempt."""
        time.sleep(seconds)

    def max_open_files(self) -> int:
        """Most files to keep open: half of the limit of the process."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _MAX_OPEN_FILES_IN_WORKERS if soft == resource.RLIM_INFINITY else max(soft // 2, 1)


class ByteRangeReader:
    """Reads byte ranges of files below a folder; keeps the most recently used files open.

    Picklable, without its descriptors. Not thread-safe.
    """

    def __init__(self, root: Path, storage: Storage | None = None) -> None:
        self._root, self._storage = root, storage or Storage()
        self._descriptors: dict[str, int] = {}  # least recently used first

    def __reduce__(self) -> tuple[type[ByteRangeReader], tuple[Path, Storage]]:
        return type(self), (self._root, self._storage)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone before this object
        for descriptor in self._descriptors.values():
            close(descriptor)

    def read(self, name: str, offset: int, size: int, crc32: int | None) -> bytes:
        """Reads bytes `offset` .. `offset + size` of the file `name`, with retries after transient errors.

        `crc32`: the expected checksum; None for a mask, whose PNG has its own. Raises `CorruptDataError` on another
        one, and its subclass `UnreadableFileError` where the file cannot be read, also after `RETRY_DELAYS_SECONDS`.
        """
        data = self._read_with_retries(name, offset, size)
        if len(data) != size or (crc32 is not None and zlib.crc32(data) != crc32):
            raise CorruptDataError(
                f"{self._root / name}: the image at byte {offset} is not the one that was written; "
                f"run `facefeed verify {self._root}`"
            )
        return data

    def _read_with_retries(self, name: str, offset: int, size: int) -> bytes:
        for delay_seconds in (*RETRY_DELAYS_SECONDS, None):
            try:
                return self._storage.read(self._descriptor(name), size, offset)
            except OSError as error:
                if error.errno not in _TRANSIENT_ERRNOS:
                    raise UnreadableFileError(
                        f"{self._root / name}: {error.strerror}; run `facefeed verify {self._root}`"
                    ) from error
                self._close(name)  # a stale descriptor never recovers
                last = error
            if delay_seconds is not None:
                self._storage.sleep(delay_seconds)
        raise UnreadableFileError(
            f"{self._root / name}: {last.strerror} ({errno.errorcode[last.errno or 0]}), also after "
            f"{len(RETRY_DELAYS_SECONDS)} further attempts within {sum(RETRY_DELAYS_SECONDS):.0f} s: storage does not "
            "return the file, so its images can be neither used nor called damaged; see to the disk or mount of "
            f"{self._root}, then resume from the last saved state"
        ) from last

    def _descriptor(self, name: str) -> int:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is None:
            while len(self._descriptors) >= self._storage.max_open_files():
                self._close(next(iter(self._descriptors)))
            descriptor = self._open(name)
        self._descriptors[name] = descriptor
        return descriptor

    def _open(self, name: str) -> int:
        """Opens a file; where the process has no descriptor left, closes the least recently used half."""
        while True:
            try:
                return self._storage.open(self._root / name)
            except OSError as error:
                if error.errno not in _TOO_MANY_OPEN_ERRNOS or not self._descriptors:
                    raise
                for oldest in list(self._descriptors)[: (len(self._descriptors) + 1) // 2]:
                    self._close(oldest)

    def _close(self, name: str) -> None:
        if (descriptor := self._descriptors.pop(name, None)) is not None:
            os.close(descriptor)


def raise_open_file_limit() -> None:
    """Raises the limit of open files of this process as far as the system permits; for worker processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_OPEN_FILES_IN_WORKERS if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES_IN_WORKERS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
