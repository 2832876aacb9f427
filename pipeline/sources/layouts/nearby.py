"""Detects a published set one level above or below SRC, which read as a plain folder would lose most of its labels."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...errors import UsageError
from ..layout import Layout
from ..media_files import list_folders
from .celebdf import dataset_root

_MAX_LISTED = 3


def refuse_nearby_dataset(src: Path, layouts: Iterable[Layout]) -> None:
    """Raises `UsageError` where `src`, which none of `layouts` fits, contains a folder that fits, or is part of a set.

    Only the folders directly below `src` are checked.
    """
    alternative = "or read it as it lies with --layout folder"
    if root := dataset_root(src):
        raise UsageError(
            f"SRC={str(src)!r}: is one folder of a celebdf set, and says alone neither originals nor what is real: "
            f"name {str(root)!r}, {alternative}"
        )
    nested = [(name, layout.name) for name in list_folders(src) for layout in layouts if layout.fits(src / name)]
    if nested:
        named = " and ".join(f"a {layout} set in {name!r}" for name, layout in nested[:_MAX_LISTED])
        more = f" and {len(nested) - _MAX_LISTED:,} more" if len(nested) > _MAX_LISTED else ""
        which = "that folder" if len(nested) == 1 else "one of these folders"
        raise UsageError(f"SRC={str(src)!r}: holds {named}{more}: name {which}, {alternative}")
