"""Coverage of splits: which classes a split has no input of, as drawn splits of a small set may."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ..console import first_names
from ..dataset.schema import SPLITS
from ..sources import Entry


def coverage_warnings(
    planned: Iterable[tuple[Entry, str]], labels: Sequence[str], misspelt: Container[str] = ()
) -> list[str]:
    """One sentence for each split that has inputs, but none of a class that another split has.

    A video that is fake in part counts for both of its classes. `planned`: inputs with their splits; `labels[i]` is the
    name of label `i`. `misspelt`: names that may be another one misspelt, which no split needs.
    """
    classes: dict[str, set[int]] = {}
    for entry, split in planned:
        of_entry = {entry.label} if entry.fake_segments is None else {entry.label, entry.outside_label}
        classes.setdefault(split, set()).update(of_entry - {-1})
    present = {label for label in set().union(*classes.values()) if labels[label] not in misspelt}
    return [
        f"{split} has no input that is {first_names([labels[label] for label in absent])}: what is learned or measured "
        "on it says nothing of that; give other splits or, where they are drawn, another --seed, with a new OUT"
        for split in SPLITS
        if split in classes and (absent := sorted(present - classes[split]))
    ]
