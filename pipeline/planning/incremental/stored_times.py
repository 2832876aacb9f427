"""Inputs in a store that have another mtime than OUT has planned, only because that is found in another way now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...sources import Entry, FoundFile
from ...video.image_folder import list_frames


def planned_by_other_times(
    root: Path, planned: Mapping[str, tuple[Entry, str]], entries: Sequence[Entry], *, were_without_times: bool
) -> set[str]:
    """Ids of those `entries` that were planned with the time at which they were last modified, or without any.

    The former were all before ETags took the place of these times, the latter files of web servers and of Hugging Face
    before their times and hashes were read.

    Args:
        root: the outline of the store: its files were last accessed when those in the store were last modified.
        planned: entry and split of each planned input.
        entries: inputs that differ in their mtime alone.
        were_without_times: whether the store is one of these two.

    """
    before = (planned[entry.video_id][0] for entry in entries)
    return {each.video_id for each in before if (were_without_times and not each.mtime_ns) or _has_its_time(root, each)}


def _has_its_time(root: Path, planned: Entry) -> bool:
    path = root / planned.video_id
    if not planned.num_images:
        return path.stat().st_atime_ns == planned.mtime_ns
    statuses = [(name, (path / name).stat()) for name in list_frames(path)]
    frames = [(name, status.st_size, status.st_atime_ns) for name, status in statuses]
    return FoundFile.of_frames(planned.video_id, frames).images_digest == planned.images_digest
