"""Compressions of one recording, by names of folders or files: `x/c23/7.mp4` beside `x/7.mp4`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..folder_names import COMPRESSIONS, VIDEO_FOLDERS
from ..listing import Entry
from ..media.suffixes import split_video_suffix

_LEFT_OUT = COMPRESSIONS.keys() | VIDEO_FOLDERS


def join_compressions(entries: Sequence[Entry]) -> list[Entry]:
    """Sets one `footage` for videos, images and clips of frames whose paths differ in names of compressions alone.

    `entries`: with `footage` that follows from names, or none.
    """
    compressions_of: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for clip, compressions in _clips(entries):
        if compressions:
            compressions_of[clip].add(compressions)
    if not compressions_of:  # as mostly: then no clip is kept of millions
        return [*entries]
    for clip, compressions in _clips(entries):
        if clip in compressions_of:
            compressions_of[clip].add(compressions)
    return [
        replace(entry, footage=clip) if len(compressions_of.get(clip, ())) > 1 else entry
        for entry, (clip, _) in zip(entries, _clips(entries), strict=True)
    ]


def _clips(entries: Iterable[Entry]) -> Iterator[tuple[str, tuple[str, ...]]]:
    return (_without_compressions(entry.footage or entry.video_id) for entry in entries)


def _without_compressions(clip: str) -> tuple[str, tuple[str, ...]]:
    """The path of a clip without names of compressions, folders such as `videos` and a suffix; and the compressions.

    >>> _without_compressions("real/c23/videos/7.mp4"), _without_compressions("real/videos/7.avi")
    (('real/7', ('c23',)), ('real/7', ()))
    """
    parts = split_video_suffix(clip)[0].split("/")
    kept = [part for part in parts if part.lower() not in _LEFT_OUT] or parts
    return "/".join(kept), tuple(part.lower() for part in parts if part.lower() in COMPRESSIONS)
