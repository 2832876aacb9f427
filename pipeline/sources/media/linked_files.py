"""Files that metadata name more than once: by their own name and by a link, or by several links."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from ...errors import UsageError
from ...video.image_folder import list_frames
from ..listing import Entry, FoundFile, Listing

LISTED_ALREADY = "links to files that are listed already"


class RealPaths:
    """Real paths of names relative to `root`, at one lstat for each name and each folder: tables have 1 M rows.

    `allowed`: real paths of further folders that links may lead into.
    """

    def __init__(self, root: Path, allowed: Sequence[Path] = ()) -> None:
        self._root = os.path.realpath(root)
        self._roots = (Path(self._root), *allowed)
        self._known = {"": self._root}
        self._joined: dict[str, str] = {}

    def join_clips(self, files: Iterable[FoundFile]) -> None:
        """Has `of` give one path for all folders of images among `files` whose images are links to the same files.

        It is that of the folder that the files lie in or, of links alone, the first.
        """
        alike: defaultdict[tuple[int, int, int], set[str]] = defaultdict(set)
        for file in files:
            if file.num_images:
                alike[file.num_images, file.size_bytes, file.mtime_ns].add(self.of(file.relative))
        for folders in alike.values():
            if len(folders) == 1:  # all clips of most sets: their images are not looked at
                continue
            by_images: defaultdict[frozenset[str], list[str]] = defaultdict(list)
            for folder in sorted(folders):
                by_images[self._images_of(folder)].append(folder)
            for images, same in by_images.items():
                holders = {os.path.dirname(image) for image in images}  # noqa: PTH120
                own = next((folder for folder in same if holders == {folder}), same[0])
                self._joined |= dict.fromkeys(same, own)

    def _images_of(self, folder: str) -> frozenset[str]:
        """Real paths of the images of a clip; of a folder that cannot be listed any more, its own."""
        try:
            return frozenset(_follow(f"{folder}/{name}") for name in list_frames(Path(folder), self._roots))
        except OSError:
            return frozenset([folder])

    def of(self, name: str) -> str:
        """Path of `name` with all links resolved; there may be no such file."""
        path = self._resolve(name)
        return self._joined.get(path, path)

    def _resolve(self, name: str) -> str:
        unknown = []
        while name not in self._known and name.strip("/"):
            unknown.append(name)
            name = os.path.dirname(name)  # noqa: PTH120 (a Path per name is slow)
        path = self._known.get(name, "/")
        for name in reversed(unknown):
            path = self._known[name] = _follow(f"{path.rstrip('/')}/{os.path.basename(name)}")  # noqa: PTH119
        return path

    def own_or_first(self, names: Iterable[str]) -> dict[str, str]:
        """For each file, by real path, the one of sorted `names` that is its own or, of links alone, the first."""
        chosen: dict[str, str] = {}
        for name in names:
            file = self.of(name)
            if file not in chosen or file == os.path.join(self._root, name):  # noqa: PTH118
                chosen[file] = name
        return chosen


def _follow(path: str) -> str:
    """Real path of what is called so in a folder without links on the way to it."""
    return os.path.realpath(path) if os.path.islink(path) or path.endswith("/..") else path  # noqa: PTH114


def each_file_once(src: Path, listing: Listing, real_paths: RealPaths) -> Listing:
    """The listing without entries that are links to a file or folder of another one; these count as ignored.

    An entry stays under the file's own name or, where only links to it are listed, under the first of these by name.
    Originals, and footage called after an entry, get the name that is kept. An own column of which the rows of one file
    differ becomes one of `unusable_columns`.

    Args:
        src: the table, or what else names them.
        listing: its inputs, sorted by id.
        real_paths: of names relative to its root.

    Raises:
        UsageError: the entries of one file differ in another value.

    """
    ids = [entry.video_id for entry in listing.entries if not entry.problem]
    sources = sorted({entry.source_id for entry in listing.entries if entry.source_id})
    # The rows of fakes may name one original, which is no row itself, by several links.
    names = real_paths.own_or_first(sources) | real_paths.own_or_first(ids)
    kept_as = {name: other for name in ids if (other := names[real_paths.of(name)]) != name}
    original_of = {name: names[real_paths.of(name)] for name in sources}
    entries = [_renamed(entry, original_of, kept_as) for entry in listing.entries]
    if not kept_as:
        return replace(listing, entries=entries)
    by_id = {entry.video_id: entry for entry in entries}
    unusable: dict[str, str] = {}
    for name, kept_name in kept_as.items():
        kept, entry = by_id[kept_name], by_id[name]
        if field := _different_field(kept, entry, real_paths):
            raise UsageError(_difference(src, kept, entry, field))
        for column, value, dropped in zip(listing.columns, kept.values, entry.values, strict=True):
            if value != dropped:
                unusable.setdefault(column, _difference(src, kept, entry, column))
    return replace(
        listing,
        entries=[entry for entry in entries if entry.video_id not in kept_as],
        ignored=listing.ignored + Counter({LISTED_ALREADY: len(kept_as)}),
        unusable_columns=unusable,
    )


def _renamed(entry: Entry, original_of: Mapping[str, str], kept_as: Mapping[str, str]) -> Entry:
    source_id = original_of[entry.source_id] if entry.source_id else None
    footage = kept_as.get(entry.footage, entry.footage) if entry.footage else None  # without one, it is the entry's id
    if (source_id, footage) == (entry.source_id, entry.footage):
        return entry
    return replace(entry, source_id=source_id, footage=footage)


def _different_field(kept: Entry, entry: Entry, real_paths: RealPaths) -> str | None:
    """The first field in which two entries of one file differ, but own columns; None where there is none."""
    same = replace(entry, video_id=kept.video_id, images_digest=kept.images_digest, values=kept.values)
    if kept.mask_id and entry.mask_id and real_paths.of(kept.mask_id) == real_paths.of(entry.mask_id):
        same = replace(same, mask_id=kept.mask_id)
    return next((each.name for each in fields(Entry) if getattr(kept, each.name) != getattr(same, each.name)), None)


def _difference(src: Path, kept: Entry, entry: Entry, name: str) -> str:
    are_one = "have the same images by links" if kept.num_images else "are one file by a link"
    return (
        f"{src}: names {kept.video_id!r} and {entry.video_id!r}, which {are_one}, with different values ({name}); each "
        "input is listed once: drop one of the two"
    )
