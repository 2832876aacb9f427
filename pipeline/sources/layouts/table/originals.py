"""Originals that a table names as sources of fakes, and that are no rows themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....console import first_names
from ....errors import UsageError
from ...listing import FoundFile
from ...media.allowed_roots import allow_root_options, relative_name, resolved_root
from ...media.media_files import find_named
from .row import Row


def unlisted_originals(src: Path, rows: Sequence[Row], allowed: Sequence[Path]) -> dict[str, FoundFile | None]:
    """Originals that no row lists, sorted, with their file or folder; None for those that are not on disk.

    Raises `UsageError` where one is a folder of other things than images.
    """
    listed = {relative_name(src.parent, row.path) for row in rows}
    row_of = {source: row for row in reversed(rows) if (source := row.source_id)}
    root = resolved_root(src.parent)
    found: dict[str, FoundFile | None] = {}
    for source in sorted(row_of.keys() - listed):
        holds_table = root.is_relative_to(os.path.normpath(root / source))
        found[source] = None if holds_table else find_named(src.parent, source, allowed)
        if holds_table or (found[source] is None and _is_folder(src.parent / source)):
            row = row_of[source]
            raise UsageError(
                f"{src}: {row.position}: source {row.cells['source']!r} of {row.path!r} is a "
                "folder without images; a source is the original that a fake was made from, a video, an image or a "
                "folder of its frames: name that, or leave the cell empty"
            )
    return found


def outside_warning(src: Path, originals: Mapping[str, FoundFile | None]) -> tuple[str, ...]:
    """A warning of the unlisted `originals` that lie outside the allowed roots, if there are any."""
    outside = [original for original, file in originals.items() if file and file.problem == "outside_root"]
    if not outside:
        return ()
    return (
        f"originals outside the folder of {src.name}: {len(outside):,} ({first_names(outside)}); none is read, so "
        f"their fakes get no mask by comparison: {allow_root_options(src.parent, outside)} reads them",
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False
