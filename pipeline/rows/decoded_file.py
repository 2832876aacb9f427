"""The file of an input while it is decoded: whether it is the one that was planned, and stays so to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..planning.content_hash import StatSignature, content_sha256, latest_mtime_ns, stat_signature
from ..sources import Entry, digest_of_images

MTIME_OF_CHANGED_FILE = -1
"""In an outcome's `mtime_ns`: no file has it, so that a later run computes the input again, whatever it holds then."""


class DecodedFile:
    """Made before `entry` is decoded, of which `path` is the file or folder; asked for the rest afterwards.

    roots: folders that links may lead into.
    exists: whether the input may be looked at; a link out of the source may not.
    """

    def __init__(self, entry: Entry, path: Path, roots: Sequence[Path], *, exists: bool) -> None:
        self._entry, self._path, self._roots = entry, path, roots
        self._signature = stat_signature(path, roots) if exists else None
        # Images may have been replaced by older ones: their latest mtime is then as it was planned.
        self._is_other_clip = bool(
            exists and entry.images_digest and digest_of_images(path, roots) != entry.images_digest
        )

    def sha256(self, cancelled: Callable[[], bool]) -> str | None:
        """The hash of what was decoded; None where the file is missing, or changed meanwhile."""
        return sha256_if_unchanged(self._path, self._roots, self._signature, cancelled)

    def mtime_ns(self) -> int:
        """The mtime of what was decoded, in nanoseconds; `MTIME_OF_CHANGED_FILE` where that is uncertain."""
        if self._signature is None:
            return self._entry.mtime_ns
        if self._is_other_clip or stat_signature(self._path, self._roots) != self._signature:
            return MTIME_OF_CHANGED_FILE
        return latest_mtime_ns(self._signature)


def sha256_if_unchanged(
    path: Path, roots: Sequence[Path], before: StatSignature | None, cancelled: Callable[[], bool]
) -> str | None:
    """The hash of a file; None if it is missing, has changed since `before`, or `cancelled()` becomes true."""
    digest = content_sha256(path, roots, cancelled=cancelled) if before else None
    return digest if stat_signature(path, roots) == before else None
