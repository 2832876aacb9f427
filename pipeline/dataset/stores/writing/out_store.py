"""`StoreFiles`: the files of an OUT in a store, of which a local folder is the working copy."""

from __future__ import annotations

import filecmp
import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from ....errors import StoppedError, UsageError
from ....files import read_stored, stop_on_disk_error, write_durably
from ...out import RECEIPT_FOLDERS, OutPaths
from ..blocks import BLOCK_BYTES
from ..concurrent import MAX_REQUESTS, map_on_threads
from ..fetching import fetch_latest
from ..remote_files import MissingInStoreError
from ..stored_file import StoredFile
from .remote import WritableFiles
from .working_copy import working_copy

_MAX_SMALL_BYTES = 4 << 20
"""Of a file that is fetched by one request."""


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
        self._fetched_receipts: set[Path] = set()  # folders of receipts, all of which were fetched

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreFiles, (self.remote, self._paths.root)

    @contextmanager
    def copied_anew(self) -> Iterator[OutPaths]:
        """The same OUT with a working copy of its own, which is removed after the block: for another process."""
        with working_copy(self.remote.address) as root:
            yield OutPaths(root, StoreFiles(self.remote, root))

    def place(self, root: Path) -> str:  # noqa: ARG002 (a folder needs it)
        """See `OutFiles`."""
        return str(self.remote.address)

    def unlisted(self) -> StoreFiles:
        """See `OutFiles`."""
        return StoreFiles(self.remote, self._paths.root)

    def refresh(self) -> None:
        """See `OutFiles`; also fetches what is new or has changed of plan, manifest and records of added columns."""
        self._stored = {each.name: each for each in self._list()}
        self._listed = {name: each.size_bytes for name, each in self._stored.items()}
        self._fetched_receipts.clear()
        records = [path for path in self._listed_in(self._paths.columns) if self._is_record(path)]
        self.fetch([*self._listed_in(self._paths.plan), self._paths.manifest, *records])
        with stop_on_disk_error(self._paths.plan):
            for path in self._paths.plan.iterdir():
                if self._paths.name_of(path) not in self._stored:
                    path.unlink(missing_ok=True)

    def _is_record(self, path: Path) -> bool:
        return path == self._paths.columns_record(path.parent.name)

    def _list(self, below: str = "") -> Iterator[StoredFile]:
        """Files in the store, without those by which some tools mark folders."""
        return (each for each in self.remote.list(below) if not _is_folder_marker(each))

    def _listed_in(self, folder: Path) -> list[Path]:
        below = f"{self._paths.name_of(folder)}/"
        return [self._paths.root / name for name in self._stored if name.startswith(below)]

    def fetch(self, paths: Sequence[Path]) -> None:
        """See `OutFiles`: copies those that the working copy lacks, or has in another state, as they were listed."""
        map_on_threads(self._fetch_one, [path for path in paths if not self._is_large(path)])
        for path in filter(self._is_large, paths):  # each by several requests at a time
            self._fetch_one(path)

    def _is_large(self, path: Path) -> bool:
        stored = self._stored.get(self._paths.name_of(path))
        return stored is not None and stored.size_bytes > _MAX_SMALL_BYTES

    def _fetch_one(self, path: Path) -> None:
        wanted = self._stored.get(self._paths.name_of(path))
        if wanted is None:
            path.unlink(missing_ok=True)
            return
        if self._is_fetched(path):
            return
        with stop_on_disk_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        if self._is_large(path):
            with stop_on_disk_error(path), suppress(FileNotFoundError), self.local(path) as fetched:
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

    def _is_fetched(self, path: Path) -> bool:
        """Whether the working copy has a file as it was listed."""
        wanted = self._stored.get(self._paths.name_of(path))
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        return wanted is not None and (status.st_size, status.st_mtime_ns) == (wanted.size_bytes, wanted.mtime_ns)

    def names(self, folder: Path) -> set[str]:
        """See `OutFiles`; `refresh` was called before."""
        assert self._listed is not None
        below = "" if folder == self._paths.root else f"{self._paths.name_of(folder)}/"
        return {name.removeprefix(below).partition("/")[0] for name in self._listed if name.startswith(below)}

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
            folder = path.parent
            if folder.name in RECEIPT_FOLDERS and folder not in self._fetched_receipts:  # where one is read, all are
                self.fetch(self._listed_in(folder))
                self._fetched_receipts.add(folder)
            with suppress(FileNotFoundError):  # removed from the store since it was listed
                return read_stored(path)
        try:
            return self.remote.read_all(name)
        except MissingInStoreError as error:
            raise FileNotFoundError(str(path)) from error

    def read_start(self, path: Path, size_bytes: int) -> bytes:
        """See `OutFiles`."""
        try:
            return self.remote.read(self._paths.name_of(path), 0, size_bytes)
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
        """See `OutFiles`: a copy, which is removed after the block, unless `fetched` has one."""
        if self._is_fetched(path):
            yield path
            return
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

    @contextmanager
    def fetched(self, paths: Sequence[Path]) -> Iterator[None]:
        """See `OutFiles`: as they were listed; those that are not there are left out."""
        try:
            self.fetch(paths)
            yield
        finally:
            for path in paths:
                path.unlink(missing_ok=True)

    def digests(self, paths: Sequence[Path]) -> Iterator[str]:
        """See `OutFiles`."""
        for start in range(0, len(paths), MAX_REQUESTS):
            yield from map_on_threads(self._digest, paths[start : start + MAX_REQUESTS])

    def _digest(self, path: Path) -> str:
        name, size_bytes, digest = self._paths.name_of(path), self.size_bytes(path), hashlib.sha256()
        if size_bytes is None:
            raise FileNotFoundError(str(path))
        try:
            for start in range(0, size_bytes, BLOCK_BYTES):
                digest.update(self.remote.read(name, start, min(start + BLOCK_BYTES, size_bytes)))
        except MissingInStoreError as error:
            raise FileNotFoundError(str(path)) from error
        return digest.hexdigest()

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
                if not self._holds(name, content):
                    raise
        if self._listed is not None:
            self._listed[name] = len(content)
            with stop_on_disk_error(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, text, temporary)

    def _holds(self, name: str, content: bytes) -> bool:
        try:
            return self.remote.read_all(name) == content
        except MissingInStoreError:  # removed again
            return False

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

    def remove_all(self, sequences: Sequence[Sequence[Path]]) -> None:
        """See `OutFiles`."""

        def remove(paths: Sequence[Path]) -> None:
            for path in paths:
                self.remove(path)

        map_on_threads(remove, sequences)

    def remove_folder(self, folder: Path, temporary: Path, *, last: Path) -> None:  # noqa: ARG002 (a folder needs it)
        """See `OutFiles`."""
        assert self._listed is not None
        name = self._paths.name_of(folder)
        names = [each for each in self._listed if each == name or each.startswith(f"{name}/")]
        self.remove_all([[path] for each in names if (path := self._paths.root / each) != last])
        self.remove(last)

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


def _is_folder_marker(stored: StoredFile) -> bool:
    """Whether it has no name, that of a folder, or an empty file has one: adlfs leaves out the slash of a marker."""
    last = stored.name.rpartition("/")[2]
    return not last or (not stored.size_bytes and "." not in last)
