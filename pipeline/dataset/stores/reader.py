"""`StoreReader`: reads byte ranges of a dataset's files in a store through a local cache of blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from ..byte_ranges import MissingFileError, Range
from .blocks import Block, BlockCache
from .cache_space import RevisionLock
from .concurrent import MAX_REQUESTS, map_on_threads
from .counts import StoreCounter
from .remote_files import MissingInStoreError, RemoteFiles

_OPEN_BLOCKS: Final = 32 - MAX_REQUESTS  # so many more are open while they are loaded

_Key = tuple[str, int]
_Bounds = tuple[int, int]
_Loaded = TypeVar("_Loaded")


class StoreReader:
    """See `ByteRangeReader`, which has the same methods. Picklable, without what it has open. Not thread-safe.

    `is_current`: whether the store still has this state of the dataset. `in_use`: keeps its index in the cache.
    """

    def __init__(self, cache: BlockCache, is_current: Callable[[], bool], in_use: RevisionLock | None = None) -> None:
        self._cache, self.is_current, self._in_use = cache, is_current, in_use
        self.where = str(cache.files.address)
        self.remedy = "run `facefeed verify` on the folder that it was copied from, and copy the file again"
        self._blocks: dict[_Key, Block] = {}  # least recently used first
        self._prefetched: dict[_Key, dict[_Bounds, bytes]] = {}
        self._reread = set[_Key]()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._cache, self.is_current, self._in_use)

    def for_another_thread(self) -> StoreReader:
        """Returns a reader of the same files with its own connections and counts."""
        files = self._cache.files
        return StoreReader(
            self._cache.with_files(RemoteFiles(files.address, StoreCounter())), self.is_current, self._in_use
        )

    def __del__(self) -> None:
        for block in self._blocks.values():
            block.close()

    @property
    def block_bytes(self) -> int:
        """Size of a block."""
        return self._cache.block_bytes

    @property
    def limit_bytes(self) -> int:
        """Limit of the cache in bytes."""
        return self._cache.space.limit_bytes

    @property
    def counter(self) -> StoreCounter:
        """Counts what this object reads."""
        return self._cache.files.counter

    def read(self, name: str, offset: int, size: int) -> bytes:
        """Reads bytes `offset` .. `offset + size` of the file `name`, fewer where it ends before.

        Raises `MissingFileError` where it is not there, `UsageError` where the store refuses it, and `StoppedError`
        where it does not return it.
        """
        return b"".join(
            self._read_prefetched(key, bounds) for key, bounds in self._parts([(name, offset, offset + size)])
        )

    def read_again(self, name: str, offset: int, size: int) -> bytes | None:
        """Reads a damaged range from the store again, since the copy in the cache may be what is damaged.

        None where that was done before: then the store's copy is damaged.
        """
        keys = {*self._keys([(name, offset, offset + size)])} - self._reread
        if not keys:
            return None
        self._reread |= keys
        for key in keys:
            self._close(key)
            self._prefetched.pop(key, None)
            self._cache.drop(*key)
        return self.read(name, offset, size)

    def small_files(self, names: Sequence[str]) -> list[bytes | None]:
        """Reads small files from the store, not the cache, concurrently; None for files that it lacks."""

        def read(name: str) -> bytes | None:
            try:
                return self._cache.files.read_all(name)
            except MissingInStoreError:
                return None

        return map_on_threads(read, names)

    def prefetch(self, ranges: Iterable[Range]) -> None:
        """Reads `ranges`, in place of the last ones, and keeps them for `read`; counts hits and misses.

        Blocks that are not in the cache are fetched concurrently. Each is read as it arrives: a cache that is full, or
        smaller than a batch's blocks, does not have it any more when its images are needed. Raises as `read`, the error
        of the block that failed first.
        """
        wanted: dict[_Key, set[_Bounds]] = {}
        for key, bounds in self._parts(ranges):
            wanted.setdefault(key, set()).add(bounds)
        self._prefetched = {}
        lock, missing = threading.Lock(), []

        def read(key: _Key) -> None:
            self._prefetched[key] = {bounds: self._read_part(key, bounds) for bounds in wanted[key]}

        def fetch(key: _Key) -> None:
            block = self._load(key)
            with lock:
                self._keep_open(key, block)
                read(key)

        for key in wanted:
            if key in self._blocks or self._cache.has(*key):
                self.counter.add(hits=1)
                read(key)
            else:
                missing.append(key)
        self.counter.add(misses=len(missing))
        map_on_threads(fetch, missing)

    def read_ahead(self, ranges: Iterable[Range]) -> None:
        """Fetches missing blocks into the cache, except those that another process is fetching; opens none.

        Does nothing while the cache cannot keep blocks: each would be fetched twice.
        """
        if not self._cache.keeps_blocks:
            return
        map_on_threads(self._load_unless_busy, dict.fromkeys(self._keys(ranges)))

    def _read_prefetched(self, key: _Key, bounds: _Bounds) -> bytes:
        data = self._prefetched.get(key, {}).get(bounds)
        return self._read_part(key, bounds) if data is None else data

    def _read_part(self, key: _Key, bounds: _Bounds) -> bytes:
        """Reads bytes of a block, which stays open."""
        try:
            return self._block(key).read(*bounds)
        except OSError:  # the local disk failed; the store may still return the block
            self._close(key)
            self._keep_open(key, self._with_missing_file_error(lambda: self._cache.fetch(*key), key[0]))
            return self._blocks[key].read(*bounds)

    def _block(self, key: _Key) -> Block:
        block = self._blocks.pop(key, None)
        if block is None:
            block = self._cache.open(*key) or self._load(key)
        self._keep_open(key, block)
        return block

    def _keep_open(self, key: _Key, block: Block) -> None:
        """Keeps a block open, and closes the one that was used least recently."""
        self._close(key)
        self._blocks[key] = block
        if len(self._blocks) > _OPEN_BLOCKS:
            self._close(next(iter(self._blocks)))

    def _close(self, key: _Key) -> None:
        if (block := self._blocks.pop(key, None)) is not None:
            block.close()

    def _load(self, key: _Key) -> Block:
        block = self._with_missing_file_error(lambda: self._cache.load(*key), key[0])
        # A process that is paused may hold its lock forever.
        return self._with_missing_file_error(lambda: self._cache.fetch(*key), key[0]) if block is None else block

    def _load_unless_busy(self, key: _Key) -> None:
        block = self._with_missing_file_error(lambda: self._cache.load(*key, timeout_seconds=0), key[0])
        if block is not None:
            block.close()

    def _with_missing_file_error(self, load: Callable[[], _Loaded], name: str) -> _Loaded:
        try:
            return load()
        except MissingInStoreError as error:
            raise MissingFileError(f"{self.where}/{name}: not in the store; {self.remedy}") from error

    def _parts(self, ranges: Iterable[Range]) -> Iterator[tuple[_Key, _Bounds]]:
        """Yields the blocks that `ranges` overlap, each with the bytes of it that are meant."""
        size = self._cache.block_bytes
        for name, start, end in ranges:
            for number in range(start // size, -(-end // size)):
                first = number * size
                yield (name, number), (max(start - first, 0), min(end - first, size))

    def _keys(self, ranges: Iterable[Range]) -> Iterator[_Key]:
        return (key for key, _ in self._parts(ranges))
