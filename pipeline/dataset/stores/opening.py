"""`open_store`: opens a finished dataset in a store; its manifest and index become files of the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ...errors import CorruptDataError, FacefeedError, StoppedError, UsageError
from ...files import cache_folder, stop_on_disk_error, sync_folder, with_home
from ...json_records import parse_json
from ..index import Index
from ..manifest import Manifest
from ..open_dataset import open_dataset
from ..out import OutPaths
from .address import StoreAddress, is_address
from .blocks import BLOCK_BYTES, BlockCache
from .cache_space import IN_USE, CacheSpace, RevisionLock, try_lock
from .counts import StoreCounter
from .fetching import fetch_file
from .reader import StoreReader
from .remote_files import MissingInStoreError, RemoteFiles

_ATTEMPTS = 3
"""A copy to the store replaces manifest and index one after the other: either may happen between two requests."""

_MIN_CACHE_BYTES = 64 << 20
_ANNOUNCED_BYTES = 64 << 20
_OPEN_TIMEOUT_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """Options of the cache and of the connection to a store; raises `UsageError` on invalid values.

    cache: a folder of a local disk; None: facefeed's own below ``~/.cache``. cache_bytes: most that it takes there;
    None: half of what the disk has free. storage_options: of the store's fsspec file system; never printed.
    """

    cache: Path | None = None
    cache_bytes: int | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        size = self.cache_bytes
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < _MIN_CACHE_BYTES):
            raise UsageError(
                f"cache_bytes={size!r}: must be a number of bytes of at least {_MIN_CACHE_BYTES:,}; try 200 << 30"
            )

    @classmethod
    def of(
        cls, *, cache: str | Path | None, cache_bytes: int | None, storage_options: Mapping[str, Any] | None
    ) -> Self:
        """Creates options from a loader's arguments; raises `UsageError` on a `cache` that is no folder name."""
        if cache is not None and (not isinstance(cache, (str, Path)) or not str(cache)):
            raise UsageError(f"cache={cache!r}: must be a folder of a local disk, such as '/local/nvme/faces'")
        return cls(
            cache=None if cache is None else with_home(cache), cache_bytes=cache_bytes,
            storage_options={} if storage_options is None else storage_options,
        )  # fmt: skip

    def space(self) -> CacheSpace:
        """The cache; raises `UsageError` where its folder cannot be written."""
        cache = cache_folder() / "stores" if self.cache is None else self.cache.absolute()
        try:
            space = CacheSpace(cache, self.cache_bytes or 0)
            space.root.mkdir(parents=True, exist_ok=True)
            if self.cache_bytes is None:
                space.limit_bytes = max((shutil.disk_usage(cache).free + space.used_bytes()) // 2, _MIN_CACHE_BYTES)
        except OSError as error:
            raise UsageError(
                f"cache={str(cache)!r}: cannot be written ({error.strerror}); give a folder of a local disk"
            ) from error
        return space


@dataclass(frozen=True, kw_only=True)
class OpenStore:
    """A dataset in a store. `folder`: of its manifest and index, as in OUT, which stay as long as `reader` is there."""

    folder: Path
    index: Index
    reader: StoreReader


def open_store(url: str, options: StoreOptions) -> OpenStore:
    """Opens the dataset at an address.

    Raises:
        UsageError: there is no finished dataset, the store refuses to read it, or an option cannot hold.
        CorruptDataError: manifest or index is damaged, or they are of two states.
        StoppedError: the store does not return them, or the local disk fails.

    """
    address, space = StoreAddress(url, options.storage_options), options.space()
    source = _RevisionCache(RemoteFiles(address, StoreCounter()), space)
    in_use = source.open_revision()
    manifest, index = open_dataset(in_use.folder, str(address))
    index.restore = RevisionRestorer(source, in_use.folder)
    rows = hashlib.sha256(f"{manifest.fingerprint} {BLOCK_BYTES}".encode()).hexdigest()[:16]
    blocks = BlockCache(
        RemoteFiles(address, StoreCounter()), space, source.root / "blocks" / rows, block_bytes=BLOCK_BYTES
    )
    reader = StoreReader(blocks, RevisionCheck(source.files, manifest.fingerprint), in_use)
    return OpenStore(folder=in_use.folder, index=index, reader=reader)


def read_manifest(out: str | Path, options: StoreOptions) -> Manifest:
    """The manifest of a dataset, in a folder or at an address; raises as `Manifest.read` or `open_store`."""
    return Manifest.read(open_store(str(out), options).folder if is_address(out) else Path(out))


@dataclass(frozen=True)
class RevisionCheck:
    """Whether the store still has a state of a dataset; assumed where its manifest cannot be read."""

    files: RemoteFiles
    fingerprint: str

    def __call__(self) -> bool:
        """Reads its manifest again."""
        try:
            manifest = parse_json(self.files.read_all("manifest.json"))
            return bool(manifest["fingerprint"] == self.fingerprint)
        except (FacefeedError, MissingInStoreError, KeyError, TypeError, ValueError):
            return True


@dataclass(frozen=True)
class RevisionRestorer:
    """Fetches a state again where somebody has removed it from the cache, if the store still has it."""

    source: _RevisionCache
    folder: Path

    def __call__(self) -> None:
        """Restores the state; called before another process opens the index."""
        if not (self.folder / IN_USE).exists():
            self.source.open_revision()


@dataclass(frozen=True)
class _RevisionCache:
    """Manifest and index of a dataset in a store, and where its states lie in the cache."""

    files: RemoteFiles
    space: CacheSpace

    @property
    def root(self) -> Path:
        return self.space.root / self.files.address.key

    def open_revision(self) -> RevisionLock:
        """The current state, fetched unless the cache has it."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(CorruptDataError):
                return self._open_revision()
        return self._open_revision()

    def _open_revision(self) -> RevisionLock:
        manifest = self._read_manifest()
        try:
            version = self.files.stat("index.arrow").version
        except MissingInStoreError as error:
            raise UsageError(
                f"{self.files.address}: has no index.arrow; copy all of OUT but _tmp, plan, columns and driver.lease"
            ) from error
        folder = self.root / "states" / hashlib.sha256(manifest + version.encode()).hexdigest()[:16]
        with stop_on_disk_error(folder):
            if (in_use := RevisionLock(folder)).exists:
                return in_use
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder.parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                if not try_lock(lock, _OPEN_TIMEOUT_SECONDS):
                    raise StoppedError(f"{folder.parent}: another process has been fetching the index for an hour")
                if not (in_use := RevisionLock(folder)).exists:
                    self._fetch(folder, manifest, version)
                    in_use = RevisionLock(folder)
            finally:
                os.close(lock)
        if not in_use.exists:
            raise CorruptDataError(f"{folder}: was removed while it was opened; open it again")
        return in_use

    def _read_manifest(self) -> bytes:
        address = self.files.address
        try:
            return self.files.read_all("manifest.json")
        except MissingInStoreError as error:
            raise UsageError(
                f"{address}: no manifest.json, so no finished dataset; check the address, or copy a finished OUT there"
            ) from error

    def _fetch(self, folder: Path, manifest: bytes, version: str) -> None:
        """Fetches a state, complete or not at all. `version`: of the index that it is to have."""
        attempt = folder.parent / ".new"
        shutil.rmtree(attempt, ignore_errors=True)
        attempt.mkdir()
        paths = OutPaths(attempt)
        paths.manifest.write_bytes(manifest)
        (attempt / IN_USE).touch()
        self._fetch_index(paths.index, version, extra_bytes=len(manifest))
        try:
            _check(attempt)
        except CorruptDataError as error:  # an update may have been copied up to the manifest
            try:
                next_version = self.files.stat(paths.next_index.name).version
                self._fetch_index(paths.next_index, next_version)
                _check(attempt)
            except (MissingInStoreError, CorruptDataError, UsageError):
                text = str(error).replace(str(attempt), str(self.files.address))
                raise CorruptDataError(f"{text}; then copy OUT to the store again") from error
        for path in (paths.manifest, paths.index):
            with path.open("rb") as written:
                os.fsync(written.fileno())
        sync_folder(attempt)
        shutil.rmtree(folder, ignore_errors=True)  # left by somebody who has removed some of its files
        attempt.rename(folder)
        sync_folder(folder.parent)

    def _fetch_index(self, path: Path, version: str, *, extra_bytes: int = 0) -> None:
        index, address = self.files.stat(path.name), self.files.address
        if not self.space.reserve(index.size_bytes + extra_bytes):
            raise UsageError(
                f"cache_bytes={self.space.limit_bytes}: the index of {address} alone takes {index.size_bytes:,}; "
                "increase it"
            )
        if index.size_bytes > _ANNOUNCED_BYTES and sys.stderr.isatty():
            sys.stderr.write(f"facefeed: fetching the index of {address}, {index.size_bytes / 1e6:,.0f} MB\n")
        if index.version != version or not fetch_file(self.files, index, path):
            raise CorruptDataError(
                f"{address}: was replaced while it was read; open it again once the copy to the store is complete"
            )


def _check(folder: Path) -> None:
    """Raises `CorruptDataError` where manifest and index in a folder are damaged, or of two states."""
    _, index = open_dataset(folder)
    index.check_bytes()
