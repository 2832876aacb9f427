"""`OutFiles`: how the files of OUT are read, published and removed; `FolderFiles`: in a folder."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self

from ...files import (
    files_below,
    link_exclusive,
    make_folder,
    read_stored,
    refuse_non_file,
    sha256_of,
    stop_on_disk_error,
    sync_folder,
    write_durably,
)


class OutFiles(Protocol):
    """Files of one OUT, by their paths below its `OutPaths.root`; each call is atomic.

    All raise `StoppedError` where the disk fails or the store does not answer.
    """

    @property
    def is_remote(self) -> bool:
        """Whether OUT is in a store: then its `root` is a working copy, which each host has for itself."""

    def place(self, root: Path) -> str:
        """The folder or the address of the OUT whose `OutPaths.root` is `root`, for people."""

    def refresh(self) -> None:
        """Lists what is there now, before many questions are asked."""

    def fetch(self, paths: Sequence[Path]) -> None:
        """Makes small files of a store local, if they are there."""

    def names(self, folder: Path) -> set[str]:
        """Names of the files and folders in a folder of OUT, or in OUT itself; raises `OSError`."""

    def unlisted(self) -> OutFiles:
        """The same files, as they are now and not as they were when they were listed."""

    def read(self, path: Path) -> bytes:
        """Reads a small file; raises `FileNotFoundError` where it is not there."""

    def read_start(self, path: Path, size_bytes: int) -> bytes:
        """Reads the first bytes of a file, all of a shorter one; raises `FileNotFoundError` where it is not there."""

    def size_bytes(self, path: Path) -> int | None:
        """The size of a file; None where it is not there."""

    def local(self, path: Path) -> AbstractContextManager[Path]:
        """A local file with the same content during the block.

        Raises `FileNotFoundError` where it is not there, and `CorruptDataError` where something else is in its place.
        """

    def fetched(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        """During the block, `local` has these files of a store at once: several are fetched at a time."""

    def digests(self, paths: Sequence[Path]) -> Iterator[str]:
        """The SHA-256 of each file, which leaves nothing on the local disk.

        Raises `FileNotFoundError` where one is not there.
        """

    def unit_files(self, faces: Path) -> list[Path]:
        """All published files below the folder `faces`, sorted."""

    def write(self, path: Path, text: str | Iterable[str], temporary: Path, *, replace: bool = True) -> None:
        """Writes a small file durably, of a text that may be in parts.

        With `replace=False` raises `FileExistsError` where there is one.
        """

    def publish(self, attempt: Path, path: Path) -> None:
        """Gives a complete local file, then perhaps gone, its name; raises `FileExistsError` where there is one."""

    def replace(self, attempt: Path, path: Path) -> None:
        """The same in place of the file of that name."""

    def remove(self, path: Path) -> None:
        """Removes a file, if it is there."""

    def remove_all(self, sequences: Sequence[Sequence[Path]]) -> None:
        """Removes files, those of one sequence in its order; of a store, those of several sequences at a time."""

    def remove_folder(self, folder: Path, temporary: Path, *, last: Path) -> None:
        """Removes a folder with its files: at once, by way of `temporary`; in a store one by one, and `last` last."""

    def rename(self, path: Path, target: Path) -> None:
        """Gives a file another name, in place of the one that has it; raises `FileNotFoundError` where it is gone."""


@dataclass(frozen=True)
class FolderFiles:
    """Files of an OUT in a folder: on a local disk or a network file system."""

    is_remote: ClassVar[bool] = False

    def place(self, root: Path) -> str:
        """See `OutFiles`."""
        return str(root)

    def refresh(self) -> None:
        """See `OutFiles`: nothing is listed before it is asked for."""

    def fetch(self, paths: Sequence[Path]) -> None:
        """See `OutFiles`: all files are local."""

    def names(self, folder: Path) -> set[str]:
        """See `OutFiles`."""
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    def unlisted(self) -> Self:
        """See `OutFiles`: nothing is listed before it is asked for."""
        return self

    def read(self, path: Path) -> bytes:
        """See `OutFiles`."""
        return read_stored(path)

    def read_start(self, path: Path, size_bytes: int) -> bytes:
        """See `OutFiles`."""
        with stop_on_disk_error(path, unless=(FileNotFoundError,)):
            refuse_non_file(path)
            with path.open("rb") as file:
                return file.read(size_bytes)

    def size_bytes(self, path: Path) -> int | None:
        """See `OutFiles`."""
        try:
            with stop_on_disk_error(path, unless=(FileNotFoundError, NotADirectoryError)):
                return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    @contextmanager
    def local(self, path: Path) -> Iterator[Path]:
        """See `OutFiles`: the file itself."""
        try:
            refuse_non_file(path)
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error
        yield path

    def fetched(self, paths: Sequence[Path]) -> AbstractContextManager[None]:  # noqa: ARG002 (a store needs it)
        """See `OutFiles`: all files are local."""
        return nullcontext()

    def digests(self, paths: Sequence[Path]) -> Iterator[str]:
        """See `OutFiles`."""
        for path in paths:
            with stop_on_disk_error(path, unless=(FileNotFoundError,)):
                digest = sha256_of(path)
            yield digest

    def unit_files(self, faces: Path) -> list[Path]:
        """See `OutFiles`."""
        with stop_on_disk_error(faces):
            return files_below(faces)

    def write(self, path: Path, text: str | Iterable[str], temporary: Path, *, replace: bool = True) -> None:
        """See `OutFiles`."""
        write_durably(path, text, temporary, replace=replace)

    def publish(self, attempt: Path, path: Path) -> None:
        """See `OutFiles`: links it, which fails where another attempt was faster."""
        with stop_on_disk_error(path):
            self._sync(attempt)
            make_folder(path.parent)
            try:
                link_exclusive(attempt, path)
            finally:
                sync_folder(path.parent)  # also the name that another attempt gave a moment ago

    def replace(self, attempt: Path, path: Path) -> None:
        """See `OutFiles`."""
        with stop_on_disk_error(path):
            self._sync(attempt)
            attempt.replace(path)
            sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """See `OutFiles`."""
        with stop_on_disk_error(path):
            path.unlink(missing_ok=True)

    def remove_all(self, sequences: Sequence[Sequence[Path]]) -> None:
        """See `OutFiles`."""
        for paths in sequences:
            for path in paths:
                self.remove(path)

    def remove_folder(self, folder: Path, temporary: Path, *, last: Path) -> None:  # noqa: ARG002 (a store needs it)
        """See `OutFiles`."""
        removed = temporary / f"{folder.name}.{uuid.uuid4().hex}.removed"
        with stop_on_disk_error(folder):
            folder.rename(removed)
            sync_folder(folder.parent)
            shutil.rmtree(removed)

    def rename(self, path: Path, target: Path) -> None:
        """See `OutFiles`; not synced: whoever needs the new name to survive a power failure does that."""
        with stop_on_disk_error(path, unless=(FileNotFoundError,)):
            path.replace(target)

    @staticmethod
    def _sync(path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
