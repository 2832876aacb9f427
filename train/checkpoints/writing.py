"""Writing of a checkpoint's file, which a process that ends at once can give up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import torch


class AbandonedError(Exception):
    """The write was given up: the process ends at once."""


def write_file(contents: dict[str, Any], path: Path, abandoned: Event) -> None:
    """Writes tensor by tensor, without a copy in memory.

    Raises `OSError` with the file name if writing fails, and `AbandonedError` once `abandoned` is set.
    """
    with raising_disk_errors(path), path.open("wb") as file:
        torch.save(contents, AbandonableFile(file, abandoned))


@contextmanager
def raising_disk_errors(path: Path) -> Iterator[None]:
    """Context in which `torch.save` raises an `OSError`, with a file name, where writing fails."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # torch hides an OSError, and Ctrl-C, behind an error of closing the archive
        reason = error if isinstance(error, OSError) else error.__context__
        if not isinstance(reason, (OSError, KeyboardInterrupt, AbandonedError)):
            raise
        if isinstance(reason, OSError):
            reason.filename = reason.filename or str(path)
        raise reason from None


class AbandonableFile:
    """A file whose writes raise `AbandonedError` once `abandoned` is set."""

    def __init__(self, file: BinaryIO, abandoned: Event) -> None:
        self._file, self._abandoned = file, abandoned

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: Any) -> int:
        """Writes bytes; returns how many."""
        if self._abandoned.is_set():
            raise AbandonedError
        return self._file.write(data)
