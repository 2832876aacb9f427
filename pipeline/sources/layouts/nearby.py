"""A published set one level above or below SRC: read as a plain folder, most of its labels would be lost or wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...errors import UsageError
from ..layout import Layout
from ..media_files import list_folders
from .celebdf import dataset_root

_NAMED = 3


def refuse_nearby_dataset(src: Path, layouts: Iterable[Layout]) -> None:
    """Raises `UsageError` where `src`, a folder that none of `layouts` fits, holds one that fits, or is part of one.

    Only the folders right below `src` are looked at.
    """
    as_it_lies = "or read it as it lies with --layout folder"
    if whole := dataset_root(src):
        raise UsageError(
            f"SRC={str(src)!r}: is one folder of a celebdf set, and says alone neither originals nor what is real: "
            f"name {str(whole)!r}, {as_it_lies}"
        )
    held = [(name, layout.name) for name in list_folders(src) for layout in layouts if layout.fits(src / name)]
    if held:
        named = " and ".join(f"a {layout} set in {name!r}" for name, layout in held[:_NAMED])
        more = f" and {len(held) - _NAMED:,} more" if len(held) > _NAMED else ""
        which = "that folder" if len(held) == 1 else "one of these folders"
        raise UsageError(f"SRC={str(src)!r}: holds {named}{more}: name {which}, {as_it_lies}")
