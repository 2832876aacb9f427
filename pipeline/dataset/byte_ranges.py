"""`ByteRangeReader`: byte ranges by `pread`, from files that stay open; retries where storage fails temporarily."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from ..errors import CorruptDataError, StoppedError

RETRY_DELAYS_SECONDS = (0.1, 0.5, 2.0, 8.0, 24.0)
"""Delay before each further attempt after a transient error of storage, such as a server that restarts."""

_TRANSIENT_ERRNOS = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN)  # the last: a lease is being recalled
_NO_FILE_ERRNOS = {errno.EISDIR: "a folder", errno.ESPIPE: "a pipe", errno.ENXIO: "a socket"}
_TOO_MANY_OPEN_ERRNOS = (errno.EMFILE, errno.ENFILE)

MAX_OPEN_FILES = 1 << 16
"""Most files to keep open where the system sets no limit."""


class MissingFileError(CorruptDataError):
    """A file of the dataset that is not there, or is none: not the damage of a single image."""


class Storage:
    """The system calls of `ByteRangeReader`; tests pass a fake that fails and has its own clock."""

    def open(self, path: Path) -> int:
        """Opens a file for reading and returns its descriptor; raises `OSError`. Does not wait for a pipe's writer."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """Reads up to `size` bytes at `offset`; raises `OSError`."""
        return os.pread(descriptor, size, offset)

    def sleep(self, seconds: float) -> None:
        """Sleeps before another attempt."""
        time.sleep(seconds)

    def max_open_files(self) -> int:
        """Most files to keep open: half of the limit of the process."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else max(soft // 2, 1)


Range = tuple[str, int, int]
"""A file, its first byte that is needed, and the one after the last."""


class RangeReader(Protocol):
    """Reads byte ranges of a dataset's files, of whatever storage. Implementers are picklable.

    where: what the dataset is called in messages. remedy: of damaged and missing files, in messages.
    """

    where: str
    remedy: str

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Bytes `offset` .. `offset + size` of a file, fewer where it ends before.

        Raises `MissingFileError` where it is not there, and `StoppedError` where storage does not return it.
        """

    def read_again(self, name: str, offset: int, size: int) -> bytes | None:
        """The same from the storage itself, where there is a cache that may be damaged; else None."""

    def prefetch(self, ranges: Iterable[Range]) -> None:
        """Reads at once what the next reads need, where that is faster; raises as `read`."""

    def is_current(self) -> bool | None:
        """Whether the dataset still has the state that was opened; None where its manifest says it."""


class ByteRangeReader:
    """Reads byte ranges of files below a folder; keeps the most recently used files open.

    Picklable, without its descriptors. Not thread-safe.
    """

    def __init__(self, root: Path, storage: Storage | None = None) -> None:
        self._root, self._storage = root, storage or Storage()
        self.where, self.remedy = str(root), f"run `facefeed verify {root}`"
        self._descriptors: dict[str, int] = {}  # least recently used first

    def __reduce__(self) -> tuple[type[ByteRangeReader], tuple[Path, Storage]]:
        return type(self), (self._root, self._storage)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone before this object
        for descriptor in self._descriptors.values():
            close(descriptor)

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Reads bytes `offset` .. `offset + size` of the file `name`, fewer where it ends before.

        After a transient error it is opened and read again, after each of `RETRY_DELAYS_SECONDS`. Raises
        `MissingFileError` where it is not there or is no file, and `StoppedError` where storage does not return it.
        """
        delays_seconds = iter(RETRY_DELAYS_SECONDS)
        while True:
            try:
                return self._storage.read(self._descriptor(name), size, offset)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise MissingFileError(f"{self._root / name}: {error.strerror}; {self.remedy}") from error
            except OSError as error:
                self._close(name)  # a stale descriptor never recovers
                if kind := _NO_FILE_ERRNOS.get(error.errno or 0):
                    raise MissingFileError(f"{self._root / name}: is {kind}, must be a file; {self.remedy}") from error
                delay_seconds = next(delays_seconds, None) if error.errno in _TRANSIENT_ERRNOS else None
                if delay_seconds is None:
                    raise self._stopped(name, error) from error
                self._storage.sleep(delay_seconds)

    def read_again(self, name: str, offset: int, size: int) -> bytes | None:  # noqa: ARG002
        """None: the system's page cache is that of the file."""
        return None

    def prefetch(self, ranges: Iterable[Range]) -> None:
        """Does nothing: reads from the disk are cheap."""

    def is_current(self) -> bool | None:
        """See `RangeReader`."""
        return None

    def _stopped(self, name: str, error: OSError) -> StoppedError:
        attempts = f"{len(RETRY_DELAYS_SECONDS)} further attempts within {sum(RETRY_DELAYS_SECONDS):.0f} s"
        also_after = f", also after {attempts}" if error.errno in _TRANSIENT_ERRNOS else ""
        return StoppedError(
            f"{self._root / name}: {error.strerror} ({errno.errorcode[error.errno or 0]}){also_after}: storage does "
            "not return the file, so its images can be neither used nor called damaged; check the disk or mount of "
            f"{self._root}, then resume"
        )

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
