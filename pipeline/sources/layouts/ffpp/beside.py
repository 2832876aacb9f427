"""Folders beside those of a FaceForensics++ that are read: which hold more of the set, and would be left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ....errors import UsageError
from ...folder_names import CONTENT_NAMES, class_of_folder, last_word
from ...media.media_files import DERIVED_FOLDERS, MASK_FOLDERS, find_media
from ..names.spelling import by_spelling
from .folders import names_in
from .names import METHOD_OF_FOLDER

_DERIVED = DERIVED_FOLDERS | CONTENT_NAMES


@dataclass(frozen=True, slots=True)
class Remedies:
    """What to do with a folder beside the set that holds originals of youtube, originals of actors, or fakes."""

    youtube: str
    actors: str
    fakes: str


def is_derived(name: str) -> bool:
    """Whether a folder is called after masks, frames, faces or the like alone, or after masks at its end."""
    return name.lower() in _DERIVED or last_word(name) in MASK_FOLDERS


def refuse_left_out(root: Path, beside: Iterable[str], remedies: Remedies) -> None:
    """Raises `UsageError` where one of `beside`, folders that are not read, is called after a class or a method and
    holds media, or holds videos that are called as those of the set.
    """
    for name in beside:
        if last_word(name) not in _DERIVED and (part := _part_of_set(root / name, remedies)):
            why, remedy = part
            raise UsageError(f"{root}: {name!r} {why}: it would be left out; {remedy}, or take it out")


def unread_folders(root: Path, beside: Iterable[str]) -> Iterator[str]:
    """Yields those of `beside` that hold media other than faces, frames or the like of the set."""
    for name in beside:
        is_of_set = last_word(name) in _DERIVED and any(names_in(root / name))
        if not is_of_set and _holds_media(root / name):
            yield name


def _part_of_set(folder: Path, remedies: Remedies) -> tuple[str, str] | None:
    """Why a folder may be a part of the set, and what to do; None where nothing indicates that."""
    if not _holds_media(folder):
        return None
    label = class_of_folder(folder.name)
    if method := next(iter(by_spelling([folder.name], METHOD_OF_FOLDER).values()), None):
        return f"is called after the method {method}, but lies beside the set's folders", remedies.fakes
    names = list(names_in(folder))
    originals = [name for name in names if not name.source]
    if any(name.people == "actors" for name in originals):
        return "holds videos called as the originals of DeepFakeDetection", remedies.actors
    if originals or label == 0:
        why = "holds videos called as its originals" if originals else "is called after the class real"
        return f"{why}, but is not its folder of originals", remedies.youtube
    if names:
        return "holds fakes called as those of FaceForensics++, but is called after none of its methods", remedies.fakes
    return ("is called after the class fake, but holds no method's fakes", remedies.fakes) if label == 1 else None


def _holds_media(folder: Path) -> bool:
    return next(find_media(folder, Counter()), None) is not None
