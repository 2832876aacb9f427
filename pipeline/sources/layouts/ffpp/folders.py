"""What both forms of FaceForensics++ have in common: which folders hold its videos, and what a path says of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ....errors import UsageError
from ...folder_names import COMPRESSIONS, VIDEO_FOLDERS, class_of_folder
from ...media.media_files import listable_names
from ..names.name_matcher import stem_of
from ..names.spelling import by_spelling
from .names import PEOPLE, VideoName

MASKS = "masks/videos"
"""Folder of the mask videos below a method's; FaceShifter and the originals have none."""
INNER_FOLDERS = {*COMPRESSIONS, *VIDEO_FOLDERS}
"""Folders that may lie between that of a method, or of the originals, and the videos."""

_GRADE_IN_NAME = re.compile(r"(?<![a-z0-9])(raw|c0|c23|c40)(?![a-z0-9])", re.IGNORECASE)
_MAX_DEPTH = 3  # below a folder of the set: people, a grade and `videos`
_MAX_NAMES_TRIED = 10_000  # a folder of the set holds a thousand videos


@dataclass(frozen=True, slots=True)
class Place:
    """What the folders above a video say of it; `published`: whether the set has such folders."""

    label: int
    people: str | None
    method: str | None
    compression: str | None
    published: bool

    def holds(self, name: VideoName) -> bool:
        """Whether the published set has a video of this form of name here."""
        return self.published and name.is_of(self.method) and self.people in (None, name.people)


def grade_of(inner: Sequence[str], root: Path) -> tuple[str | None, bool]:
    """Compression that folders between a method's and its videos say, else the root; whether no other ones are there.

    Copies lack the grade, `videos` or both.
    """
    between = [folder for folder in map(str.lower, inner) if folder not in VIDEO_FOLDERS]
    grade = between[0] if between else (_GRADE_IN_NAME.findall(root.absolute().name) or [""])[-1]
    return COMPRESSIONS.get(grade.lower()), len(between) <= 1 and all(folder in COMPRESSIONS for folder in between)


def folders_of_originals(root: Path, folders: Sequence[str], published: str) -> list[str]:
    """Those called as published, else those that are called after the class real and hold videos named as originals.

    Either alone may be something else: `real/anna.mp4`, `other/033.mp4`.
    """
    real = (name for name in folders if class_of_folder(name) == 0)
    return [*by_spelling(folders, {published: None})] or [name for name in real if holds_video(root / name, None)]


def refuse_unread_originals(root: Path, beside: Iterable[str], published: str) -> None:
    """Raises `UsageError` where one of `beside`, folders that are not read, may be that of the originals.

    To be called where the set has no folder of originals.
    """
    for name in beside:
        is_real = class_of_folder(name) == 0
        if not (is_real or holds_video(root / name, None)):
            continue
        why = "is called after the class real" if is_real else "holds videos called as its originals"
        raise UsageError(
            f"{root}: has fakes of FaceForensics++, but no folder {published!r} of originals, and {name!r} {why}: it "
            f"would be left out, and no input be real; where it holds the originals, rename it to {published!r}, else "
            "take it out"
        )


def refuse_two_of_a_kind(root: Path, kind_of: Mapping[str, str]) -> None:
    """Raises `UsageError` where two folders in `root` are of one kind: a method, or "the originals"."""
    first: dict[str, str] = {}
    for name, kind in kind_of.items():
        if (other := first.setdefault(kind, name)) != name:
            raise UsageError(
                f"{root}: {other!r} and {name!r} are both folders of {kind}, so that its videos "
                "would be there twice or under one name; take one of them out, or rename it"
            )


def holds_video(folder: Path, method: str | None) -> bool:
    """Whether a folder, or one in it for people, a grade or videos, has a video, or a folder of frames, named as those
    of the method; None: of the originals.
    """
    return any(name.is_of(method) for name in names_in(folder))


def names_in(folder: Path, depth: int = _MAX_DEPTH) -> Iterator[VideoName]:
    """Yields the names of the set that videos and folders of frames have, in a folder or in one in it for people, a
    grade or videos.
    """
    names = listable_names(folder)
    yield from filter(None, (VideoName.parse(stem_of(name)) for name in islice(names, _MAX_NAMES_TRIED)))
    for name in names if depth else ():
        if name.lower() in INNER_FOLDERS or name.lower() in PEOPLE:
            yield from names_in(folder / name, depth - 1)
