"""Content hashes of inputs: whether a file with a new mtime still holds the bytes its rows were made from.

A receipt stores the SHA-256 of each input; of a clip of images, that of their names and bytes. The hash covers the
whole file: a hash over samples would silently miss some changes. One core hashes more than a gigabyte per second and
decodes a few megabytes per second.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from ..video.image_folder import list_frames

_CHUNK_BYTES = 1 << 20

StatSignature = tuple[int, ...]
_NUM_FIELDS = 5  # of one file


def stat_signature(path: Path, roots: Sequence[Path] = ()) -> StatSignature | None:
    """Device, inode, size, mtime and ctime of a regular file, which change when it is replaced or written to.

    Of a folder, those of its images, one after the other; `roots`: further folders that links to them may lead into.
    None where there is no regular file.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            signatures = [stat_signature(path / name) for name in list_frames(path, roots)]
            return None if not signatures or None in signatures else tuple(chain(*filter(None, signatures)))
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def latest_mtime_ns(signature: StatSignature) -> int:
    """Mtime of the file that a signature is of; of a folder, the latest of its images, as in `Entry`."""
    return max(signature[3::_NUM_FIELDS])


def content_sha256(
    path: Path, roots: Sequence[Path] = (), *, cancelled: Callable[[], bool] = lambda: False
) -> str | None:
    """Hex SHA-256 of a file's bytes; None where they cannot all be read or `cancelled()` becomes true.

    Of a folder, that of the names and hashes of its images; `roots` as in `stat_signature`.
    """
    if path.is_dir():
        return _folder_sha256(path, roots, cancelled)
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


def _folder_sha256(folder: Path, roots: Sequence[Path], cancelled: Callable[[], bool]) -> str | None:
    try:
        names = list_frames(folder, roots)
    except OSError:
        return None
    digest = hashlib.sha256()
    for name in names:
        image_sha256 = content_sha256(folder / name, cancelled=cancelled)
        if image_sha256 is None:
            return None
        digest.update(f"{name}\0{image_sha256}\n".encode())
    return digest.hexdigest() if names else None
