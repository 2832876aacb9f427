"""Files that a table names more than once: by their own name and by a link, or by several links."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from ...errors import UsageError
from ..listing import Entry
from .allowed_roots import resolved_root

LISTED_ALREADY = "links to files that are listed already"
_OF_THE_NAME = {"video_id", "footage"}  # without a value of its own, the footage is the name


def each_file_once(src: Path, entries: Sequence[Entry], ignored: Counter[str]) -> list[Entry]:
    """The entries without those that are links to a file or folder of another one; these are counted in `ignored`.

    An entry stays under the file's own name or, where only links to it are listed, under the first of these by name.
    Originals that are named by a link that is left out become what it leads to.

    Args:
        src: the table; paths are relative to its folder.
        entries: its rows, sorted by id.
        ignored: counter of files that are no inputs.

    Raises:
        UsageError: the rows of one file differ in more than their path.

    """
    root = resolved_root(src.parent)
    names: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if not entry.problem:
            names[os.path.realpath(root / entry.video_id)].append(entry)
    kept_as: dict[str, str] = {}
    for file, same in names.items():
        kept = next((entry for entry in same if str(root / entry.video_id) == file), same[0])
        for entry in same:
            if entry is not kept:
                _refuse_other_values(src, kept, entry)
                kept_as[entry.video_id] = kept.video_id
    if not kept_as:
        return list(entries)
    ignored[LISTED_ALREADY] += len(kept_as)
    return [
        replace(entry, source_id=kept_as[entry.source_id]) if entry.source_id in kept_as else entry
        for entry in entries
        if entry.video_id not in kept_as
    ]


def _refuse_other_values(src: Path, kept: Entry, entry: Entry) -> None:
    names = [each.name for each in fields(Entry) if each.name not in _OF_THE_NAME]
    if other := next((name for name in names if getattr(kept, name) != getattr(entry, name)), None):
        raise UsageError(
            f"{src}: names {kept.video_id!r} and {entry.video_id!r}, which are one file by a link, with different "
            f"values ({other}); each input may have one label, and is listed once: drop one of the two rows"
        )
