"""The two ways in which folders of FaceForensics++ lie: as published, and flat, as on Kaggle."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

from ....errors import UsageError
from ...folder_names import COMPRESSIONS, CONTENT_NAMES, VIDEO_FOLDERS
from ...listing import FoundFile
from ...media.media_files import DERIVED_FOLDERS, is_media, list_folders, listable_folders
from ..names.spelling import by_spelling, check_spelling, folders_spelt_as, misspelt
from .names import METHOD_OF_FOLDER, METHODS, PEOPLE, VideoName

_ORIGINALS, _FAKES = "original_sequences", "manipulated_sequences"
MASKS = "masks/videos"
"""Folder of the mask videos below a method's; FaceShifter and the originals have none."""
_TREE = {name: name for name in (_ORIGINALS, _FAKES)}
_PEOPLE = {people: people for people in PEOPLE}
_INNER_FOLDERS = {*COMPRESSIONS, *VIDEO_FOLDERS}
_FLAT: dict[str, str | None] = {"original": None, **METHOD_OF_FOLDER}
_GRADE_IN_NAME = re.compile(r"(?<![a-z0-9])(raw|c0|c23|c40)(?![a-z0-9])", re.IGNORECASE)
_MAX_DEPTH = 2  # below a method's folder: a grade and `videos`
_MAX_NAMES_TRIED = 50  # a folder of the set holds a thousand videos, and one name of them is enough


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


@dataclass(frozen=True)
class FfppTree:
    """`original_sequences` and `manipulated_sequences`, as published."""

    root: Path
    _published_name: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, src: Path) -> Self | None:
        """The set that `src` is, or is a folder of."""
        here = Path(os.path.abspath(src))  # noqa: PTH100 (links stay, but `..` goes: it leads out of the set)
        if names := folders_spelt_as(here, _TREE):
            return cls(src, names)
        for folder in (here, *here.parents):
            if top := by_spelling([folder.name], _TREE):
                inner = {part.lower() for part in here.relative_to(folder).parts}
                root = folder.parent
                return None if DERIVED_FOLDERS & inner else cls(root, top | folders_spelt_as(root, _TREE))
        return None

    @property
    def recognised_by(self) -> str:
        """By what the set was found."""
        return " and ".join(sorted(self._published_name, reverse=True))

    def check_folders(self) -> None:
        """Raises `UsageError` where a folder is nearly called as one that is not there, or two are of one method."""
        check_spelling(self.root, list_folders(self.root), _TREE, self._published_name)
        for top, published in self._published_name.items():
            folders = listable_folders(self.root / top)
            if published == _ORIGINALS:
                check_spelling(self.root / top, folders, PEOPLE, by_spelling(folders, _PEOPLE))
            else:
                method_of = by_spelling(folders, METHOD_OF_FOLDER)
                check_spelling(self.root / top, folders, METHODS, method_of)
                _refuse_two_of_a_method(self.root / top, method_of)

    def is_input(self, file: FoundFile) -> bool:
        """Whether a media file belongs to the set."""
        return file.relative.split("/")[0] in self._published_name

    def skip(self, folder: str) -> str | None:
        """Name to count the files of a folder beside the set under; None for a folder of the set."""
        top = folder.partition("/")[0]
        return None if top in (*self._published_name, "splits") else f"in {top}/"

    def place(self, folders: Sequence[str]) -> Place:
        """What the folders between the root and a video say of it."""
        label = int(self._published_name[folders[0]] == _FAKES)
        if not label and len(folders) > 1 and folders[1].lower() in COMPRESSIONS:  # a copy without the level of people
            folders = [folders[0], "youtube", *folders[1:]]
        group = folders[1] if len(folders) > 1 else None
        grade = folders[2].lower() if len(folders) > 2 else ""
        known = METHOD_OF_FOLDER if label else _PEOPLE
        name = by_spelling([group], known).get(group, group) if group else None
        return Place(
            label=label,
            people=None if label else name,
            method=name if label else None,
            compression=COMPRESSIONS.get(grade),
            published=len(folders) == 4 and grade in COMPRESSIONS and folders[3].lower() in VIDEO_FOLDERS,
        )

    def originals(self, folders: Sequence[str], name: VideoName) -> str | None:
        """The folder of the originals of fakes in these folders; None where the set has none."""
        top = self._youtube if name.people == "youtube" else f"{_ORIGINALS}/{name.people}"
        return f"{top}/{folders[2]}/{folders[3]}"

    @cached_property
    def _youtube(self) -> str:
        """The folder of youtube's originals: that of all originals in a copy without the level of people."""
        tops = (top for top, published in self._published_name.items() if published == _ORIGINALS)
        inner = {name.lower() for top in tops for name in listable_folders(self.root / top)}
        return f"{_ORIGINALS}/youtube" if "youtube" in inner or inner.isdisjoint(COMPRESSIONS) else _ORIGINALS

    def masks(self, folders: Sequence[str]) -> str:
        """The folder of the mask videos of fakes in these folders: the same for all grades."""
        return f"{folders[0]}/{folders[1]}/{MASKS}"


@dataclass(frozen=True)
class FfppFlat:
    """A folder for the originals and one for each method; a grade and `videos` may lie between them and the videos.

    Of `DeepFakeDetection` the originals are not among these: `original` has the videos of youtube alone.
    """

    root: Path
    recognised_by: str
    _method_of: dict[str, str | None] = field(repr=False)

    @classmethod
    def of(cls, src: Path) -> Self | None:
        """The set that `src` is, or is a folder of; a method's folder must hold a video that is named as published."""
        here = Path(os.path.abspath(src))  # noqa: PTH100
        if by_spelling(here.parts, _TREE):  # published folders, of which these are no part
            return None
        if flat := cls._at(src):
            return flat
        above = ((folder.parent, folder.name) for folder in (here, *here.parents[:_MAX_DEPTH]))
        return next((flat for root, name in above if by_spelling([name], _FLAT) and (flat := cls._at(root))), None)

    @classmethod
    def _at(cls, root: Path) -> Self | None:
        folders = listable_folders(root)
        method_of = by_spelling(folders, _FLAT)
        candidates = method_of | misspelt(folders, METHODS)  # the latter are then refused, with what is meant
        proof = next((name for name, method in candidates.items() if method and _holds_fake(root / name, method)), None)
        if proof is None:
            return None
        return cls(root, f"folders called {', '.join(method_of)}, and the names of videos in {proof}", method_of)

    def check_folders(self) -> None:
        """Raises `UsageError` where a folder is nearly called as one that is not there, two are of one method, or fakes
        are in a folder of no method.
        """
        folders = list_folders(self.root)
        check_spelling(self.root, folders, ("original", *METHODS), self._method_of)
        _refuse_two_of_a_method(self.root, self._method_of)
        for name in folders:
            is_other = name not in self._method_of and name.lower() not in DERIVED_FOLDERS | CONTENT_NAMES
            if is_other and any(_holds_fake(self.root / name, method) for method in METHODS):
                raise UsageError(
                    f"{self.root}: {name!r} holds fakes called as those of FaceForensics++, but is called after none "
                    f"of its methods ({', '.join(METHODS)}): they would be left out; where it is one of these, or a "
                    "second part of it, rename it or join the two, else take it out"
                )

    def is_input(self, file: FoundFile) -> bool:
        """Whether a media file belongs to the set."""
        return file.relative.split("/")[0] in self._method_of

    def skip(self, folder: str) -> str | None:
        """Name to count the files of a folder beside the set under; None for a folder of the set."""
        top = folder.partition("/")[0]
        return None if top in self._method_of or top in ("splits", "csv") else f"in {top}/"

    def place(self, folders: Sequence[str]) -> Place:
        """What the folders between the root and a video say of it."""
        method = self._method_of[folders[0]]
        between = [folder for folder in map(str.lower, folders[1:]) if folder not in VIDEO_FOLDERS]
        grade = between[0] if between else (_GRADE_IN_NAME.findall(self.root.absolute().name) or [""])[-1]
        return Place(
            label=int(method is not None),
            people=None if method else "youtube",
            method=method,
            compression=COMPRESSIONS.get(grade.lower()),
            published=len(between) <= 1 and all(folder in COMPRESSIONS for folder in between),
        )

    def originals(self, folders: Sequence[str], name: VideoName) -> str | None:
        """The folder of the originals of fakes in these folders; None where the set has none."""
        if name.people != "youtube":
            return None
        top = next((folder for folder, method in self._method_of.items() if method is None), "original")
        return "/".join([top, *folders[1:]])

    def masks(self, folders: Sequence[str]) -> str:
        """The folder of the mask videos of fakes in these folders: the same for all grades."""
        return f"{folders[0]}/{MASKS}"


def _refuse_two_of_a_method(root: Path, method_of: Mapping[str, str | None]) -> None:
    """Raises `UsageError` where two folders in `root` are of one method, or of the originals, which are None."""
    first: dict[str | None, str] = {}
    for name, method in method_of.items():
        if (other := first.setdefault(method, name)) != name:
            raise UsageError(
                f"{root}: {other!r} and {name!r} are both folders of {method or 'the originals'}, so that its videos "
                "would be there twice or under one name; take one of them out, or rename it"
            )


def _holds_fake(folder: Path, method: str, depth: int = _MAX_DEPTH) -> bool:
    """Whether a folder, or one in it for a grade or for videos, has a video or a folder named as the method's."""
    try:
        with os.scandir(folder) as children:
            names = [child.name for child in children if is_media(child.name) or child.is_dir()]
    except OSError:
        return False
    videos = (VideoName.parse(name.partition(".")[0]) for name in names[:_MAX_NAMES_TRIED])
    if any(video and video.is_of(method) for video in videos):
        return True
    inner = [name for name in names if name.lower() in _INNER_FOLDERS]
    return depth > 0 and any(_holds_fake(folder / name, method, depth - 1) for name in inner)
