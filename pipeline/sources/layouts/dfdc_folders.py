"""Folders of DFDC: its parts for training, its validation and its test set, and where their metadata lie."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...errors import UsageError
from ...json_records import parse_json
from ..folder_names import split_of_folder
from ..media.media_files import listable_folders, path_exists
from ..media.suffixes import suffix_of
from ..metadata.json_files import is_json_list
from .names.name_matcher import published_path, stem_of
from .names.spelling import misspelt, spelling_key

TABLE = "labels.csv"
_METADATA = "metadata.json"
_SAMPLE = "trainsamplevideos"  # a part's folder, as its `spelling_key`
_PART = re.compile(rf"dfdctrainpart.*|{_SAMPLE}")
_COLUMNS = ("filename", "label")
_HELD_OUT = ("val", "test")
_EXPECTED = "dfdc_train_part_* and train_sample_videos, in SRC or in train; validation and test, in SRC"


def find_parts(src: Path) -> list[Path]:
    """Folders with metadata."""
    if _is_metadata(src / _METADATA):
        return [src]
    return sorted(part for part in {*_part_folders(src), *_held_out(src)} if path_exists(part / _METADATA))


def _part_folders(src: Path) -> Iterator[Path]:
    """The folders of parts in `src` and in `train`, and those in these, as archives are unzipped."""
    train = (src / name for name in listable_folders(src) if name.lower() == "train")
    for outer in (part for folder in (src, *train) for part in _called_as_parts(folder)):
        yield outer
        yield from _called_as_parts(outer)


def _called_as_parts(folder: Path) -> list[Path]:
    return [folder / name for name in listable_folders(folder) if _PART.fullmatch(spelling_key(name))]


def copied_names(paths: Iterable[str]) -> set[str]:
    """Stems of the videos, of those at `paths`, that are in a part and in `train_sample_videos`, which is of the parts.

    >>> copied_names(["train_sample_videos/a.mp4", "train_sample_videos/b.mp4", "dfdc_train_part_0/a.mp4"])
    {'a'}
    """
    sample, others = set[str](), set[str]()
    for path in paths:
        *folders, name = stem_of(published_path(path)).split("/")
        if keys := {key for folder in folders if _PART.fullmatch(key := spelling_key(folder))}:
            (sample if _SAMPLE in keys else others).add(name)
    return sample & others


def refuse_unread_metadata(src: Path, read: Collection[Path], unlabelled: Iterable[str]) -> None:
    """Raises `UsageError` where other metadata than those in the folders `read` lie above a file without a label."""
    inner = {posixpath.dirname(path) for path in unlabelled}
    for folder in sorted({parent for path in inner for parent in (Path(path), *Path(path).parents)}):
        found = [path for path in (src / folder / _METADATA, src / folder / TABLE) if _gives_labels(path)]
        if found and src / folder not in read:
            path = (folder / found[0].name).as_posix()
            meant = _dfdc_folder_name(folder.parts)
            remedy = f"did you mean {f'{meant}/{found[0].name}'!r}" if meant else "is its folder called as the set's"
            raise UsageError(
                f"{src}: {path!r} is not read, so that the files below {folder.as_posix()!r} would have no label; "
                f"{remedy}? Rename or move the folder ({_EXPECTED}), or take it out"
            )


def _gives_labels(path: Path) -> bool:
    return _has_columns(path) if path.name == TABLE else _is_metadata(path)


def _dfdc_folder_name(folders: Sequence[str]) -> str | None:
    """The first of `folders` that has a name of the dataset, or the correct name where it is misspelt."""
    for name in folders:
        if _PART.fullmatch(spelling_key(name)) or split_of_folder(name) in _HELD_OUT:
            return name
        number = name[len(name.rstrip("0123456789")) :]
        known = ("validation", "test", "train_sample_videos", f"dfdc_train_part_{number}")
        if near := misspelt([name], known):
            return near[name]
    return None


def _held_out(src: Path) -> list[Path]:
    """The folders of the validation and the test set."""
    folders = (src / name for name in listable_folders(src))
    return [folder for folder in folders if given_split(folder, src)]


def _is_metadata(path: Path) -> bool:
    """Whether a file of this name is DFDC's: that of other sets is a list, or says nothing of labels."""
    if not path_exists(path) or is_json_list(path):  # before the whole list is parsed, which may be large
        return False
    try:
        data = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return True  # `read` reports it
    records = data.values() if isinstance(data, dict) else ()
    return any(isinstance(record, dict) and record.keys() & {"label", "is_fake"} for record in records)


def find_tables(src: Path) -> list[Path]:
    """The tables of the validation and the test set, where they are there."""
    return [path for folder in (src, *_held_out(src)) if _has_columns(path := folder / TABLE)]


def _has_columns(path: Path) -> bool:
    """Whether a table is DFDC's: its files are videos with bare names, and have labels 0 or 1."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            row = next(csv.DictReader(file), {})
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    name, label = (str(row.get(column) or "").strip() for column in _COLUMNS)
    is_of_form = suffix_of(name) == ".mp4" and "/" not in name and label in {"0", "1"}
    return is_of_form and not _means_the_opposite(row, label)


_CLASS_COLUMNS = ("class", "category", "label_name", "target", "type")
_TRUE, _FALSE = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


def _means_the_opposite(row: Mapping[str, object], label: str) -> bool:
    """Whether another column of a row says that its `label` 1 means real, or 0 fake, as in no table of DFDC.

    Columns of other names may hold what something else is called, or was taken for.
    """
    cells = {str(name).strip().lower(): str(cell).strip().lower() for name, cell in row.items() if name != "label"}
    real, fake = (_TRUE, _FALSE) if label == "1" else (_FALSE, _TRUE)
    return (
        any(cells.get(name) == ("real" if label == "1" else "fake") for name in _CLASS_COLUMNS)
        or any(cells.get(name) in real for name in ("real", "is_real"))
        or any(cells.get(name) in fake for name in ("fake", "is_fake"))
    )


def given_split(folder: Path, src: Path) -> str | None:
    """`val` or `test` of a folder in `src` that is called so, which is that set."""
    split = None if folder == src else split_of_folder(folder.name)
    return split if split in _HELD_OUT else None
