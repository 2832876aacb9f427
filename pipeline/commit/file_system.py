"""What the commit protocol rests on, tried on files of its own: which of it the file system of OUT lacks.

| ability | without it |
|---|---|
| hard links | a file is published by renaming it, unless its name is there: between two runs, the lease decides alone |
| locks | a heartbeat tells whether another run is at work; after a killed one, the next waits for a minute |
| sync of folders | names are safe from a power failure when the file system writes them, which it does not say |
| mapping of files | refused: the index is read so |
"""

from __future__ import annotations

import uuid
from pathlib import Path

from ..dataset.out import OutPaths
from ..dataset.stores.writing import StoreFiles
from ..files import NO_HARD_LINKS, refuse_unmapped, stop_on_disk_error, sync_folder
from ..lock import supports_locks


def limits_of_file_system(paths: OutPaths) -> list[str]:
    """Sentences on what the file system of OUT lacks, and what is done in its place; none of a store.

    Raises `UsageError` where files cannot be mapped, or a store overwrites what is to be created; `StoppedError` where
    the disk fails or the store does not answer.
    """
    if isinstance(paths.files, StoreFiles):
        paths.files.refuse_unconditional()
        return []
    folder = paths.temporary
    attempt = folder / f"trial.{uuid.uuid4().hex}"
    linked = attempt.with_suffix(".linked")
    with stop_on_disk_error(attempt):
        try:
            attempt.write_bytes(b"\0")
            refuse_unmapped(attempt)
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
