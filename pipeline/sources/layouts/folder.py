"""Layout `folder`: media in folders whose names may say the class (real, fake) and the split (train, val, test)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path

from ..checks.ffpp_names import ffpp_names_warning
from ..folder_names import class_of_folder, is_unclear_split, split_of_folder
from ..listing import Entry, FoundFile, Listing, has_usable_splits
from ..media.media_files import find_media, ignored_as_mask
from ..media.shared_files import shared_files_warning
from ..packed_records import PackedRecords

_LABELS = ("real", "fake")
_MAX_NAMED = 5


class Folder:
    """Folders called after a class give the label (none: -1); splits are used where two or more are named.

    Of folders in one another that name different classes, the innermost counts. One that holds folders of both classes,
    or directly one of the other class, names none: `Deepfake Dataset/real`.
    """

    name = "folder"
    needs = "a folder"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_dir()

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the media files of `src` that are not in a folder of masks."""
        ignored: Counter[str] = Counter()
        files = PackedRecords(FoundFile, find_media(src, ignored, allowed=allowed, skip=ignored_as_mask))
        splits = [_split(file.relative) for file in files]
        uses_splits = has_usable_splits({*splits})
        of_no_class = _folders_of_no_class(file.relative for file in files)
        entries = [
            Entry.of_file(file, label=_label(file.relative, of_no_class), split=split)
            for file, split in zip(files, splits, strict=True)
        ]
        unclear = () if uses_splits else _unclear_split_warnings(entry.video_id for entry in entries)
        return Listing(
            layout=self.name, root=src, labels=_LABELS, entries=entries, ignored=ignored,
            uses_splits=uses_splits, without_splits="rename the folders that are called like splits",
            giving_labels="put them below folders called real and fake, name a published set's own folder as SRC, or "
            "list them in a table: path,label",
            warnings=(
                *unclear, *shared_files_warning(entries, files, _LABELS),
                *ffpp_names_warning(entries, _LABELS.index("real")),
            ),
        )  # fmt: skip


def _unclear_split_warnings(paths: Iterable[str]) -> Iterator[str]:
    """What was not taken for splits although it may be meant so."""
    unclear = sorted({folder for path in paths for folder in _folders(path) if is_unclear_split(folder)})
    if unclear:
        named = ", ".join(map(repr, unclear[:_MAX_NAMED])) + (", ..." if len(unclear) > _MAX_NAMED else "")
        yield (
            f"folders with the name of a split among other words are taken for none: {named}; where they are splits, "
            "call them train, val and test"
        )


def _folders(relative: str) -> tuple[str, ...]:
    return tuple(relative.split("/")[:-1])  # a Path would intern all names in it


def _label(relative: str, of_no_class: Set[tuple[str, ...]]) -> int:
    *_, label = (-1, *(label for folder, label in _class_folders(relative) if folder not in of_no_class))
    return label


def _folders_of_no_class(paths: Iterable[str]) -> set[tuple[str, ...]]:
    """Folders called after a class that hold folders called after either, `original/{real,fake}`, or one of these.

    Of `real/person/fake` nothing follows for the rest of `real`.
    """
    below: dict[tuple[str, ...], set[int]] = {}
    of_no_class: set[tuple[str, ...]] = set()
    for path in paths:
        named = list(_class_folders(path))
        for position, (folder, label) in enumerate(named):
            inner = named[position + 1 :]
            below.setdefault(folder, set()).update(each for _, each in inner)
            if inner and len(inner[0][0]) == len(folder) + 1 and inner[0][1] != label:
                of_no_class.add(folder)
    return of_no_class | {folder for folder, labels in below.items() if labels == {0, 1}}


def _class_folders(relative: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The folders above a file that are called after a class, from the top, as their parts and the class."""
    parts = _folders(relative)
    for position, part in enumerate(parts, 1):
        if (label := class_of_folder(part)) is not None:
            yield parts[:position], label


def _split(relative: str) -> str | None:
    return next((split for part in _folders(relative) if (split := split_of_folder(part))), None)
