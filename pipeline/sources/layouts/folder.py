"""Layout `folder`: media in folders whose names may say the class (real, fake) and the split (train, val, test)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ..clips.image_sequences import FAKE_NAMES, REAL_NAMES
from ..listing import Entry, Listing, has_usable_splits, parse_split_name
from ..media.media_files import MASK_FOLDER, find_media


class Folder:
    """The topmost folder that names a class gives the label (none: -1); splits count where two or more are named."""

    name = "folder"
    needs = "a folder"

    def fits(self, src: Path) -> bool:
        """Whether `src` has this layout."""
        return src.is_dir()

    def read(self, src: Path, allowed: Sequence[Path] = ()) -> Listing:
        """Lists the media files of `src` that are not in a folder of masks."""
        ignored: Counter[str] = Counter()
        files = list(find_media(src, ignored, allowed=allowed, skip=_skip_masks))
        splits = [_split(file.relative) for file in files]
        use_splits = has_usable_splits(set(splits))
        entries = [
            Entry.of_file(file, label=_label(file.relative), split=split if use_splits else None)
            for file, split in zip(files, splits, strict=True)
        ]
        return Listing(
            layout=self.name, root=src, labels=("real", "fake"), entries=entries, ignored=ignored,
            without_splits="rename the folders that are called like splits",
            giving_labels="put them below folders called real and fake, name a published set's own folder as SRC, or "
            "list them in a table: path,label",
        )  # fmt: skip


def _skip_masks(folder: str) -> str | None:
    """Name to count the files of a folder of masks under; None for any other folder."""
    return f"in {MASK_FOLDER}/" if folder.rpartition("/")[2].lower() == MASK_FOLDER else None


def _folders(relative: str) -> list[str]:
    return [part.lower() for part in PurePosixPath(relative).parts[:-1]]


def _label(relative: str) -> int:
    for part in _folders(relative):
        if part in REAL_NAMES:
            return 0
        if part in FAKE_NAMES:
            return 1
    return -1


def _split(relative: str) -> str | None:
    return next((name for part in _folders(relative) if (name := parse_split_name(part))), None)
