"""What a layout hands on: one `Entry` an input, and all of them in a `Listing`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ..dataset.schema import SPLITS
from ..errors import Reason, UsageError

MAX_CLASSES = 128  # labels are int8
_CLASSES_SHOWN = 12

_SPLIT_NAMES = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "dev": "val",
                "test": "test", "testing": "test"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One input as its layout describes it; `problem` is set where it must not even be opened.

    `label` is an index into the listing's labels or -1. What splits must not cut: `source_id`, the video a fake was
    made from; `footage`, the recording that this is a version of, as in other grades of compression; `identity`, who is
    shown; and `kin`, further people who are in the video or were used to make it. Where people link too much of a
    collection they are given up, originals and footage never. `footage` and `kin` become no column.
    """

    video_id: str
    size_bytes: int = 0
    mtime_ns: int = 0
    label: int = -1
    split: str | None = None
    source_id: str | None = None
    footage: str | None = None
    identity: str | None = None
    kin: tuple[str, ...] = ()
    dataset: str | None = None
    method: str | None = None
    compression: str | None = None
    problem: Reason | None = None
    detail: str | None = None

    @property
    def people(self) -> tuple[str, ...]:
        """Everyone in it: who is shown, then the kin."""
        return (self.identity, *self.kin) if self.identity else self.kin


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Everything one source holds. `missing` names what metadata lists and is absent on disk; no failure.

    `labels[i]` is the name of label `i`. `ignored` counts files that are no inputs, by suffix or by the folder they lie
    in. `root` is the folder that every `video_id` is relative to. `without_splits` says in the imperative how a user
    gets rid of the given splits, so that they are drawn; `giving_labels` how inputs without a label get one.
    `ignored_columns`: of a table, those that mean nothing.
    """

    layout: str
    root: Path
    labels: tuple[str, ...]
    entries: list[Entry]
    missing: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    without_splits: str = "take the splits out of the source"
    giving_labels: str = "list them in a table: path,label"
    ignored_columns: tuple[str, ...] = ()

    def format_class_counts(self) -> str:
        """How many entries each class has, for people: `14 real, 16 fake`."""
        counts = Counter(entry.label for entry in self.entries)
        named = [f"{counts[number]:,} {name}" for number, name in enumerate(self.labels) if counts[number]]
        shown = named[:_CLASSES_SHOWN]
        if len(named) > len(shown):
            shown.append(f"and {len(named) - len(shown)} classes more")
        return ", ".join([*shown, f"{counts[-1]:,} {unlabelled_name(self.labels)}"] if counts[-1] else shown)


def unlabelled_name(labels: Sequence[str]) -> str:
    """What label -1 is called beside the classes `labels`: unknown, unless one of them is called so.

    >>> unlabelled_name(["real", "fake"]), unlabelled_name(["real", "Unknown"])
    ('unknown', 'no label')
    """
    taken = {name.lower() for name in labels}
    name = "unknown" if "unknown" not in taken else "no label"
    while name in taken:
        name += " (-1)"
    return name


def refuse_duplicates(where: Path, entries: Sequence[Entry]) -> None:
    """Raises `UsageError` where two of the sorted `entries` are the same file."""
    for one, other in pairwise(entries):
        if one.video_id == other.video_id:
            raise UsageError(f"{where}: names {one.video_id!r} more than once; each input may have one label: drop one")


def parse_split_name(name: str) -> str | None:
    """`train`, `val` or `test` for the names people use; None for any other."""
    return _SPLIT_NAMES.get(name.strip().lower())


def has_usable_splits(names: set[str | None]) -> bool:
    """A given split is used only if it names two or more (DFDC says `train` for everything)."""
    return len(names & set(SPLITS)) >= 2
