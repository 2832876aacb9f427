"""Whether a file still holds the bytes that its rows were made from, whatever its time of change says.

A receipt keeps the SHA-256 of each input. It is of the whole file: a hash over samples would miss some changes without
a word. Hashing runs at more than a gigabyte a second and core, decoding at some megabytes.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path

_CHUNK_BYTES = 1 << 20

FileState = tuple[int, ...]


def file_state(path: Path) -> FileState | None:
    """What is another once the file is replaced or written to; None where there is no regular file."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def content_sha256(path: Path, *, cancelled: Callable[[], bool] = lambda: False) -> str | None:
    """Hex SHA-256 of a file's bytes; None where they cannot all be read, or `cancelled` says so on the way."""
    if file_state(path) is None:  # whoever opens a pipe waits for its writer
        return None
    digest, chunk = hashlib.sha256(), bytearray(_CHUNK_BYTES)
    try:
        with path.open("rb", buffering=0) as file:
            while size_bytes := file.readinto(chunk):
                if cancelled():
                    return None
                digest.update(memoryview(chunk)[:size_bytes])
    except OSError:
        return None
    return digest.hexdigest()
