"""Layout `folder`: media in folders whose names may say the class (real, fake) and the split (train, val, test)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path, PurePosixPath

from ..folder_names import class_of_folder, is_unclear_split, split_of_folder
from ..listing import Entry, Listing, has_usable_splits
from ..media.media_files import find_media, ignored_as_mask

_MAX_NAMED = 5


class Folder:
    """The topmost folder that names a class gives the label (none: -1); splits are used where two or more are named.

    A folder that holds folders called after the other class names none: `Deepfake Dataset/real`.
    """

    name = "folder"
    needs = "a folder"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_dir()

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the media files of `src` that are not in a folder of masks."""
        ignored: Counter[str] = Counter()
        files = list(find_media(src, ignored, allowed=allowed, skip=ignored_as_mask))
        splits = [_split(file.relative) for file in files]
        uses_splits = has_usable_splits({*splits})
        contradicted = _folders_above_the_other_class(file.relative for file in files)
        entries = [
            Entry.of_file(file, label=_label(file.relative, contradicted), split=split)
            for file, split in zip(files, splits, strict=True)
        ]
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries, ignored=ignored,
            uses_splits=uses_splits, without_splits="rename the folders that are called like splits",
            giving_labels="put them below folders called real and fake, name a published set's own folder as SRC, or "
            "list them in a table: path,label",
            warnings=() if uses_splits else tuple(_unclear_split_warnings(file.relative for file in files)),
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
    return PurePosixPath(relative).parts[:-1]


def _label(relative: str, contradicted: Set[tuple[str, ...]]) -> int:
    labels = (label for folder, label in _class_folders(relative) if folder not in contradicted)
    return next(labels, -1)


def _folders_above_the_other_class(paths: Iterable[str]) -> set[tuple[str, ...]]:
    """Folders called after a class that hold folders called after the other one: `original` with `original/fake`.

    Also without `original/real`, which may come later and must not turn the labels of what is there already.
    """
    contradicted: set[tuple[str, ...]] = set()
    for path in paths:
        named = list(_class_folders(path))
        contradicted.update(
            folder
            for position, (folder, label) in enumerate(named)
            if any(inner != label for _, inner in named[position + 1 :])
        )
    return contradicted


def _class_folders(relative: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The folders above a file that are called after a class, from the top, as their parts and the class."""
    parts = _folders(relative)
    for position, part in enumerate(parts, 1):
        if (label := class_of_folder(part)) is not None:
            yield parts[:position], label


def _split(relative: str) -> str | None:
    return next((split for part in _folders(relative) if (split := split_of_folder(part))), None)
