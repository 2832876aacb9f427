"""`open_dataset`: manifest and index of a finished dataset, of one state."""

from __future__ import annotations

from pathlib import Path

from ..errors import CorruptDataError
from .index import Index
from .manifest import Manifest


def open_dataset(out: Path) -> tuple[Manifest, Index]:
    """Opens manifest and index of OUT.

    Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where one of them is damaged, or they
    are of two states of the dataset.
    """
    manifest, index = Manifest.read(out), Index(out)
    if index.fingerprint != manifest.fingerprint:
        raise CorruptDataError(
            f"{out}: index and manifest are of two states; finish `facefeed precompute`, or run "
            f"`facefeed verify {out} --rebuild-index`"
        )
    return manifest, index
