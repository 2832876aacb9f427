"""Reading and writing of a run's checkpoint files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from ...pipeline.errors import StoppedError, UsageError
from ..checkpoints.plain import PlainCheckpointIO, read_checkpoint
from ..checkpoints.staging import copied_to_host
from ..checkpoints.writing import write_file

LAST, BEST = "last.ckpt", "best.ckpt"


class SafeCheckpointIO(PlainCheckpointIO):
    """Loads checkpoints as plain data, and writes them straight to their folder.

    Lightning first writes to the system's folder for temporary files, which is often small on clusters.
    """

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """See `read_checkpoint`."""
        outcome = "the run begins anew, or name another folder by --run"
        if Path(path).name == BEST:
            outcome = "the last weights are tested"
        try:
            return read_checkpoint(path, remedy=f"delete it, and {outcome}")
        except UsageError as error:
            if not isinstance(error.__cause__, FileNotFoundError | PermissionError):
                raise
            raise StoppedError(
                f"{path}: was there, and now {error.__cause__.strerror}; fix that, and run the same command again"
            ) from error

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Saves a checkpoint, or has a copy of it in host memory saved.

        storage_options: None, or a function that is called with a write, as `BackgroundWriter.start` is.
        Raises `OSError` with the file name if writing fails.
        """
        if storage_options is None:
            write_file(checkpoint, Path(path), Event())
        else:
            storage_options(partial(write_file, copied_to_host(checkpoint), Path(path)))
