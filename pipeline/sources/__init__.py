"""Where videos come from: each layout turns a folder or table into one `Listing` of entries."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UsageError
from . import dfdc, folder, table
from .listing import Entry, Listing

LAYOUTS = ("auto", "dfdc", "folder", "table")
_READERS = {"dfdc": dfdc.read, "folder": folder.read, "table": table.read}

__all__ = ["LAYOUTS", "Entry", "Listing", "list_source", "recognise"]


def recognise(src: Path) -> str:
    """The layout that `src` has: a table file, DFDC's parts, or a folder of media."""
    if table.fits(src):
        return "table"
    if dfdc.fits(src):
        return "dfdc"
    return "folder"


def list_source(src: Path, layout: str = "auto") -> Listing:
    """Lists every input below `src`, with what the layout knows of it; opens no media.

    Raises `UsageError` where `src` is not there, holds nothing to read, or its metadata cannot be parsed.
    """
    if not os.access(src, os.F_OK):
        raise UsageError(f"SRC={str(src)!r}: no such file or folder")
    if not os.access(src, os.R_OK | (os.X_OK if src.is_dir() else 0)):
        raise UsageError(f"SRC={str(src)!r}: may not be read by this user; nothing in it can be listed")
    if layout not in LAYOUTS:
        raise UsageError(f"layout={layout!r}: must be one of {', '.join(LAYOUTS)}")
    name = recognise(src) if layout == "auto" else layout
    if (name == "table") != src.is_file():
        needs = "a .csv or .parquet file" if name == "table" else "a folder"
        raise UsageError(f"SRC={str(src)!r}: layout {name} needs {needs}")
    listing = _READERS[name](src)
    if not listing.entries and listing.missing:
        raise UsageError(
            f"SRC={str(src)!r}: none of the {len(listing.missing)} files it lists is below {listing.root} "
            f"(the first: {listing.missing[0]!r}); paths are relative to that folder"
        )
    if not listing.entries:
        raise UsageError(f"SRC={str(src)!r}: holds no video and no image; nothing to do")
    return listing
