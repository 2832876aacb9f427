"""FaceForensics++ with one folder of originals and one of all methods, as published."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from ...folder_names import class_of_folder
from ...listing import FoundFile
from ...media.media_files import DERIVED_FOLDERS, list_folders, listable_folders, listable_names
from ..names.name_matcher import stem_of
from ..names.spelling import by_spelling, check_spelling
from .beside import Remedies, is_derived, refuse_left_out
from .folders import (
    INNER_FOLDERS,
    MASKS,
    Place,
    folders_of_originals,
    grade_of,
    holds_video,
    refuse_two_of_a_kind,
    refuse_unread_originals,
)
from .names import METHOD_OF_FOLDER, METHODS, PEOPLE, VideoName

_ORIGINALS, _FAKES = "original_sequences", "manipulated_sequences"
TREE = {name: name for name in (_ORIGINALS, _FAKES)}
_KIND = {_ORIGINALS: "the originals", _FAKES: "the fakes"}
_PEOPLE = {people: people for people in PEOPLE}


@dataclass(frozen=True)
class FfppTree:
    """`original_sequences` and `manipulated_sequences`, or folders called after the classes: `real`, `fake/Deepfakes`.

    The levels of people, grade and `videos` may be absent.
    """

    form: ClassVar[str] = (
        "original_sequences/[youtube or actors]/[c23]/[videos]/ and manipulated_sequences/METHOD/[c23]/[videos]/"
    )
    root: Path
    _published_name: Mapping[str, str] = field(repr=False)
    _places: dict[tuple[str, ...], Place] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, src: Path) -> Self | None:
        """The set that `src` is, or is a folder of."""
        here = Path(os.path.abspath(src))  # noqa: PTH100 (links stay, but `..` goes: it leads out of the set)
        if names := _tops(here):
            return cls(src, names)
        for folder in (here, *here.parents):
            root, top = folder.parent, by_spelling([folder.name], TREE)
            if top or (class_of_folder(folder.name) is not None and folder.name in _tops(root)):
                inner = {part.lower() for part in here.relative_to(folder).parts}
                return None if DERIVED_FOLDERS & inner else cls(root, top | _tops(root))
        return None

    @property
    def recognised_by(self) -> str:
        """By what the set was found."""
        return " and ".join(sorted(self._published_name, reverse=True))

    def check_folders(self) -> None:
        """Raises `UsageError` where a folder is nearly called as one that is not there, two are of one method, or one
        that is not read may be that of the originals.
        """
        beside = self.beside()
        absent = [name for name in TREE if name not in self._published_name.values()]
        check_spelling(self.root, beside, absent, ())
        if _ORIGINALS in absent:
            refuse_unread_originals(self.root, beside, _ORIGINALS)
        refuse_two_of_a_kind(self.root, {top: _KIND[name] for top, name in self._published_name.items()})
        for top, published in self._published_name.items():
            folders = listable_folders(self.root / top)
            if published == _ORIGINALS:
                check_spelling(self.root / top, folders, PEOPLE, by_spelling(folders, _PEOPLE))
            else:
                method_of = by_spelling(folders, METHOD_OF_FOLDER)
                check_spelling(self.root / top, folders, METHODS, method_of)
                refuse_two_of_a_kind(self.root / top, method_of)

    def beside(self) -> list[str]:
        """Folders in the root that are not read, without those called after masks, frames, faces or the like."""
        return [name for name in list_folders(self.root) if name not in self._published_name and not is_derived(name)]

    def refuse_left_out(self) -> None:
        """Raises `UsageError` where a folder beside those of the set may hold more of it."""
        originals, fakes = self._top(_ORIGINALS), self._top(_FAKES)
        remedies = Remedies(
            youtube=f"where it holds originals, move its videos into {originals!r}",
            actors=f"move its videos to '{originals}/actors/'",
            fakes=f"where it holds fakes of the set, move them to '{fakes}/METHOD/'",
        )
        refuse_left_out(self.root, self.beside(), remedies)

    def is_input(self, file: FoundFile) -> bool:
        """Whether a media file belongs to the set."""
        return file.relative.split("/")[0] in self._published_name

    def skip(self, folder: str) -> str | None:
        """Name to count the files of a folder beside the set under; None for a folder of the set."""
        top = folder.partition("/")[0]
        return None if top in (*self._published_name, "splits") else f"in {top}/"

    def place(self, folders: Sequence[str]) -> Place:
        """What the folders between the root and a video say of it; computed once, since it is asked of every frame."""
        key = tuple(folders)
        if key not in self._places:
            self._places[key] = self._read_place(folders)
        return self._places[key]

    def _read_place(self, folders: Sequence[str]) -> Place:
        label = int(self._published_name[folders[0]] == _FAKES)
        if not label and (len(folders) == 1 or folders[1].lower() in INNER_FOLDERS):  # without the level of people
            folders = [folders[0], "youtube", *folders[1:]]
        group = folders[1] if len(folders) > 1 else None
        known = METHOD_OF_FOLDER if label else _PEOPLE
        name = by_spelling([group], known).get(group, group) if group else None
        compression, published = grade_of(folders[2:], self.root)
        return Place(
            label=label,
            people=None if label else name,
            method=name if label else None,
            compression=compression,
            published=published,
        )

    def originals(self, folders: Sequence[str], name: VideoName) -> str | None:
        """The folder of the originals of fakes in these folders; None where the set has none."""
        top = self._youtube if name.people == "youtube" else f"{self._top(_ORIGINALS)}/{name.people}"
        return "/".join([top, *folders[2:]])

    def _top(self, published: str) -> str:
        """The folder that is called so, or stands for it."""
        return next((top for top, name in self._published_name.items() if name == published), published)

    @cached_property
    def _youtube(self) -> str:
        """The folder of youtube's originals: that of all originals in a copy without the level of people."""
        top = self._top(_ORIGINALS)
        inner = [stem_of(name) for name in listable_names(self.root / top)]
        has_level = "youtube" in inner or not any(name in INNER_FOLDERS or VideoName.parse(name) for name in inner)
        return f"{top}/youtube" if has_level else top

    def masks(self, folders: Sequence[str]) -> str:
        """The folder of the mask videos of fakes in these folders: the same for all grades."""
        return f"{folders[0]}/{folders[1]}/{MASKS}"


def _tops(root: Path) -> dict[str, str]:
    """Folders in `root` that are called as published, or stand for these, with the published name."""
    folders = listable_folders(root)
    published = by_spelling(folders, TREE)
    fakes = [name for name, meant in published.items() if meant == _FAKES] or [
        name for name in folders if class_of_folder(name) == 1 and _holds_methods(root / name)
    ]
    if not published and not fakes:
        return {}
    originals = folders_of_originals(root, folders, _ORIGINALS)
    if not published and (len(originals), len(fakes)) != (1, 1):  # `real_train` and `real_test`, or no originals at all
        return {}
    return dict.fromkeys(originals, _ORIGINALS) | dict.fromkeys(fakes, _FAKES)


def _holds_methods(folder: Path) -> bool:
    methods = by_spelling(listable_folders(folder), METHOD_OF_FOLDER)
    return any(holds_video(folder / name, method) for name, method in methods.items())
