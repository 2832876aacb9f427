"""`open_out`: OUT as a folder or at the address of a store, of which a local folder is the working copy."""

from __future__ import annotations

import filecmp
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from ....errors import FacefeedError, StoppedError, UsageError
from ....files import (
    DISK_IS_FULL,
    cache_folder,
    make_folder,
    read_stored,
    refuse_address,
    stop_on_disk_error,
    write_durably,
)
from ...out import OutPaths
from ..address import StoreAddress, is_address
from ..concurrent import map_on_threads
from ..counts import StoreCounter
from ..fetching import fetch_latest
from ..remote_files import MissingInStoreError
from ..stored_file import StoredFile
from .process_folder import process_folder
from .remote import WritableFiles

_MAX_SMALL_BYTES = 4 << 20
"""Of a file that is fetched by one request."""
_PROTOCOLS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
"""Of stores whose fsspec file system creates a file where there is none by one request."""


class StoreFiles:
    """The files of an OUT in a store; see `OutFiles`. Picklable: each process has its own connections.

    `root`: its working copy, a local folder of this process. Files of units exist in the store alone. Those that are
    small, as plan and receipts, are in the working copy too, once `refresh` was called: questions are then answered
    from there and from one listing, and else each by a request.
    """

    is_remote: ClassVar[bool] = True

    def __init__(self, remote: WritableFiles, root: Path) -> None:
        self.remote, self._paths = remote, OutPaths(root)
        self._stored: dict[str, StoredFile] = {}
        self._listed: dict[str, int] | None = None  # sizes by name, with what was written since
        self._has_receipts = False

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreFiles, (self.remote, self._paths.root)

    @contextmanager
    def copied_anew(self) -> Iterator[OutPaths]:
        """The same OUT with a working copy of its own, which is removed after the block: for another process."""
        with _working_copy(self.remote.address) as root:
            yield OutPaths(root, StoreFiles(self.remote, root))

    def place(self, root: Path) -> str:  # noqa: ARG002 (a folder needs it)
        """See `OutFiles`."""
        return str(self.remote.address)

    def unlisted(self) -> StoreFiles:
        """See `OutFiles`."""
        return StoreFiles(self.remote, self._paths.root)

    def refresh(self) -> None:
        """See `OutFiles`; also fetches what is new or has changed of plan and manifest.

        Raises `UsageError` where there are added columns, which are not continued in a store.
        """
        self._stored = {each.name: each for each in self._list()}
        if columns := next((name for name in self._stored if name.startswith("columns/")), None):
            raise UsageError(
                f"{self.remote.address}: has added columns ({columns}), which only commands on folders keep up to "
                "date: copy the dataset to a folder, or remove columns/ from the store and add them again later"
            )
        self._listed = {name: each.size_bytes for name, each in self._stored.items()}
        self._has_receipts = False
        self.fetch([*self._listed_in(self._paths.plan), self._paths.manifest])
        with stop_on_disk_error(self._paths.plan):
            for path in self._paths.plan.iterdir():
                if self._paths.name_of(path) not in self._stored:
                    path.unlink(missing_ok=True)

    def _list(self, below: str = "") -> Iterator[StoredFile]:
        """Files in the store, without those of no or an empty name by which some tools mark folders."""
        return (each for each in self.remote.list(below) if each.name and not each.name.endswith("/"))

    def _listed_in(self, folder: Path) -> list[Path]:
        below = f"{self._paths.name_of(folder)}/"
        return [self._paths.root / name for name in self._stored if name.startswith(below)]

    def fetch(self, paths: Sequence[Path]) -> None:
        """See `OutFiles`: copies those that the working copy lacks, or has in another state, as they were listed."""
        map_on_threads(self._fetch_one, paths)

    def _fetch_one(self, path: Path) -> None:
        wanted = self._stored.get(self._paths.name_of(path))
        if wanted is None:
            path.unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            status = path.stat()
            if (status.st_size, status.st_mtime_ns) == (wanted.size_bytes, wanted.mtime_ns):
                return
        if wanted.size_bytes > _MAX_SMALL_BYTES:
            with suppress(FileNotFoundError), self.local(path) as fetched:
                fetched.replace(path)
            return
        copy = self._temporary(path)
        with stop_on_disk_error(path), suppress(MissingInStoreError):  # removed since it was listed
            try:
                copy.write_bytes(self.remote.read_all(wanted.name))
                os.utime(copy, ns=(wanted.mtime_ns, wanted.mtime_ns))
                copy.replace(path)
            finally:
                copy.unlink(missing_ok=True)

    def names(self, root: Path) -> set[str]:  # noqa: ARG002 (a folder needs it)
        """See `OutFiles`; `refresh` was called before."""
        assert self._listed is not None
        return {name.partition("/")[0] for name in self._listed}

    def _stat(self, name: str) -> StoredFile | None:
        try:
            return self.remote.stat(name)
        except MissingInStoreError:
            return None

    def read(self, path: Path) -> bytes:
        """See `OutFiles`."""
        name = self._paths.name_of(path)
        if self._listed is not None:
            if name not in self._listed:
                raise FileNotFoundError(str(path))
            if path.parent == self._paths.receipts and not self._has_receipts:  # where one is read, all are
                self.fetch(self._listed_in(self._paths.receipts))
                self._has_receipts = True
            with suppress(FileNotFoundError):  # removed from the store since it was listed
                return read_stored(path)
        try:
            return self.remote.read_all(name)
        except MissingInStoreError as error:
            raise FileNotFoundError(str(path)) from error

    def size_bytes(self, path: Path) -> int | None:
        """See `OutFiles`."""
        name = self._paths.name_of(path)
        if self._listed is not None:
            return self._listed.get(name)
        stored = self._stat(name)
        return None if stored is None else stored.size_bytes

    @contextmanager
    def local(self, path: Path) -> Iterator[Path]:
        """See `OutFiles`: a copy, which is removed after the block."""
        copy = self._temporary(path)
        try:
            try:
                is_whole = fetch_latest(self.remote, self._paths.name_of(path), copy)
            except MissingInStoreError as error:
                raise FileNotFoundError(str(path)) from error
            if not is_whole:
                raise StoppedError(f"{path}: changes again and again; run the same command again")
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def _temporary(self, path: Path) -> Path:
        return self._paths.temporary / f"{path.name}.{uuid.uuid4().hex}.fetched"

    def unit_files(self, faces: Path) -> list[Path]:
        """See `OutFiles`."""
        below = f"{self._paths.name_of(faces)}/"
        names = [each.name for each in self._list(below)] if self._listed is None else self._listed
        return sorted(self._paths.root / name for name in names if name.startswith(below))

    def write(self, path: Path, text: str | Iterable[str], temporary: Path, *, replace: bool = True) -> None:
        """See `OutFiles`; a file with the very text counts as written."""
        text = text if isinstance(text, str) else "".join(text)
        name, content = self._paths.name_of(path), text.encode()
        if replace:
            self.remote.replace(name, content)
        else:
            try:
                self.remote.create(name, content)
            except FileExistsError:  # perhaps by a request of this very call, whose answer was lost
                if self.remote.read_all(name) != content:
                    raise
        if self._listed is not None:
            self._listed[name] = len(content)
            write_durably(path, text, temporary)

    def publish(self, attempt: Path, path: Path) -> None:
        """See `OutFiles`; a file with the very bytes counts as published."""
        name = self._paths.name_of(path)
        try:
            self.remote.create(name, attempt)
        except FileExistsError:
            with self.local(path) as other:
                if not filecmp.cmp(attempt, other, shallow=False):
                    raise
        self._record(name, attempt)

    def replace(self, attempt: Path, path: Path) -> None:
        """See `OutFiles`."""
        name = self._paths.name_of(path)
        self.remote.replace(name, attempt)
        self._record(name, attempt)

    def _record(self, name: str, content: Path) -> None:
        if self._listed is not None:
            self._listed[name] = content.stat().st_size

    def remove(self, path: Path) -> None:
        """See `OutFiles`; the unit's rows of the index go with its file."""
        names = [self._paths.name_of(path)]
        if path.is_relative_to(self._paths.faces):
            names.append(self._paths.name_of(self._paths.index_part(path.stem)))
        for name in names:
            if self._listed is not None and name not in self._listed:
                continue
            self.remote.remove(name)
            (self._paths.root / name).unlink(missing_ok=True)
            if self._listed is not None:
                self._listed.pop(name, None)

    def rename(self, path: Path, target: Path) -> None:
        """See `OutFiles`: a copy within the store, then the removal of the other name."""
        try:
            self.remote.copy(self._paths.name_of(path), self._paths.name_of(target), self.size_bytes(path) or 0)
        except MissingInStoreError as error:
            raise FileNotFoundError(str(path)) from error
        if self._listed is not None:
            self._listed[self._paths.name_of(target)] = self._listed.get(self._paths.name_of(path), 0)
        self.remove(path)

    def refuse_unconditional(self) -> None:
        """Raises `UsageError` where the store overwrites a file although it is to be created: units could be lost."""
        name = f"{self._paths.temporary.name}/trial.{uuid.uuid4().hex}"
        try:
            with suppress(FileExistsError):  # by a request of this call, whose answer was lost
                self.remote.create(name, b"first")
            with suppress(FileExistsError):
                self.remote.create(name, b"second")
                raise UsageError(
                    f"{self.remote.address}: the store does not create files on the condition that there is none (as "
                    "S3's If-None-Match), which exactly-once rests on; write to a folder and copy the finished dataset"
                )
        finally:
            self.remote.remove(name)


@contextmanager
def open_out(
    out: str | Path,
    storage_options: Mapping[str, Any] | None = None,
    *,
    on_listing: Callable[[str], object] = lambda _: None,
) -> Iterator[OutPaths]:
    """Yields the paths of OUT; of one in a store, with what it holds so far.

    Args:
        out: a folder, or an address such as ``s3://bucket/faces``.
        storage_options: of the store's fsspec file system; never printed.
        on_listing: called with a sentence before a store is listed.

    Raises:
        UsageError: it cannot hold a dataset, or the store refuses to be read.
        StoppedError: the store does not answer.

    """
    if not isinstance(out, str) or not is_address(out):
        refuse_address(Path(out), "write it with two slashes, and from Python as a text, not as a Path")
        yield OutPaths(Path(out))
        return
    address = StoreAddress(out, storage_options or {})
    if address.protocol not in _PROTOCOLS:
        raise UsageError(
            f"OUT={str(address)!r}: a dataset is written to a folder, or to s3://, gs:// or az://; name one of these, "
            "or copy the finished dataset there"
        )
    if {"?", "#"} & {*out}:
        raise UsageError(f"OUT={str(address)!r}: has a ? or #, which addresses of a dataset cannot have; name another")
    with _working_copy(address) as root:
        files = StoreFiles(WritableFiles(address, StoreCounter()), root)
        try:
            on_listing(f"listing {address}")
            files.refresh()
            yield OutPaths(root, files)
        except FacefeedError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
                raise  # of the local disk, where the working copy is
            error.args = tuple(
                each.replace(str(root), str(address)) if isinstance(each, str) else each for each in error.args
            )
            raise


@contextmanager
def _working_copy(address: StoreAddress) -> Iterator[Path]:
    """Yields a local folder for the files of an OUT, which is removed after the block."""
    parent = cache_folder() / "working"
    with ExitStack() as stack:
        try:
            make_folder(parent)
            root = stack.enter_context(process_folder("facefeed-out-", parent))
            paths = OutPaths(root)
            for folder in (paths.plan, paths.receipts, paths.temporary, paths.index_parts):
                folder.mkdir()
        except OSError as error:
            if error.errno in DISK_IS_FULL:
                with stop_on_disk_error(parent):
                    raise
            raise UsageError(
                f"{parent}: the working copy of {address} cannot be written ({error.strerror}); set XDG_CACHE_HOME to "
                "a folder of a local disk"
            ) from error
        yield root
