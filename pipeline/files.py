"""Atomic file writes: a file appears complete, or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import StoppedError, UsageError

DISK_IS_FULL = {errno.ENOSPC, errno.EDQUOT}
NO_HARD_LINKS = {errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@contextmanager
def stop_on_disk_error(path: Path) -> Iterator[None]:
    """Converts an `OSError` on `path` (disk full, I/O error), but no `FileExistsError`, to a `StoppedError`."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        remedy = "make room" if error.errno in DISK_IS_FULL else "fix that"
        raise StoppedError(
            f"{path}: {os.strerror(error.errno or 0)}; all finished units are kept; "
            f"{remedy} and run the same command again"
        ) from error


def cache_folder() -> Path:
    """The user's cache of facefeed: ``$XDG_CACHE_HOME/facefeed``, else ``~/.cache/facefeed``; it may not exist."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(cache)) / "facefeed"  # noqa: PTH111 (`Path.expanduser` raises where there is no home)


def sync_folder(folder: Path) -> None:
    """Calls fsync on `folder`, so that names created in it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Creates `folder`, and those above it, unless it exists; its name then survives a power failure.

    That of an existing folder is synced too: another process may have created it a moment ago.
    """
    if not folder.parent.is_dir():
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_durably(target: Path, text: str, temporary: Path, *, replace: bool = True) -> None:
    """Writes a small file atomically and with fsync, by way of a file in the folder `temporary`.

    Raises `StoppedError` where the disk fails and, with `replace=False`, `FileExistsError` if `target` exists.
    """
    attempt = temporary / f"{target.name}.{uuid.uuid4().hex}"
    with stop_on_disk_error(target):
        try:
            with attempt.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                attempt.replace(target)
            else:
                link_exclusive(attempt, target)
            sync_folder(target.parent)
        finally:
            attempt.unlink(missing_ok=True)


def link_exclusive(attempt: Path, target: Path) -> None:
    """Gives a complete file its final name and never overwrites: raises `FileExistsError` if `target` exists."""
    try:
        os.link(attempt, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # No hard links here (some network and FAT file systems): the driver's lease then keeps writers apart,
        # and the rename is atomic.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        attempt.rename(target)


def write_atomically(text: str, path: Path, option: str) -> int:
    """Writes `text` to a file beside `path`, renames it to `path` and returns its size in bytes.

    `option`: the command-line option that named the path, for the message.
    Raises `UsageError` where it cannot be written; an existing file is then unchanged.
    """
    given_path, path = path, path.resolve()  # a link stays; its target is replaced
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/null or a pipe: never replaced
            return path.write_bytes(text.encode())
        try:
            size_bytes = temporary.write_bytes(text.encode())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {given_path}: cannot be written ({error.strerror}); name a file in a folder that is there"
        ) from error
    return size_bytes
