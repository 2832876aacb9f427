"""`CacheSpace`: the folder of a cache and its size limit, which all processes of a machine respect together."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...files import write_at

_log = logging.getLogger("facefeed.stores")

LAYOUT = "facefeed-store-cache-1"
"""Subfolder of the cache folder; nothing else in there is touched. The number changes with the layout."""

PART = ".part"
"""Suffix of a block that is being written; its writer holds a lock on it."""

IN_USE = "in-use"
"""File of a state that its readers hold a shared lock on."""

EVICTED = ".evicted-"
"""Prefix of a state that is being removed."""

LOCK_TIMEOUT_SECONDS = 120.0
_POLL_SECONDS = 0.01
_EVICTION_MARGIN_SHARE = 0.05  # of the limit, evicted beyond what is needed, so that not every block scans the cache
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}


def try_lock(descriptor: int, seconds: float, *, shared: bool = False) -> bool:
    """Locks an open file within `seconds`; returns whether that succeeded. Raises `OSError` without lock support."""
    deadline = time.monotonic() + seconds
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the open file, which may have been removed or replaced."""
    try:
        there = path.stat()
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)


class RevisionLock:
    """Shared lock on the folder of a state, which is not evicted while this object exists. Picklable."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._descriptor = folder, -1
        path = folder / IN_USE
        with suppress(FileNotFoundError, NotADirectoryError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            locked = try_lock(self._descriptor, LOCK_TIMEOUT_SECONDS, shared=True)
            self.exists = locked and is_same_file(self._descriptor, path)
            with suppress(OSError):  # a cache of another user, which can be read
                os.utime(self._descriptor)

    exists = False
    """Whether the state exists and is locked."""

    def __reduce__(self) -> tuple[type[RevisionLock], tuple[Path]]:
        return type(self), (self.folder,)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # `os` may be gone before this object
        if self._descriptor >= 0:
            close(self._descriptor)


class CacheSpace:
    """Keeps the files of a cache within `limit_bytes` by evicting the least recently used first. Picklable.

    Tests override `write` to simulate a full disk.
    """

    def __init__(self, cache: Path, limit_bytes: int) -> None:
        self.root, self.limit_bytes = cache / LAYOUT, limit_bytes
        self._has_counted = self._has_warned = False
        self.is_writable = True
        """Whether the disk took the last block that was written."""

    def __reduce__(self) -> tuple[type[CacheSpace], tuple[Path, int]]:
        return type(self), (self.root.parent, self.limit_bytes)

    def write(self, descriptor: int, data: bytes) -> None:
        """Writes to a file from its beginning; raises `OSError`."""
        os.ftruncate(descriptor, 0)
        write_at(descriptor, data, 0)

    def reserve(self, size: int) -> bool:
        """Makes room for a file and adds it to the bytes in use; False where the cache has no room for it.

        The bytes in use are recorded in a file, which is wrong after a process was killed or files were removed by
        hand; the first reservation of each process and each eviction recount them.
        """
        if size > self.limit_bytes:
            return False
        with self._usage() as descriptor:
            if descriptor is None:
                return False
            recorded = os.pread(descriptor, 20, 0)
            used = int(recorded) if recorded.isdigit() else None
            if used is None or not self._has_counted or used + size > self.limit_bytes:
                used = self._evict(self.limit_bytes - size)
                self._has_counted = True
            has_room = used + size <= self.limit_bytes
            self.write(descriptor, str(used + size if has_room else used).encode())
        return has_room

    def warn(self, error: OSError) -> None:
        """Logs once that the cache does not work, unless its files were only removed."""
        self.is_writable = error.errno in _GONE
        if not self._has_warned and not self.is_writable:
            self._has_warned = True
            _log.warning(
                "%s: %s; what is read from the store is not kept, so reading is slower; make room, or take another "
                "cache=", self.root, error.strerror or error,
            )  # fmt: skip

    def used_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size, _ in self._files()) + sum(size for _, size, _ in self._states())

    @contextmanager
    def _usage(self) -> Iterator[int | None]:
        """Locks the record of the bytes in use; None where another process holds the lock for too long."""
        self.root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "usage", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            yield descriptor if try_lock(descriptor, LOCK_TIMEOUT_SECONDS) else None
        finally:
            os.close(descriptor)

    def _evict(self, max_bytes: int) -> int:
        """Removes files of killed processes, then the least recently used, until at most `max_bytes` are in use.

        Returns the bytes in use.
        """
        for left in self.root.glob(f"*/states/{EVICTED}*"):
            shutil.rmtree(left, ignore_errors=True)
        files, states = [*self._files()], [*self._states()]
        used = sum(size for _, size, _ in files) + sum(size for _, size, _ in states)
        parts: list[tuple[int, int, Path]] = []
        blocks: list[tuple[int, int, Path]] = []
        for entry in files:
            (parts if entry[2].suffix == PART else blocks).append(entry)
        used -= sum(size for _, size, path in parts if _remove_abandoned(path))
        if used <= max_bytes:
            return used
        wanted = max(max_bytes - int(self.limit_bytes * _EVICTION_MARGIN_SHARE), 0)
        for _, size, path in sorted(blocks + states):
            if used <= wanted:
                break
            used -= size if _remove(path) else 0
        return used

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yields time of last use (ns), bytes and path of each block."""
        for folder in self.root.glob("*/blocks/*/*"):
            with suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(OSError):  # another process has removed it
                        status = entry.stat()
                        yield status.st_mtime_ns, status.st_size, Path(entry.path)

    def _states(self) -> Iterator[tuple[int, int, Path]]:
        """Yields time of last use (ns), bytes and folder of each state of a dataset."""
        for folder in self.root.glob("*/states/[!.]*"):
            with suppress(OSError):
                sizes = sum(path.stat().st_size for path in folder.iterdir())
                yield (folder / IN_USE).stat().st_mtime_ns, sizes, folder


def _remove(path: Path) -> bool:
    """Removes a block, or a state that no process has locked; returns whether it was removed."""
    try:
        if not path.is_dir():
            path.unlink()
            with suppress(OSError):  # it has other blocks
                path.parent.rmdir()
            return True
        descriptor = os.open(path / IN_USE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not try_lock(descriptor, 0):
                return False
            evicted = path.with_name(f"{EVICTED}{path.name}")
            path.rename(evicted)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    shutil.rmtree(evicted, ignore_errors=True)
    return True


def _remove_abandoned(part: Path) -> bool:
    """Removes a `.part` file unless a process is writing it; returns whether it was removed."""
    try:
        descriptor = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not try_lock(descriptor, 0):
                return False
            part.unlink()
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True
