"""Content hashes of input files: whether a file with a new mtime still holds the bytes its rows were made from.

A receipt stores the SHA-256 of each input. The hash covers the whole file: a hash over samples would silently miss some
changes. One core hashes more than a gigabyte per second and decodes a few megabytes per second.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable
from pathlib import Path

_CHUNK_BYTES = 1 << 20

StatSignature = tuple[int, ...]


def stat_signature(path: Path) -> StatSignature | None:
    """Device, inode, size, mtime and ctime of a regular file, which change when it is replaced or written to.

    None where there is no regular file.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def content_sha256(path: Path, *, cancelled: Callable[[], bool] = lambda: False) -> str | None:
    """Hex SHA-256 of a file's bytes; None where they cannot all be read or `cancelled()` becomes true."""
    if stat_signature(path) is None:  # opening a pipe blocks until there is a writer
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
