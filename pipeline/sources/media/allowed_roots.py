"""Allowed roots: the folders that links and absolute paths may lead into, SRC and those of `--allow-root`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from ...console import plural
from ...errors import UsageError
from ..listing import Listing

_MAX_LISTED = 3


@lru_cache(maxsize=1)
def resolved_root(root: Path) -> Path:
    """`root` with all links resolved; cached, since it is needed for every name below it."""
    return root.resolve()


def is_inside(path: Path | str, folders: Iterable[Path]) -> bool:
    """Whether `path`, with all links resolved, lies in one of `folders`, which are real paths."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(folder) for folder in folders)


def relative_name(root: Path, given: str) -> str:
    """Video id of an input that metadata calls `given`: its path relative to `root`, or an absolute one outside."""
    normalised = os.path.normpath(given)
    if normalised[0] != "/" and normalised.split("/")[0] != "..":
        return normalised
    folder, file = os.path.split(root / normalised)
    path = os.path.join(os.path.realpath(folder), file)  # noqa: PTH118 (a Path would normalise the name)
    inside = Path(path).is_relative_to(resolved_root(root))
    return os.path.relpath(path, resolved_root(root)) if inside else path


def resolve_allowed_roots(given: Iterable[str | Path]) -> tuple[Path, ...]:
    """Real paths of the folders of `--allow-root`; raises `UsageError` where one is not a folder."""
    folders = []
    for path in given:
        folder = Path(os.path.realpath(path))
        if not folder.is_dir():
            raise UsageError(f"allow_root={str(path)!r}: no such folder; name one that links or a table lead into")
        folders.append(folder)
    return tuple(dict.fromkeys(folders))


def refuse_outside(listing: Listing) -> None:
    """Raises `UsageError` where a linked folder or every input lies outside the allowed roots.

    Single files outside are counted as failed instead: their number is known, the contents of a folder are not.
    """
    outside = _outside(listing)
    for name in outside:
        target = listing.root / name
        if target.is_symlink() and target.is_dir():
            raise UsageError(
                f"SRC={str(listing.root)!r}: {name!r} leads to the folder {os.path.realpath(target)}, outside SRC: "
                "what it holds would be left out; take the link away, or admit all that leads out with "
                f"{allow_root_options(listing.root, outside)}"
            )
    if outside and len(outside) == len(listing.entries):
        raise UsageError(
            f"SRC={str(listing.root)!r}: all that it lists ({len(outside):,}) lies outside, the first {outside[0]!r}, "
            f"and nothing would be read; admit it with {allow_root_options(listing.root, outside)}"
        )


def outside_warning(listing: Listing) -> str | None:
    """Warning about inputs outside the allowed roots, with the options that admit them; None without such inputs."""
    outside = _outside(listing)
    if not outside:
        return None
    return (
        f"{len(outside):,} of {len(listing.entries):,} inputs lie outside SRC and fail as outside_root; "
        f"{allow_root_options(listing.root, outside)} reads them"
    )


def _outside(listing: Listing) -> list[str]:
    return [entry.video_id for entry in listing.entries if entry.problem == "outside_root"]


def allow_root_options(root: Path, names: Sequence[str]) -> str:
    """`--allow-root` options for the fewest folders that admit all of `names`, quoted for a shell.

    `names`: relative to `root`, or absolute.
    """
    targets = [Path(os.path.realpath(root / name)) for name in names]
    folders = {target if target.is_dir() else target.parent for target in targets}
    roots = _common_roots(folders, 2)  # /data/videos rather than all of /data
    if len(roots) > _MAX_LISTED:
        roots = _common_roots(folders, 1)
    unlisted = len(roots) - _MAX_LISTED
    more = f" and {plural(unlisted, 'more folder')}" if unlisted > 0 else ""
    return " ".join(f"--allow-root {shlex.quote(root)}" for root in roots[:_MAX_LISTED]) + more


def _common_roots(folders: Iterable[Path], depth: int) -> list[str]:
    """Deepest common ancestors of `folders`, grouped by their first `depth` path components; nested ones left out."""
    groups: dict[tuple[str, ...], list[Path]] = {}
    for folder in folders:
        groups.setdefault(folder.parts[: depth + 1], []).append(folder)
    roots = {Path(os.path.commonpath(group)) for group in groups.values()}
    return sorted(str(root) for root in roots if not roots.intersection(root.parents))
