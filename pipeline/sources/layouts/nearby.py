"""Finds published sets above or below SRC, which read as a plain folder would lose most of its labels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from ...errors import UsageError
from ..layout import Layout
from ..media.media_files import listable_folders
from .celebdf import dataset_root

_MAX_LISTED = 3
_MAX_DEPTH = 3
_MAX_FOLDERS = 2000  # looked into; where a clip is a folder of frames there may be a hundred thousand


def refuse_nearby_dataset(src: Path, layouts: Iterable[Layout]) -> None:
    """Raises `UsageError` where `src`, which none of `layouts` fits, contains folders that fit, or is part of a set.

    Folders are looked for three levels down, in `_MAX_FOLDERS` folders at most, nearest first.
    """
    alternative = "or read it as it lies with --layout folder"
    if root := dataset_root(src):
        raise UsageError(
            f"SRC={str(src)!r}: is one folder of a celebdf set, and says alone neither originals nor what is real: "
            f"name {str(root)!r}, {alternative}"
        )
    nested = list(_nested_sets(src, tuple(layouts)))
    if nested:
        named = " and ".join(f"a {layout} set in {name!r}" for name, layout in nested[:_MAX_LISTED])
        more = f" and {len(nested) - _MAX_LISTED:,} more" if len(nested) > _MAX_LISTED else ""
        which = "that folder" if len(nested) == 1 else "one of these folders"
        raise UsageError(f"SRC={str(src)!r}: holds {named}{more}: name {which}, {alternative}")


def _nested_sets(src: Path, layouts: Sequence[Layout]) -> Iterator[tuple[str, str]]:
    """Path relative to `src` and layout of each set below it; none within another."""
    for folder in islice(_folders_below(src, layouts), _MAX_FOLDERS):
        layout = next((layout.name for layout in layouts if layout.fits(folder)), None)
        if layout:
            yield folder.relative_to(src).as_posix(), layout


def _folders_below(src: Path, layouts: Sequence[Layout]) -> Iterator[Path]:
    pending = deque([(src, 0)])
    while pending:
        folder, depth = pending.popleft()
        if depth:
            yield folder
        if depth < _MAX_DEPTH and not (depth and any(layout.fits(folder) for layout in layouts)):
            pending.extend((folder / name, depth + 1) for name in listable_folders(folder))
