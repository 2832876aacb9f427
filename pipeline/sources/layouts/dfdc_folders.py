"""Folders of DFDC: its parts for training, its validation and its test set, and where their metadata lie."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...errors import UsageError
from ...json_records import parse_json
from ..folder_names import split_of_folder
from ..media.media_files import listable_folders, path_exists
from .names.spelling import spelling_key

TABLE = "labels.csv"
_PART = re.compile(r"dfdctrainpart.*|trainsamplevideos")  # a part's folder, as its `spelling_key`
_COLUMNS = ("filename", "label")


def find_parts(src: Path) -> list[Path]:
    """Folders with metadata."""
    if _is_metadata(src / "metadata.json"):
        return [src]
    return sorted(part for part in {*_part_folders(src), *_held_out(src)} if path_exists(part / "metadata.json"))


def _part_folders(src: Path) -> Iterator[Path]:
    """The folders of parts in `src` and in `train`, and those in these, as archives are unzipped."""
    train = (src / name for name in listable_folders(src) if name.lower() == "train")
    for outer in (part for folder in (src, *train) for part in _called_as_parts(folder)):
        yield outer
        yield from _called_as_parts(outer)


def _called_as_parts(folder: Path) -> list[Path]:
    return [folder / name for name in listable_folders(folder) if _PART.fullmatch(spelling_key(name))]


def refuse_hidden_metadata(src: Path, parts: Sequence[Path]) -> None:
    """Raises `UsageError` where the metadata of a part lies in another folder in it: it would have no labels."""
    read = {*parts, *(part.parent for part in parts)}
    for part in _part_folders(src):
        for name in listable_folders(part) if part not in read else ():
            if path_exists(part / name / "metadata.json"):
                inner = (part / name).relative_to(src).as_posix()
                raise UsageError(
                    f"{src}: the metadata.json of {part.relative_to(src).as_posix()!r} is in {inner!r}, and no label "
                    f"of this part would be known; move what is in {inner!r} one folder up"
                )


def _held_out(src: Path) -> list[Path]:
    """The folders of the validation and the test set."""
    folders = (src / name for name in listable_folders(src))
    return [folder for folder in folders if given_split(folder, src)]


def _is_metadata(path: Path) -> bool:
    """Whether a file of this name is DFDC's: that of other sets is a list, or says nothing of labels."""
    if not path_exists(path):
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
    """Whether a table is DFDC's: its files have bare names, and labels 0 or 1."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            row = next(csv.DictReader(file), {})
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    name, label = (str(row.get(column) or "").strip() for column in _COLUMNS)
    return bool(name) and "/" not in name and label in {"0", "1"}


def given_split(folder: Path, src: Path) -> str | None:
    """`val` or `test` of a folder in `src` that is called so, which is that set."""
    split = None if folder == src else split_of_folder(folder.name)
    return split if split in ("val", "test") else None
