"""Open a file and detect its format from its first bytes; by its name, only motion JPEG from a picture."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from typing import Literal

from ...errors import InputError

HEAD_BYTES = 64
_NEXT_JPEG = b"\xff\xd9\xff\xd8\xff"
"""The end of one picture and the start of the next."""
_MAX_JPEG_BYTES = 1 << 24

FileKind = Literal["jpeg", "png", "webp", "bmp", "tiff", "ppm", "video"]


@dataclass(frozen=True, slots=True)
class MediaFile:
    """An open, non-empty regular file. The caller closes `fd`. kind: a picture format, or `video` for all else."""

    fd: int
    size_bytes: int
    head: bytes
    kind: FileKind


def open_media_file(path: str) -> MediaFile:
    """Open a file for reading; raises InputError: empty or unreadable."""
    try:
        # O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable_error(error) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InputError("unreadable", f"it is {what}")
        if status.st_size == 0:
            raise InputError("empty", "0 bytes")
        head = os.pread(fd, HEAD_BYTES, 0)
        kind = _sniff_kind(head)
        # The name counts too: photos may hold a second JPEG behind the first, as a gain map.
        if kind == "jpeg" and path.lower().endswith(".mjpeg"):
            kind = "video" if _NEXT_JPEG in os.pread(fd, _MAX_JPEG_BYTES, 0) else kind
    except OSError as error:
        os.close(fd)
        raise unreadable_error(error) from None
    except InputError:
        os.close(fd)
        raise
    return MediaFile(fd, status.st_size, head, kind)


def unreadable_error(error: OSError) -> InputError:
    """Return the InputError for an error of the operating system."""
    name = errno.errorcode.get(error.errno or 0, "error")
    return InputError("unreadable", f"{name}: {error.strerror or error}")


def _sniff_kind(head: bytes) -> FileKind:
    """Return the picture format, or video. GIF counts as video, since most GIFs of faces are animated."""
    starts: tuple[tuple[FileKind, tuple[bytes, ...]], ...] = (
        ("jpeg", (b"\xff\xd8\xff",)),
        ("png", (b"\x89PNG\r\n\x1a\n",)),
        ("tiff", (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")),
    )
    for kind, magics in starts:
        if head.startswith(magics):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "webp"
    if head[:2] == b"BM" and head[6:10] == bytes(4) and head[15:18] == bytes(3):
        return "bmp"
    if re.match(rb"P[1-6]\s+(#.*\s+)*\d", head):
        return "ppm"
    return "video"
