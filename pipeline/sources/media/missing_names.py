"""Missing files that are there under a name that looks the same: in another Unicode form, or with / for a backslash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from unicodedata import is_normalized, normalize

from .media_files import find_named


def missing_hints(root: Path, missing: Sequence[str], allowed: Sequence[Path]) -> Iterator[str]:
    """Yields a sentence for each reason why files that metadata names may be missing, although they are there.

    `root`: the folder that names are relative to. `allowed`: real paths of further folders that they may lead into.
    """
    names_in = cache(_names_by_form)  # of folders: where one is called otherwise, all of its files are missing

    def is_there(name: str) -> str | None:
        found = _same_looking(root, name, names_in)
        file = found and find_named(root, found, allowed)
        return found if file and not file.problem else None

    separated = [name for name in missing if "\\" in name]
    if separated:
        first = next((name for name in separated if is_there(name)), separated[0])
        found = is_there(first)
        yield (
            f"{len(separated):,} of the files absent on disk {'has' if len(separated) == 1 else 'have'} a backslash in "
            f"the path, the first {first!r}{f', there as {found!r}' if found else ''}: write paths with /, not \\"
        )
    in_form = {name: found for name in missing if "\\" not in name and not name.isascii() and (found := is_there(name))}
    if in_form:
        name, found = next(iter(in_form.items()))
        yield (
            f"{len(in_form):,} of the files absent on disk {'is' if len(in_form) == 1 else 'are'} there in another "
            f"Unicode form, the first {name!r} ({_form(name)}, on disk {_form(found)}): write names as "
            "they are on disk, or rename the files; macOS writes NFD, most else NFC"
        )


def _same_looking(root: Path, name: str, names_in: Callable[[Path], dict[str, str]]) -> str | None:
    """The path on disk, with / between folders, that differs from `name` in Unicode forms alone."""
    given = Path(name.replace("\\", "/"))
    folder = root / given.anchor
    for part in given.relative_to(given.anchor).parts:
        child = part if os.path.lexists(folder / part) else names_in(folder).get(normalize("NFC", part))
        if child is None:
            return None
        folder /= child
    return str(folder if given.is_absolute() else folder.relative_to(root))


def _names_by_form(folder: Path) -> dict[str, str]:
    try:
        return {normalize("NFC", child.name): child.name for child in folder.iterdir()}
    except OSError:
        return {}


def _form(name: str) -> str:
    return next((form for form in ("NFC", "NFD") if is_normalized(form, name)), "neither NFC nor NFD")
