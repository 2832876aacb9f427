"""`process_folder`: a folder for as long as a process works; those that killed ones left are removed."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..cache_space import IN_USE, try_lock


@contextmanager
def process_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yields a new folder, and removes it at the end of the block.

    A process that is killed leaves its folder, but not the lock on a file in it, by which the next one on this host
    knows that it can be removed. Folders of other hosts stay: their locks may not reach this one.

    Args:
        prefix: beginning of its name, the same for all processes of a kind.
        parent: where it is made; None for the temporary files.

    Raises:
        OSError: it cannot be made.

    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(parent, prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
    lock = None
    try:
        lock = _lock(folder)
        yield folder
    finally:
        _remove(folder)
        if lock is not None:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)  # on NFS the lock file is there, under another name, until it closes


def _lock_file(folder: Path) -> Path:
    return folder / f"{IN_USE}-{socket.gethostname()}"


def _lock(folder: Path) -> int:
    unlocked = folder / "unlocked"
    descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # without locks it is never known to be abandoned
        if try_lock(descriptor, 0):
            unlocked.rename(_lock_file(folder))  # only now: a lock file that is not locked is an abandoned one
    return descriptor


def _remove(folder: Path) -> None:
    """Removes a folder, its lock file last: without one, what a kill leaves of it would stay for ever."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path != _lock_file(folder):
                shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # without a lock file, or another user's
            descriptor = os.open(_lock_file(folder), os.O_RDWR | os.O_CLOEXEC)
            try:
                is_abandoned = try_lock(descriptor, 0)
                if is_abandoned:
                    _remove(folder)
            finally:
                os.close(descriptor)
            if is_abandoned:
                shutil.rmtree(folder, ignore_errors=True)
