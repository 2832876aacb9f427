"""How a complete checkpoint, a file or a folder, gets its name, so that a kill leaves it or the one before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ...pipeline.files import sync_folder


def publish(temporary: Path, path: Path) -> None:
    """Renames a complete checkpoint into place, durably: atomically a file over a file, else in two renames."""
    _sync(temporary)
    previous = previous_path(path)
    if temporary.is_dir() or path.is_dir() or previous.exists():
        if path.exists():  # otherwise a kill came between the two renames, and `previous` is the latest checkpoint
            remove(previous)
            path.rename(previous)
        temporary.rename(path)
        sync_folder(path.parent)  # before `previous` is gone: after a power failure one of them is there
        remove(previous)
        return
    temporary.replace(path)
    sync_folder(path.parent)


def find_checkpoint(path: Path) -> Path | None:
    """Returns the checkpoint at `path`, or the previous one if a kill came between the two renames of `publish`.

    None if there is neither. Renames nothing, since every rank calls it at a time of its own.
    """
    return next((candidate for candidate in (path, previous_path(path)) if candidate.exists()), None)


def recover(path: Path) -> bool:
    """Gives the previous folder its name again if a kill came between the two renames of `publish`; on one rank.

    Returns whether there is a checkpoint at `path` now.
    """
    if not path.exists() and previous_path(path).exists():
        previous_path(path).rename(path)
        sync_folder(path.parent)
    return path.exists()


def previous_path(path: Path) -> Path:
    """Where `publish` keeps the previous folder until the new one has its name."""
    return path.with_name(f".{path.name}.before")


def remove(path: Path) -> None:
    """Removes a checkpoint, a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Calls fsync on a file, or on a folder and all that is in it."""
    if path.is_dir():
        for child in path.iterdir():
            _sync(child)
        sync_folder(path)
    else:
        with path.open("rb") as file:
            os.fsync(file.fileno())
