"""What takes long to make and is the same for many tests: made once in a test run, by whichever process needs it first.

The processes of a run (pytest-xdist's) share a folder; each test gets a copy of its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

_folder: Path | None = None


def share(folder: Path | None) -> None:
    """What is made from now on lies in `folder`, which other processes may use too; None: nothing is shared."""
    global _folder  # noqa: PLW0603 (one for a process)
    _folder = folder


def made_once(name: str, make: Callable[[Path], object], target: Path) -> None:
    """Puts at `target` what `make` makes there: a copy of what it has made for this `name` before, if it has.

    Without a shared folder, as in a process that a test has started, it is made each time.
    """
    if _folder is None:
        make(target)
        return
    kept = _folder / name
    with (_folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            unfinished = _folder / f"{name}.{os.getpid()}"
            make(unfinished)
            unfinished.rename(kept)
    shutil.copytree(kept, target, symlinks=True, dirs_exist_ok=True)
