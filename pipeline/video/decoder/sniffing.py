"""What a file is, by its first bytes and never by its name."""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from typing import Literal

from ...errors import InputError

HEAD_BYTES = 64

Kind = Literal["jpeg", "png", "webp", "bmp", "tiff", "ppm", "video"]


@dataclass(frozen=True, slots=True)
class Content:
    """An open regular file that is not empty. fd is the owner's to close; kind `video` is all that is no picture."""

    fd: int
    size_bytes: int
    head: bytes
    kind: Kind


def open_content(path: str) -> Content:
    """Open a file for reading; raises InputError: empty, or unreadable (why is in the detail)."""
    try:
        # O_NONBLOCK: a named pipe would otherwise wait for its writer for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(error) from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise InputError("unreadable", f"it is {what}")
        if status.st_size == 0:
            raise InputError("empty", "0 bytes")
        head = os.pread(fd, HEAD_BYTES, 0)
    except OSError as error:
        os.close(fd)
        raise unreadable(error) from None
    except InputError:
        os.close(fd)
        raise
    return Content(fd, status.st_size, head, _kind(head))


def unreadable(error: OSError) -> InputError:
    """The InputError for what the operating system said."""
    name = errno.errorcode.get(error.errno or 0, "error")
    return InputError("unreadable", f"{name}: {error.strerror or error}")


def _kind(head: bytes) -> Kind:
    """The picture format, or video. GIF counts as video: most of those that show faces move."""
    starts: tuple[tuple[Kind, tuple[bytes, ...]], ...] = (
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
