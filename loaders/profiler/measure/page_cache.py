"""Whether files came from storage or from memory: the page cache, emptied on purpose, and what was really read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from ....pipeline.dataset.manifest import OutPaths


def bytes_read() -> int | None:
    """What storage has delivered to this process and those below it; None where the system does not say."""
    try:
        here = psutil.Process()
        found = int(here.io_counters().read_bytes)
    except (psutil.Error, AttributeError, OSError, NotImplementedError):
        return None
    for child in here.children(recursive=True):
        try:
            found += int(child.io_counters().read_bytes)
        except (psutil.Error, OSError):  # it has ended meanwhile, or is another user's
            continue
    return found


def files_of(loader: Any) -> list[Path]:
    """The files that a loader's rows lie in; none where that is not known."""
    out = getattr(getattr(loader, "dataset", None), "out", None)
    return sorted(OutPaths(out).faces.rglob("*.parquet")) if isinstance(out, Path) else []


def evict(files: Iterable[Path]) -> None:
    """Asks the system to forget what it holds of some files. It may decline: `bytes_read` says what came of it."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
