"""Matches files of a published set by folder and stem: `033.MP4` or `033.mkv` is the set's `033.mp4`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ....errors import UsageError
from ...clips.image_sequences import FramePath, video_of_frame
from ...media.suffixes import VIDEO_SUFFIXES

_SUFFIX_OF_FOLDER = re.compile(rf"({'|'.join(map(re.escape, sorted(VIDEO_SUFFIXES)))})(?=/)")


def stem_of(name: str) -> str:
    """Folder and stem in lower case: the same whatever suffix or case a copy of the video, or its folder, has.

    >>> stem_of("real/033.MKV"), stem_of("real/033.mp4/0001.png")
    ('real/033', 'real/033/0001')
    """
    return _SUFFIX_OF_FOLDER.sub("", posixpath.splitext(name)[0].lower())


def published_path(relative: str) -> str:
    """Path of a video, or of the one that an extracted frame is of, without a folder for videos above it.

    >>> published_path("Celeb-real/videos/id0_0000.mp4"), published_path("Celeb-real/frames/id0_0000/001.png")
    ('Celeb-real/id0_0000.mp4', 'Celeb-real/id0_0000.mp4')
    """
    *folders, name = video_of_frame(relative).split("/")
    return "/".join([*(folders[:-1] if folders and folders[-1].lower() == "videos" else folders), name])


def path_of_original(relative: str, top: str, name: str) -> str:
    """Path of the original `name`, or of its frame of that number, which lies below `top` as the fake's below its own.

    >>> path_of_original("fake/videos/0000_fake.mp4", "real", "0000")
    'real/videos/0000.mp4'
    >>> path_of_original("fake/faces/0000_fake/001.png", "real", "0000")
    'real/faces/0000/001.png'
    """
    if frame := FramePath.parse(relative):
        return "/".join([top, *frame.above[1:], f"{name}{frame.suffix}", frame.below])
    *folders, file = relative.split("/")
    return "/".join([top, *folders[1:], f"{name}{posixpath.splitext(file)[1]}"])


def refuse_disjoint(table: Path, listed: Collection[str], on_disk: Collection[str]) -> None:
    """Raises `UsageError` where metadata names none of the files that are there: their paths start elsewhere."""
    if listed and on_disk and set(listed).isdisjoint(on_disk):
        raise UsageError(
            f"{table}: names none of the {len(on_disk):,} files (its first: {min(listed)!r}, on disk: "
            f"{min(on_disk)!r}); no label would be known: put the metadata where its paths start from"
        )


@dataclass(frozen=True)
class NameMatcher:
    """Finds paths, relative to the root, by their `stem_of`."""

    paths_by_stem: dict[str, list[str]]

    @classmethod
    def from_paths(cls, names: Iterable[str]) -> Self:
        """Indexes `names`; where several have the same stem, `find` prefers the first."""
        paths_by_stem: dict[str, list[str]] = {}
        for name in names:
            paths_by_stem.setdefault(stem_of(name), []).append(name)
        return cls(paths_by_stem)

    def find(self, name: str) -> str:
        """The path `name` itself if it exists, else the first one with its folder and stem, else `name` unchanged."""
        candidates = self.paths_by_stem.get(stem_of(name), [name])
        return name if name in candidates else candidates[0]

    def missing(self, names: Iterable[str]) -> dict[str, str]:
        """Those of `names` that have no file under any suffix, by stem; of several with one stem the first in order."""
        by_stem = {stem_of(name): name for name in sorted(names, reverse=True)}
        return {stem: name for stem, name in by_stem.items() if stem not in self.paths_by_stem}
