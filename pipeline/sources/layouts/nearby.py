"""Finds published sets above, below and beside what a layout reads: their labels would be lost, or they not be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

from ...console import first_names, plural
from ...errors import UsageError
from ..folder_names import class_of_folder
from ..layout import Layout
from ..listing import Listing
from ..media.media_files import DERIVED_FOLDERS, listable_folders
from .celebdf import dataset_root

_MAX_LISTED = 3
_MAX_DEPTH = 3
_MAX_FOLDERS = 2000  # looked into; where a clip is a folder of frames there may be a hundred thousand
_MAX_FOLDERS_BESIDE = 200  # looked into beside a set: every run looks there


def refuse_sets_side_by_side(src: Path, layouts: Iterable[Layout]) -> None:
    """Raises `UsageError` where several of `layouts` fit `src`: one would be read, and the others be left out."""
    fitting = [layout.name for layout in layouts if layout.fits(src)]
    if len(fitting) > 1:
        raise UsageError(
            f"SRC={str(src)!r}: holds several published sets side by side, {' and '.join(fitting)}, of which a run "
            f"reads one: name it with --layout {' or --layout '.join(fitting)}, or move each set into a folder of its "
            "own and name that folder"
        )


def unread_sets(listing: Listing, src: Path, layouts: Iterable[Layout]) -> Iterator[str]:
    """Yields a warning for each set of another of `layouts` in a folder of `src` that `listing` has no input of, and
    one for its `unread_folders` without such a set.

    Folders are looked for three levels down, in `_MAX_FOLDERS_BESIDE` folders at most, nearest first.
    """
    others = [layout for layout in layouts if layout.name != listing.layout]
    if not listing.recognised_by or listing.root != src:  # no published set, or a part of one
        return
    used = {entry.video_id.partition("/")[0] for entry in listing.entries}
    skipped = {name for name in listable_folders(src) if name in used or name.lower() in DERIVED_FOLDERS}
    sets = list(_nested_sets(src, others, _MAX_FOLDERS_BESIDE, skipped))
    for name, layout in sets:
        yield (
            f"{name!r} holds a {layout} set, which is not read (layout {listing.layout}): name that folder as the SRC "
            "of a run of its own"
        )
    tops = {name.partition("/")[0] for name, _ in sets}
    if unread := [name for name in listing.unread_folders if name not in tops]:
        counts = [f"{name!r} ({plural(listing.ignored.get(f'in {name}/', 0), 'file')})" for name in unread]
        yield (
            f"folders that belong to no {listing.layout} set are not read: {first_names(counts, _MAX_LISTED)}; "
            "read them in runs of their own, or all together with --layout folder"
        )


def refuse_nearby_dataset(src: Path, layouts: Iterable[Layout]) -> None:
    """Raises `UsageError` where `src`, which none of `layouts` fits, contains folders that fit, or is part of a set.

    Folders are looked for three levels down, in `_MAX_FOLDERS` folders at most, nearest first.
    """
    alternative = "or read it as it lies with --layout folder"
    if root := dataset_root(src):
        raise UsageError(
            f"SRC={str(src)!r}: is one folder of a celebdf set, and says alone neither originals nor what is real: "
            f"name {str(root)!r}, {alternative}"
        )
    nested = list(_nested_sets(src, tuple(layouts), _MAX_FOLDERS))
    _refuse_doubled_folders(src, nested)
    _refuse_one_class_of_two(src, nested)
    if nested:
        named = " and ".join(f"a {layout} set in {name!r}" for name, layout in nested[:_MAX_LISTED])
        more = f" and {len(nested) - _MAX_LISTED:,} more" if len(nested) > _MAX_LISTED else ""
        which = "that folder" if len(nested) == 1 else "one of these folders"
        raise UsageError(f"SRC={str(src)!r}: holds {named}{more}: name {which}, {alternative}")


def _refuse_doubled_folders(src: Path, nested: Iterable[tuple[str, str]]) -> None:
    """Raises `UsageError` where one folder of a set lies alone in another of its name, as some archives unpack."""
    doubled = [(name, layout) for name, layout in nested if listable_folders(src / name) == [Path(name).name]]
    if doubled:
        name, layout = doubled[0]
        more = f" (and {len(doubled) - 1:,} more)" if len(doubled) > 1 else ""
        raise UsageError(
            f"SRC={str(src)!r}: {name!r}{more} holds one folder of its own name, as some archives unpack, so that its "
            f"parts of a {layout} set would not be read together: move what is in '{name}/{Path(name).name}' up into "
            f"{name!r}, and so in all folders beside it that are doubled"
        )


def _refuse_one_class_of_two(src: Path, nested: Iterable[tuple[str, str]]) -> None:
    """Raises `UsageError` where the folder of a set, or one above it, is called after a class and another one beside it
    after the other: naming the set as SRC would leave that class out.
    """
    pairs = ((name, layout, *pair) for name, layout in nested for pair in _beside_another_class(src, name))
    for name, layout, folder, other in pairs:
        raise UsageError(
            f"SRC={str(src)!r}: holds a {layout} set in {name!r}, but {folder!r} and {other!r} are called after two "
            f"classes: with {name!r} as SRC, what is in {other!r} would be left out; read both with --layout folder, "
            "which takes labels from the names of folders and knows neither originals nor people"
        )


def _beside_another_class(src: Path, name: str) -> Iterator[tuple[str, str]]:
    """Folders on the way from `src` to `name` that are called after a class, and ones beside them of another class."""
    above = ""
    for part in name.split("/"):
        label = class_of_folder(part)
        for other in listable_folders(src / above) if label is not None else ():
            if class_of_folder(other) not in (None, label):
                yield f"{above}{part}", f"{above}{other}"
        above = f"{above}{part}/"


def _nested_sets(
    src: Path, layouts: Sequence[Layout], max_folders: int, skipped: Set[str] = frozenset()
) -> Iterator[tuple[str, str]]:
    """Path relative to `src` and layout of each set below it, none within another; `skipped`: folders of `src`."""
    pending = deque((src / name, 1) for name in listable_folders(src) if name not in skipped)
    for _ in range(max_folders):
        if not pending:
            return
        folder, depth = pending.popleft()
        if layout := next((layout.name for layout in layouts if layout.fits(folder)), None):
            yield folder.relative_to(src).as_posix(), layout
        elif depth < _MAX_DEPTH:
            pending.extend((folder / name, depth + 1) for name in listable_folders(folder))
