"""Lists of splits that are published with a set: found however they are spelt, and missed where they are not there."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from pathlib import Path, PurePosixPath

from ....errors import UsageError
from ...media.media_files import list_folders
from .spelling import by_spelling, misspelt


def find_lists(root: Path, folder: str, names: Mapping[str, str]) -> dict[str, str]:
    """Paths, relative to `root`, of those lists in `folder` that are there, in the order of `names`.

    names: published name of each list; the result has the same keys.

    Raises `UsageError` where a folder or a file is nearly called like one that is not there.
    """
    inner = ""
    for level in folder.split("/") if folder else ():
        here = _spelt_as(root / inner, list_folders(root / inner), [level])
        if not here:
            return {}
        inner = f"{inner}{here[level]}/"
    suffixes = {PurePosixPath(name).suffix for name in names.values()}
    files = sorted(child.name for child in (root / inner).iterdir() if child.suffix.lower() in suffixes)
    found = _spelt_as(root / inner, files, names.values())
    return {key: f"{inner}{found[name]}" for key, name in names.items() if name in found}


def missing_lists(names: Mapping[str, str], found: Container[str]) -> tuple[str, ...]:
    """Published names of the lists of which `find_lists` has found none."""
    return tuple(name for key, name in names.items() if key not in found)


def _spelt_as(folder: Path, names: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Those of `names` that are called as one of `known`, by that."""
    names = list(names)
    found = {meant: name for name, meant in by_spelling(names, {each: each for each in known}).items()}
    others = [name for name in names if name not in found.values()]
    for name, meant in misspelt(others, [each for each in known if each not in found]).items():
        raise UsageError(
            f"{folder}: has {name!r}, did you mean {meant!r}? Its splits would be drawn instead; rename it, or take "
            "it out"
        )
    return found
