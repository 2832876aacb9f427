"""Findings on the classes: their names, their numbers of faces, in each split and in all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ...console import first_names, percent, plural
from ...dataset.schema import SPLITS
from ..statistics.columns import FACE_SIZE, SHARPNESS
from ..statistics.groups import Group, Statistics
from ..statistics.outcomes import Outcomes
from .finding import Finding, sentence

# A finding is a warning from these limits on.
_CLASS_SIZE_RATIO: Final = 3.0
_FACE_SIZE_RATIO: Final = 1.5
_SHARPNESS_RATIO: Final = 2.0


def class_names(statistics: Statistics, outcomes: Outcomes) -> Iterator[Finding]:
    """Classes none of which is known to be real, or that may be others misspelt."""
    if outcomes.unknown_real_class:
        yield Finding(
            "warning",
            sentence(outcomes.unknown_real_class),
            "Name the real one in the source, in a table's file of classes as 'real: NAME', and use a new OUT.",
        )
    for name, other in outcomes.misspelt_classes.items():
        videos = plural(outcomes.inputs_of_class[name], "video")
        splits = {key.split for key in statistics.groups}
        is_everywhere = splits == {key.split for key in statistics.groups if key.label == name}
        yield Finding(
            "warning" if is_everywhere else "error",
            f"The class {name!r} ({videos}) may be {other!r} misspelt: it is a class of its own.",
            "If so, fix the labels, and use a new OUT.",
        )


def split_coverage(statistics: Statistics, misspelt: Collection[str]) -> Iterator[Finding]:
    """Which split lacks a class; none has to have a `misspelt` one."""
    rows = {split: dict.fromkeys(statistics.classes, 0) for split in SPLITS}
    for key, group in statistics.groups.items():
        rows[key.split][key.label] += group.rows
    present = [split for split in SPLITS if any(rows[split].values())]
    for split in SPLITS:
        if split not in present:
            yield Finding("warning", f"There is no {split} split.")
    absent_labels = {
        split: [label for label, _ in _labelled_classes(statistics) if not rows[split][label] and label not in misspelt]
        for split in present
    }
    for split, labels in absent_labels.items():
        if labels:
            those = labels[0] if len(labels) == 1 else "them"
            yield Finding(
                "error",
                f"{split} has no {_faces_of(labels)}.",
                f"What is learned or measured on {split} says nothing of {those}.",
            )
    has_every_class = all(group.rows for group in statistics.classes.values()) and not misspelt
    if has_every_class and present == list(SPLITS) and not any(absent_labels.values()):
        yield Finding("ok", "Every split has faces of every class.")


def _faces_of(labels: Sequence[str]) -> str:
    return f"{labels[0]} faces" if len(labels) == 1 else f"faces of {len(labels)} classes: {first_names(labels)}"


def class_balance(statistics: Statistics) -> Iterator[Finding]:
    """Classes without faces or with many more than others, and what else tells them apart."""
    if empty := [label for label, group in statistics.classes.items() if not group.rows]:
        yield Finding("error", f"No split has {_faces_of(empty)}.")
    if statistics.unlabelled:
        rows = statistics.classes[statistics.unlabelled].rows
        share = percent(rows / statistics.total.rows)
        yield Finding("warning", f"{plural(rows, 'face')} ({share}) have no known label.")
    by_size = sorted(_labelled_classes(statistics), key=lambda item: item[1].rows)
    if len(by_size) > 1:
        (smallest_label, smallest), (largest_label, largest) = by_size[0], by_size[-1]
        ratio = largest.rows / smallest.rows
        if ratio >= _CLASS_SIZE_RATIO:
            ratio_text = f"{ratio:.1f}".removesuffix(".0")
            yield Finding(
                "warning",
                f"{largest_label} has {ratio_text} times as many faces as {smallest_label}.",
                "The loader can even that out: balance=.",
            )
    yield from _shortcuts(by_size)


def _labelled_classes(statistics: Statistics) -> list[tuple[str, Group]]:
    """Classes that have faces, without that of the faces without a label."""
    return [
        (label, group) for label, group in statistics.classes.items() if group.rows and label != statistics.unlabelled
    ]


def _shortcuts(classes: list[tuple[str, Group]]) -> Iterator[Finding]:
    """Measures that separate two classes without their content, so that a model may learn these instead."""
    for key, adjective, limit in (
        (FACE_SIZE.key, "larger", _FACE_SIZE_RATIO),
        (SHARPNESS.key, "sharper", _SHARPNESS_RATIO),
    ):
        medians = sorted((quantiles.median, label) for label, group in classes if (quantiles := group.measures[key]))
        if len(medians) < 2:
            continue
        (low, low_label), (high, high_label) = medians[0], medians[-1]
        ratio = high / max(low, 1e-9)
        if ratio >= limit:
            yield Finding(
                "warning",
                f"{high_label} faces are {ratio:.1f} times {adjective} than {low_label} ones (medians).",
                "A model may learn that instead of what you want it to learn.",
            )
