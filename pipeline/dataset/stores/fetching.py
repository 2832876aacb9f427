"""`fetch_file`: a version of a store's file, copied whole to the local disk; `fetch_latest`: the latest one."""

from __future__ import annotations

import os
from pathlib import Path

from ...files import write_at
from .blocks import BLOCK_BYTES
from .concurrent import map_on_threads
from .remote_files import RemoteFiles
from .stored_file import StoredFile

_ATTEMPTS = 3


def fetch_file(files: RemoteFiles, stored: StoredFile, target: Path) -> bool:
    """Copies a file by requests of some MB, several at once; returns whether it is still that version afterwards.

    Raises as `RemoteFiles.read`, and `OSError` where the local disk fails.
    """
    with target.open("wb") as file:

        def fetch(start: int) -> None:
            end = min(start + BLOCK_BYTES, stored.size_bytes)
            data = files.read(stored.name, start, end)
            if len(data) != end - start and files.stat(stored.name) == stored:  # a hole would be read as zeros
                data = files.read(stored.name, start, end, is_within=True)
            write_at(file.fileno(), data, start)

        map_on_threads(fetch, range(0, stored.size_bytes, BLOCK_BYTES))
    return files.stat(stored.name) == stored and target.stat().st_size == stored.size_bytes


def fetch_latest(files: RemoteFiles, name: str, target: Path) -> bool:
    """Copies a file with its mtime; returns False, without a copy, where it changes again and again meanwhile.

    Raises as `fetch_file`.
    """
    for _ in range(_ATTEMPTS):
        stored = files.stat(name)
        if fetch_file(files, stored, target):
            os.utime(target, ns=(stored.mtime_ns, stored.mtime_ns))
            return True
    target.unlink(missing_ok=True)
    return False
