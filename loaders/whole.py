"""A file that is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ..pipeline.errors import UsageError


def write_whole(text: str, path: Path, option: str) -> int:
    """Writes `text` beside `path` and puts it in its place; returns its bytes. `option`: that named the path.

    Raises `UsageError` where it cannot be written; what was there before is then as it was.
    """
    named, path = path, path.resolve()  # of a link, what it points to
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # /dev/null, a pipe: not to be replaced
            return path.write_bytes(text.encode())
        try:
            size_bytes = written.write_bytes(text.encode())
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {named}: cannot be written ({error.strerror}); name a file in a folder that is there"
        ) from error
    return size_bytes
