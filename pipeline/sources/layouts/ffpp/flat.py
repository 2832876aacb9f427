"""FaceForensics++ as it is shared on Kaggle: a folder for the originals and one for each method."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from ....errors import UsageError
from ...folder_names import class_of_folder
from ...listing import FoundFile
from ...media.media_files import list_folders, listable_folders
from ..names.spelling import by_spelling, check_spelling, misspelt
from .beside import Remedies, is_derived, refuse_left_out
from .folders import (
    MASKS,
    Place,
    folders_of_originals,
    grade_of,
    holds_video,
    refuse_two_of_a_kind,
    refuse_unread_originals,
)
from .names import METHOD_OF_FOLDER, METHODS, VideoName
from .tree import TREE, FfppTree

_ORIGINAL = "original"
_FOLDERS = {_ORIGINAL: None, **METHOD_OF_FOLDER}
_MAX_UNCERTAIN = 2  # letters of an abbreviation: `FS` may be anything, `F2F` is Face2Face
_MAX_DEPTH = 2  # below a method's folder: a grade and `videos`


@dataclass(frozen=True)
class FfppFlat:
    """A folder for the originals and one for each method; a grade and `videos` may lie between them and the videos.

    The folder of the originals may also be called after the class: `real`. Of `DeepFakeDetection` the originals are not
    among these: `original` has the videos of youtube alone.
    """

    form: ClassVar[str] = "original/[c23]/[videos]/ and METHOD/[c23]/[videos]/"
    root: Path
    recognised_by: str
    _method_of: dict[str, str | None] = field(repr=False)

    @classmethod
    def of(cls, src: Path) -> Self | None:
        """The set that `src` is, or is a folder of; a method's folder must hold a video that is named as published."""
        here = Path(os.path.abspath(src))  # noqa: PTH100
        if by_spelling(here.parts, TREE):  # published folders, of which these are no part
            return None
        if flat := cls._at(src):
            return flat
        for folder in (here, *here.parents[:_MAX_DEPTH]):
            may_be_part = by_spelling([folder.name], _FOLDERS) or class_of_folder(folder.name) == 0
            if may_be_part and (flat := cls._at(folder.parent)) and flat.skip(folder.name) is None:
                return flat
        return None

    @classmethod
    def _at(cls, root: Path) -> Self | None:
        folders = [name for name in listable_folders(root) if not is_derived(name)]
        methods = by_spelling(folders, METHOD_OF_FOLDER)
        candidates = methods | misspelt(folders, METHODS)  # the latter are then refused, with what is meant
        proof = next((name for name, method in candidates.items() if holds_video(root / name, method)), None)
        if proof is None:
            return None
        known = methods | dict.fromkeys(folders_of_originals(root, folders, _ORIGINAL))
        method_of = {name: known[name] for name in folders if name in known}
        return cls(root, f"folders called {', '.join(method_of)}, and the names of videos in {proof}", method_of)

    def check_folders(self) -> None:
        """Raises `UsageError` where a folder is nearly called as one that is not there, two are of one method, one that
        is not read may be that of the originals, or nothing but abbreviations of two letters says what the set is.
        """
        beside = self.beside()
        originals = () if None in self._method_of.values() else (_ORIGINAL,)
        check_spelling(self.root, beside, (*originals, *METHODS), self._method_of)
        refuse_two_of_a_kind(self.root, {name: method or "the originals" for name, method in self._method_of.items()})
        if originals:
            refuse_unread_originals(self.root, beside, _ORIGINAL)
            self._refuse_abbreviations_alone()

    def _refuse_abbreviations_alone(self) -> None:
        """Raises `UsageError`: `FS/101_202.mp4` without originals may be of any dataset, and all would be fake."""
        if all(len(name) <= _MAX_UNCERTAIN for name in self._method_of):
            methods = ", ".join(f"{name} {method}" for name, method in self._method_of.items())
            raise UsageError(
                f"{self.root}: nothing but abbreviations of methods ({methods}) says that it is a FaceForensics++, and "
                f"there is no folder {_ORIGINAL!r}: all would be fake; where it is one, add {_ORIGINAL!r}, or call the "
                "folders by the methods' full names"
            )

    def beside(self) -> list[str]:
        """Folders in the root that are not read, without those called after masks, frames, faces or the like."""
        return [name for name in list_folders(self.root) if name not in self._method_of and not is_derived(name)]

    def refuse_left_out(self) -> None:
        """Raises `UsageError` where a folder beside those of the set may hold more of it."""
        originals = next((name for name, method in self._method_of.items() if method is None), _ORIGINAL)
        remedies = Remedies(
            youtube=f"where it holds originals, move its videos into {originals!r}",
            actors=f"for these, move all folders to where the published set has them, {FfppTree.form}",
            fakes=f"where it is one of the methods ({', '.join(METHODS)}), or a second part of one, rename it or join "
            "the two",
        )
        refuse_left_out(self.root, self.beside(), remedies)

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
        compression, published = grade_of(folders[1:], self.root)
        return Place(
            label=int(method is not None),
            people=None if method else "youtube",
            method=method,
            compression=compression,
            published=published,
        )

    def originals(self, folders: Sequence[str], name: VideoName) -> str | None:
        """The folder of the originals of fakes in these folders; None where the set has none."""
        if name.people != "youtube":
            return None
        top = next((folder for folder, method in self._method_of.items() if method is None), _ORIGINAL)
        return "/".join([top, *folders[1:]])

    def masks(self, folders: Sequence[str]) -> str:
        """The folder of the mask videos of fakes in these folders: the same for all grades."""
        return f"{folders[0]}/{MASKS}"
