"""What stands in more than one split although nothing may: the same originals, recordings and people."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from ...dataset.schema import SPLITS
from ...planning.plan import Plan
from ...splits.components import nodes_of


class Crossing(NamedTuple):
    """One that crosses. `kind`: video, footage or person, as in `Entry`."""

    kind: str
    name: str
    splits: tuple[str, ...]


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
