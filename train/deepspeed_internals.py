"""All use of DeepSpeed's private parts. Checked with `CHECKED_DEEPSPEED`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHECKED_DEEPSPEED = "0.19"
"""The version with which this part was last read in DeepSpeed's source."""


def let_load_without_optimizer(engine: Any) -> None:
    """Lets an engine of ZeRO stage 3 that only tests load a checkpoint, which it would fail to do at the very end.

    The loaded weights become those of the optimizer, by a method that the stand-in of an engine without one lacks
    (deepspeedai/DeepSpeed#7272).
    """
    if engine.optimizer is not None and not hasattr(engine.optimizer, "_restore_from_bit16_weights"):
        engine.optimizer._restore_from_bit16_weights = _do_nothing  # noqa: SLF001


def _do_nothing() -> None:
    pass


@contextmanager
def staging_files(engine: Any, copy: Callable[[Any], Any]) -> Iterator[dict[Path, Any]]:
    """Context in which an engine that saves a checkpoint writes none of its files but the small ones.

    Yields copies of their contents, as `copy` makes them, by path; complete at the context's end.
    """
    writer = engine.checkpoint_engine
    engine.checkpoint_engine = staging = _StagingEngine(writer, copy)
    try:
        yield staging.files
    finally:
        engine.checkpoint_engine = writer


class _StagingEngine:
    """A `CheckpointEngine` of DeepSpeed that keeps copies of what it is to save."""

    def __init__(self, writer: Any, copy: Callable[[Any], Any]) -> None:
        self.files: dict[Path, Any] = {}
        self._writer, self._copy = writer, copy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def preserves_storage_sharing(self) -> bool:
        """Whether saved tensors are to be cloned first: they are copied."""
        return False

    def save(self, state_dict: Any, path: str) -> None:
        """Copies the contents of a file."""
        self.files[Path(path)] = self._copy(state_dict)
