"""Folder names as people spell them: case, hyphens, underscores and spaces do not count; what is nearly right does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from ....errors import UsageError
from ...media.media_files import listable_folders, path_exists
from ...media.suffixes import split_video_suffix

MIN_SIMILARITY = 0.8  # 0..1: `NeuralTexture` is meant to be NeuralTextures, `FaceSwap` is not FaceShifter

T = TypeVar("T")


def spelling_key(name: str) -> str:
    """The same for all spellings of a name that differ in case, hyphens, underscores and spaces alone.

    Between two digits, what separates them counts as one underscore: `1_12` and `11_2` are two names.

    >>> spelling_key("Youtube-real") == spelling_key("YouTube_Real")
    True
    >>> spelling_key("part 1-12"), spelling_key("part_11_2")
    ('part1_12', 'part11_2')
    """
    return re.sub(r"(?<!\d)_|_(?!\d)", "", re.sub(r"[\W_]+", "_", name)).casefold()


def by_spelling(names: Iterable[str], known: Mapping[str, T]) -> dict[str, T]:
    """Those of `names` that are spellings of a key of `known`, with its value."""
    values = {spelling_key(name): value for name, value in known.items()}
    return {name: values[key] for name in names if (key := spelling_key(name)) in values}


def folders_spelt_as(root: Path, known: Mapping[str, T]) -> dict[str, T]:
    """Folders directly below `root` that are spellings of a key of `known`; none where it cannot be listed."""
    return by_spelling(listable_folders(root), known)


def path_as_spelt(root: Path, path: str) -> str:
    """`path`, relative to `root`, with each folder as it is spelt on disk; from one that is not there on unchanged.

    A folder of frames may be called as their clip or as its video: `033` or `033.mp4`.
    """
    here = root
    parts = path.split("/")
    for position, part in enumerate(parts):
        if not path_exists(here / part):
            key = spelling_key(split_video_suffix(part)[0])
            names = listable_folders(here)
            spellings = [name for name in names if spelling_key(split_video_suffix(name)[0]) == key]
            if not spellings:
                break
            parts[position] = min(spellings)
        here /= parts[position]
    return "/".join(parts)


def misspelt(names: Iterable[str], known: Iterable[str], min_similarity: float = MIN_SIMILARITY) -> dict[str, str]:
    """Those of `names` that are nearly, but not certainly, one of `known`, with the name that is meant.

    `min_similarity`: 0..1, from which on a name is nearly another.

    >>> misspelt(["NeuralTexture", "Face2Face", "csv"], ["NeuralTextures", "Face2Face"])
    {'NeuralTexture': 'NeuralTextures'}
    """
    name_of = {spelling_key(name): name for name in known}
    return {
        name: name_of[near[0]]
        for name in names
        if (key := spelling_key(name)) not in name_of and (near := get_close_matches(key, name_of, 1, min_similarity))
    }


def check_spelling(root: Path, folders: Iterable[str], known: Iterable[str], present: Collection[str]) -> None:
    """Raises `UsageError` where one of `folders` is nearly called as one of `known` of which there is no spelling.

    `present`: spellings of `known` that are there.
    """
    keys, known_names = set(map(spelling_key, present)), list(known)
    own = set(map(spelling_key, known_names))
    others = [name for name in folders if spelling_key(name) not in own]
    for name, meant in misspelt(others, [name for name in known_names if spelling_key(name) not in keys]).items():
        raise UsageError(
            f"{root}: has a folder {name!r}, did you mean {meant!r}? Its videos would be left out; rename it, or take "
            "it out"
        )
