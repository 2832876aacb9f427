"""Errors of torch and of the operating system in a run, converted to those with an exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from ...pipeline.errors import FacefeedError, StoppedError
from ...pipeline.files import memory_text
from ..checkpoints.publication import find_checkpoint
from ..config.recipes import Config
from ..torch_internals import raising_memory_errors
from .checkpoint_io import LAST
from .folder import RunFolder


class OutOfMemoryError(FacefeedError):
    """A step needs more device memory than there is.

    Exit code 1, not 75: with the same settings the same command would end at the same step again.
    """

    exit_code = 1


@contextmanager
def converting_library_errors(run: Path, config: Config) -> Iterator[None]:
    """Context that converts errors of the run in the folder `run`."""
    try:
        with raising_memory_errors():
            yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"batch_size={config.data.batch_size}: a step needs more memory than the GPU has; take a smaller "
            "data.batch_size with accumulate:N for it, or the levers bf16 (or fp16), checkpointing, adamw8bit; where "
            f"{run} has a checkpoint, name another --run for other settings"
        ) from error
    except MemoryError as error:
        raise StoppedError(f"{run}: stopped, {memory_text(error)}; {_kept(run)}") from error
    except RuntimeError as error:
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise StoppedError(
            f"{run}: stopped, another rank was lost ({str(error).splitlines()[0]}); {_kept(run)}: "
            "run the same command again"
        ) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise StoppedError(
            f"{run}: stopped, {where}{error.strerror or error}; {_kept(run)}: fix that, and run the same command again"
        ) from error


def _kept(run: Path) -> str:
    """Says what a run resumes from."""
    with suppress(OSError):  # of a disk that fails
        if find_checkpoint(RunFolder(run).checkpoints / LAST) is None:
            return "there is no checkpoint yet"
    return "the last checkpoint is complete"
