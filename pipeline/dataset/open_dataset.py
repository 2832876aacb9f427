"""`open_dataset`: manifest and index of a finished dataset, of one state."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import CorruptDataError, UsageError
from .index import Index
from .manifest import Manifest

_LOOKS = 3
"""A run that publishes moves the manifest, then the index: each may be met between two of the reads of a look."""


def open_dataset(out: Path) -> tuple[Manifest, Index]:
    """Opens manifest and index of OUT; where a run publishes a new state meanwhile, those of that state.

    Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where one of them is damaged, or they
    are of two states of the dataset.
    """
    for _ in range(_LOOKS - 1):
        with suppress(CorruptDataError, UsageError):
            return _look(out)
    return _look(out)


def _look(out: Path) -> tuple[Manifest, Index]:
    manifest, index = Manifest.read(out), Index(out)
    if index.fingerprint != manifest.fingerprint:
        raise CorruptDataError(
            f"{out}: index and manifest are of two states; finish `facefeed precompute`, or run "
            f"`facefeed verify {out} --rebuild-index`"
        )
    return manifest, index
