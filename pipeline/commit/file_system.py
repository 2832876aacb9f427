"""What the commit protocol rests on, tried on files of its own: which of it the file system of OUT lacks.

| ability | without it |
|---|---|
| hard links | a file is published by renaming it, unless its name is there: between two runs, the lease decides alone |
| locks | a heartbeat tells whether another run is at work; after a killed one, the next waits for a minute |
| sync of folders | names are safe from a power failure when the file system writes them, which it does not say |
| mapping of files | refused: the index is read so |
"""

from __future__ import annotations

import mmap
import uuid
from pathlib import Path

from ..errors import UsageError
from ..files import NO_HARD_LINKS, NO_MAPPING, stop_on_disk_error, sync_folder
from ..lock import supports_locks


def limits_of_file_system(folder: Path) -> list[str]:
    """Sentences on what the file system of `folder`, which exists, lacks, and what is done in its place.

    Raises `UsageError` where files cannot be mapped, `StoppedError` where the disk fails.
    """
    attempt = folder / f"trial.{uuid.uuid4().hex}"
    linked = attempt.with_suffix(".linked")
    with stop_on_disk_error(attempt):
        try:
            attempt.write_bytes(b"\0")
            _refuse_unmapped(attempt)
            limits = []
            if not _can_link(attempt, linked):
                limits.append("no hard links: finished files are renamed, and the lease alone keeps two runs apart")
            if not supports_locks(attempt):
                limits.append("no locks: after a run that was killed, the next waits for a minute")
            if not sync_folder(folder):
                limits.append(
                    "folders cannot be synced: a power failure may cost finished units; after one, run the same "
                    "command again"
                )
        finally:
            attempt.unlink(missing_ok=True)
            linked.unlink(missing_ok=True)
    return limits


def _can_link(attempt: Path, linked: Path) -> bool:
    try:
        linked.hardlink_to(attempt)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        return False
    return True


def _refuse_unmapped(attempt: Path) -> None:
    with attempt.open("rb") as file:
        try:
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).close()
        except OSError as error:
            if error.errno not in NO_MAPPING:
                raise
            raise UsageError(
                f"{attempt.parent}: its file system cannot map files into memory ({error.strerror}), by which the "
                "dataset is read; take a folder on another one, or mount it without direct I/O"
            ) from error
