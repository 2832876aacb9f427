"""Files that are written whole or not at all."""

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
def writing(what: Path) -> Iterator[None]:
    """Turns what a disk refuses, to write or to read back, into a clean, resumable stop that names its reason."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        remedy = "make room" if error.errno in DISK_IS_FULL else "mend that"
        raise StoppedError(
            f"{what}: {os.strerror(error.errno or 0)}; all finished units are kept; "
            f"{remedy} and run the same command again"
        ) from error


def sync_folder(folder: Path) -> None:
    """Makes names created in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(target: Path, text: str, temporary: Path, *, replace: bool = True) -> None:
    """Writes a small file whole or not at all; with `replace=False` raises `FileExistsError` if it is there."""
    attempt = temporary / f"{target.name}.{uuid.uuid4().hex}"
    with writing(target):
        try:
            with attempt.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if replace:
                attempt.replace(target)
            else:
                link(attempt, target)
            sync_folder(target.parent)
        finally:
            attempt.unlink(missing_ok=True)


def link(attempt: Path, target: Path) -> None:
    """Gives a complete file its name without replacing another; raises `FileExistsError` if the name is taken."""
    try:
        os.link(attempt, target)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # No hard links here (some network and FAT file systems): the driver's lease is then what keeps
        # writers apart, and rename what makes the name appear whole.
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        attempt.rename(target)


def write_whole(text: str, path: Path, option: str) -> int:
    """Writes `text` beside `path` and puts it in its place; returns its bytes. `option`: that named the path.

    Raises `UsageError` where it cannot be written; what was there before is then as it was.
    """
    named, path = path, path.resolve()  # of a link, what it points to
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/null, a pipe: not to be replaced
            return path.write_bytes(text.encode())
        try:
            size_bytes = written.write_bytes(text.encode())
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {named}: cannot be written ({error.strerror}); name a file in a folder that is there"
        ) from error
    return size_bytes
