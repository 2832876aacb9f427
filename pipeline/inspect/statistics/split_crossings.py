"""Originals, recordings and people that are in more than one split, which leaks training data into evaluation."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from ...dataset.schema import SPLITS
from ...planning.plan import Plan
from ...splits.components import Node, nodes_of


class Crossing(NamedTuple):
    """An original, recording or person in several splits. `kind`: video, footage or person, as in `Entry`.

    Field names are keys of `--json`.
    """

    kind: str
    name: str
    splits: tuple[str, ...]


def find_crossings(plan: Plan, video_ids: Container[str]) -> list[Crossing]:
    """All crossings among the given videos, by kind and name.

    Includes people who were ignored when splits were drawn.
    """
    splits_by_node: dict[Node, set[str]] = {}
    for video_id, (entry, split) in plan.planned_videos().items():
        if video_id in video_ids:
            for node in nodes_of(entry, ()):
                splits_by_node.setdefault(node, set()).add(split)
    return [
        Crossing(kind, name, tuple(split for split in SPLITS if split in splits))
        for (kind, name), splits in sorted(splits_by_node.items())
        if len(splits) > 1
    ]
