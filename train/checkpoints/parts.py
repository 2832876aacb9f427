"""Checkpoints in parts: folders in which each rank has files of its own, as DeepSpeed saves them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

from torch import distributed

from .writing import write_file


def write_parts(files: Mapping[Path, Any], group: Any, abandoned: Event) -> None:
    """Writes this rank's files of a checkpoint, durably; once it returns, all ranks have. A collective call.

    files: contents by path, in folders that are there. group: of gloo, which nothing else uses meanwhile.
    Raises the error of any rank, such as an `OSError`, on all of them: none waits for one that has failed. It is an
    `AbandonedError` once `abandoned` is set on one.
    """
    errors: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(errors, _error_of_writing(files, abandoned), group=group)
    for error in errors:
        if error is not None:
            raise error


def _error_of_writing(files: Mapping[Path, Any], abandoned: Event) -> Exception | None:
    """Writes files; returns the error that ended it."""
    try:
        for path, contents in files.items():
            write_file(contents, path, abandoned)
            with path.open("rb") as file:
                os.fsync(file.fileno())
    except Exception as error:  # any: the other ranks wait
        return error
    return None
