"""`BlockCache`: blocks of a dataset's files as files of the local disk, each fetched by one process of a machine."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .cache_space import LOCK_TIMEOUT_SECONDS, PART, CacheSpace, is_same_file, try_lock
from .remote_files import RemoteFiles

BLOCK_BYTES: Final = 4 << 20
"""Size of a block, and of a request. The last one of a file is shorter."""

_ATTEMPTS = 5  # other processes may remove a block's folder, or complete the block, between two steps


@dataclass(frozen=True)
class Block:
    """A block that is open for reading: in a file of the cache, or in memory where the cache has no room for it."""

    descriptor: int | None = None
    data: bytes = b""

    def read(self, start: int, end: int) -> bytes:
        """Its bytes `start` .. `end`; raises `OSError` where the local disk fails."""
        if self.descriptor is None:
            return self.data[start:end]
        return os.pread(self.descriptor, end - start, start)

    def close(self) -> None:
        """Closes its file."""
        if self.descriptor is not None:
            os.close(self.descriptor)


class BlockCache:
    """The blocks of one state of a dataset. Picklable. Thread-safe.

    A block is written to a `.part` file, by the process that holds the lock on it, and then renamed: readers never see
    an incomplete block, and the `.part` file of a killed process is overwritten or removed.
    """

    def __init__(self, files: RemoteFiles, space: CacheSpace, folder: Path, *, block_bytes: int) -> None:
        self.files, self.space, self._folder, self.block_bytes = files, space, folder, block_bytes

    def with_files(self, files: RemoteFiles) -> BlockCache:
        """Returns a cache of the same blocks that fetches missing ones with `files`."""
        return BlockCache(files, self.space, self._folder, block_bytes=self.block_bytes)

    def path(self, name: str, number: int) -> Path:
        """Path of a block, which may not exist."""
        return self._folder / hashlib.sha256(name.encode()).hexdigest()[:24] / str(number)

    def has(self, name: str, number: int) -> bool:
        """Whether a block is in the cache."""
        return self.path(name, number).exists()

    @property
    def keeps_blocks(self) -> bool:
        """Whether a block that is prefetched will be in the cache when it is needed."""
        return self.space.is_writable and self.space.limit_bytes >= self.block_bytes

    def open(self, name: str, number: int) -> Block | None:
        """Opens a cached block and marks it as used; None where it is not cached, or the disk fails."""
        try:
            return _open(self.path(name, number))
        except OSError:
            return None

    def load(self, name: str, number: int, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Block | None:
        """Opens a block, after fetching it unless it is cached or another process is fetching it.

        None where another process takes longer than `timeout_seconds` to fetch it. Raises as `RemoteFiles.read`.
        """
        path = self.path(name, number)
        try:
            claimed = self._claim(path, timeout_seconds)
        except OSError as error:
            self.space.warn(error)
            return Block(data=self._fetch(name, number))
        if claimed is None or isinstance(claimed, Block):
            return claimed
        try:
            data = self._fetch(name, number)
        except BaseException:
            os.close(claimed)
            raise
        return self._store(claimed, path, data)

    def fetch(self, name: str, number: int) -> Block:
        """Fetches a block from the store, past the cache. Raises as `RemoteFiles.read`."""
        return Block(data=self._fetch(name, number))

    def drop(self, name: str, number: int) -> None:
        """Removes a block from the cache, which may be damaged."""
        with suppress(OSError):
            self.path(name, number).unlink()

    def _fetch(self, name: str, number: int) -> bytes:
        return self.files.read(name, number * self.block_bytes, (number + 1) * self.block_bytes)

    def _claim(self, path: Path, timeout_seconds: float) -> int | Block | None:
        """The file to write a block to, locked; or the block, where another process has completed it; else None."""
        part = path.with_name(path.name + PART)
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                return _open(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                continue
            try:
                is_locked = try_lock(descriptor, timeout_seconds)
                if is_locked and is_same_file(descriptor, part):
                    if not path.exists():
                        claimed, descriptor = descriptor, -1
                        return claimed
                    part.unlink()  # created here, after another process had completed the block
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
            if not is_locked:
                return None
        return None

    def _store(self, descriptor: int, path: Path, data: bytes) -> Block:
        """Moves a block into the cache; keeps it in memory where that fails or the cache has no room."""
        part = path.with_name(path.name + PART)
        try:
            if self.space.reserve(len(data)):
                self.space.write(descriptor, data)
                part.rename(path)
                self.space.is_writable = True
                return _open(path)
        except OSError as error:
            self.space.warn(error)
        finally:
            if is_same_file(descriptor, part):
                with suppress(OSError):
                    part.unlink()
            os.close(descriptor)
        return Block(data=data)


def _open(path: Path) -> Block:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with suppress(OSError):  # a cache of another user, which can be read
        os.utime(descriptor)
    return Block(descriptor)
