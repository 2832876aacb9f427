"""Which folders inputs may lie in: SRC and those the user allows; links and absolute paths lead nowhere else."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from ..console import plural
from ..errors import UsageError
from .listing import Listing

_NAMED = 3


@lru_cache(maxsize=1)
def resolved_root(root: Path) -> Path:
    """Resolved once, not for every name below it."""
    return root.resolve()


def is_inside(path: Path | str, folders: Iterable[Path]) -> bool:
    """Whether `path`, through all links, is in one of `folders`, which are real paths."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(folder) for folder in folders)


def relative_name(root: Path, given: str) -> str:
    """What an input that metadata calls `given` is called: its path below `root`, or an absolute one outside."""
    normal = os.path.normpath(given)
    if normal[0] != "/" and normal.split("/")[0] != "..":
        return normal
    folder, file = os.path.split(root / normal)
    path = os.path.join(os.path.realpath(folder), file)  # noqa: PTH118 (a Path would drop what makes names differ)
    inside = Path(path).is_relative_to(resolved_root(root))
    return os.path.relpath(path, resolved_root(root)) if inside else path


def resolve_allowed_roots(given: Iterable[str | Path]) -> tuple[Path, ...]:
    """The real paths of the folders that a user allows; raises `UsageError` where one is no folder."""
    folders = []
    for one in given:
        folder = Path(os.path.realpath(one))
        if not folder.is_dir():
            raise UsageError(f"allow_root={str(one)!r}: no such folder; name one that links or a table lead into")
        folders.append(folder)
    return tuple(dict.fromkeys(folders))


def refuse_outside(listing: Listing) -> None:
    """Raises `UsageError` where a linked folder leads out of what is allowed, or every input does.

    Single files that do are counted as failed: how many these are is known, what a folder holds is not.
    """
    outside = _outside(listing)
    for name in outside:
        target = listing.root / name
        if target.is_symlink() and target.is_dir():
            raise UsageError(
                f"SRC={str(listing.root)!r}: {name!r} leads to the folder {os.path.realpath(target)}, outside SRC: "
                "what it holds would be left out; take the link away, or admit all that leads out with "
                f"{_options(listing, outside)}"
            )
    if outside and len(outside) == len(listing.entries):
        raise UsageError(
            f"SRC={str(listing.root)!r}: all that it lists ({len(outside):,}) lies outside, the first {outside[0]!r}, "
            f"and nothing would be read; admit it with {_options(listing, outside)}"
        )


def outside_warning(listing: Listing) -> str | None:
    """A sentence on the inputs that lie outside, with the option that admits them."""
    outside = _outside(listing)
    if not outside:
        return None
    return (
        f"{len(outside):,} of {len(listing.entries):,} inputs lie outside SRC and fail as outside_root; "
        f"{_options(listing, outside)} reads them"
    )


def _outside(listing: Listing) -> list[str]:
    return [entry.video_id for entry in listing.entries if entry.problem == "outside_root"]


def _options(listing: Listing, names: Sequence[str]) -> str:
    """`--allow-root` for the fewest folders that admit all of `names`, ready for a shell."""
    targets = [Path(os.path.realpath(listing.root / name)) for name in names]
    folders = {target if target.is_dir() else target.parent for target in targets}
    roots = _common_roots(folders, 2)  # /data/videos rather than all of /data, which holds more than is meant
    if len(roots) > _NAMED:
        roots = _common_roots(folders, 1)
    rest = len(roots) - _NAMED
    more = f" and {plural(rest, 'more folder')}" if rest > 0 else ""
    return " ".join(f"--allow-root {shlex.quote(root)}" for root in roots[:_NAMED]) + more


def _common_roots(folders: Iterable[Path], depth: int) -> list[str]:
    """The deepest common ancestor of each group of `folders` that share their first `depth` names, if not covered."""
    groups: dict[tuple[str, ...], list[Path]] = {}
    for folder in folders:
        groups.setdefault(folder.parts[: depth + 1], []).append(folder)
    roots = {Path(os.path.commonpath(group)) for group in groups.values()}
    return sorted(str(root) for root in roots if not roots.intersection(root.parents))
