"""What stands in more than one split although nothing may: the same originals and people; and whether that is known."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple, Self

from ..components import nodes_of
from ..plan import Plan
from ..schema import SPLITS


class Crossing(NamedTuple):
    """One that crosses. `kind`: video, footage or person, as in `Entry`."""

    kind: str
    name: str
    splits: tuple[str, ...]


class Ties(NamedTuple):
    """How many videos with rows say what splits must keep together, and how many there are that could.

    `not_real`: videos that are not labelled real, and may thus have an original; where no class is called so, those
    that name one. `clips`: those that are versions or frames of a recording.
    """

    videos: int
    with_person: int
    not_real: int
    with_original: int
    clips: int

    @classmethod
    def of(cls, plan: Plan, shown: Container[str], labels: Sequence[str]) -> Self:
        """Counts the videos in `shown`; `labels[i]` is the name of label `i`."""
        entries = [entry for name, (entry, _) in plan.videos().items() if name in shown]
        with_original = sum(entry.source_id is not None for entry in entries)
        real = [name.lower() for name in labels].index("real") if "real" in map(str.lower, labels) else None
        return cls(
            videos=len(entries),
            with_person=sum(bool(entry.people) for entry in entries),
            not_real=with_original if real is None else sum(entry.label != real for entry in entries),
            with_original=with_original,
            clips=sum(entry.footage is not None for entry in entries),
        )


def crossings(plan: Plan, shown: Container[str]) -> list[Crossing]:
    """All that tie videos of several splits together, by kind and name; `shown`: the videos that have rows.

    People who were given up when splits were drawn are among them.
    """
    splits: dict[str, set[str]] = {}
    for video_id, (entry, split) in plan.videos().items():
        if video_id in shown:
            for node in nodes_of(entry, ()):
                splits.setdefault(node, set()).add(split)
    return [
        Crossing(kind, name, tuple(split for split in SPLITS if split in found))
        for (kind, _, name), found in sorted((node.partition(" "), found) for node, found in splits.items())
        if len(found) > 1
    ]
