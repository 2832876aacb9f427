"""`open_dataset`: manifest and index of a finished dataset, of one state."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import CorruptDataError, UsageError
from .index import Index
from .manifest import Manifest, OtherVersionError

_ATTEMPTS = 3
"""A run that publishes replaces the manifest, then the index: either may happen between the two reads of an attempt."""


def open_dataset(out: Path, address: str | None = None) -> tuple[Manifest, Index]:
    """Opens manifest and index of OUT; where a run publishes a new state meanwhile, those of that state.

    `address`: of the store that they were fetched from, if `out` is a cache.
    Raises `UsageError` where OUT holds no finished dataset, `CorruptDataError` where one of them is damaged, or they
    are of two states of the dataset.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(CorruptDataError, UsageError):
            return _open(out, address)
    return _open(out, address)


def _open(out: Path, address: str | None) -> tuple[Manifest, Index]:
    try:
        manifest = Manifest.read(out)
    except OtherVersionError:
        raise
    except CorruptDataError as error:
        remedy = f"remove {out}, so that it is fetched again"
        if address is None:
            remedy = f"run `facefeed precompute SRC {out}`, which writes it again"
        raise CorruptDataError(f"{error}; {remedy}") from error
    index = Index(out, address)
    if index.fingerprint != manifest.fingerprint:
        raise CorruptDataError(
            f"{out}: index and manifest are of two states; finish `facefeed precompute`, or {index.remedy}"
        )
    return manifest, index
