"""Leaks in splits that somebody else drew: the same original or person on both sides is found and refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from ..errors import RefusedError
from ..sources import Entry
from .components import Components, nodes_of


def refuse_given_leaks(
    entries: Sequence[Entry], known: Mapping[str, tuple[Entry, str]], dropped: Set[str], without_splits: str
) -> None:
    """Raises `RefusedError` where a given split shares an original, footage or a person with another split.

    `known` are planned videos with their splits, `dropped` people who were given up then. However many videos a person
    links: that a draw could not keep them apart is no reason for a given split to mix them.
    """
    holders: dict[str, dict[str, str]] = defaultdict(dict)  # node -> split -> a video that ties it there
    for entry, split in known.values():
        for node in nodes_of(entry, dropped):
            holders[node].setdefault(split, entry.video_id)
    leaks: dict[str, str] = {}
    for entry in sorted((one for one in entries if one.split), key=lambda one: one.video_id):
        split = str(entry.split)
        for node in nodes_of(entry, dropped):
            if others := sorted(holders[node].keys() - {split}):
                leaks.setdefault(node, _both(entry, split, node, holders[node][others[0]], others[0]))
            holders[node].setdefault(split, entry.video_id)
    if leaks:
        people = sum(node.startswith("person ") for node in leaks)
        raise RefusedError(
            f"{next(iter(leaks.values()))}: a leak; {people:,} people and {len(leaks) - people:,} originals are in "
            "more than one given split, and a model would be tested on what it was trained on: mend the splits, "
            f"accept it with --allow-leaks, or {without_splits}, so that splits are drawn"
        )


def _both(entry: Entry, split: str, node: str, other: str, there: str) -> str:
    kind, _, name = node.partition(" ")
    same = f"person {name!r}" if kind == "person" else f"original {name!r}"
    return f"{entry.video_id}: the source puts it in {split}, but {other}, of the same {same}, in {there}"


def refuse_new_leaks(changed: Sequence[Entry], known: Mapping[str, tuple[Entry, str]], dropped: Set[str]) -> None:
    """Raises `RefusedError` where a planned video now has an original or a person that stands in another split."""
    moved = {
        entry.video_id: entry
        for entry in changed
        if not set(nodes_of(entry, dropped)) <= set(nodes_of(known[entry.video_id][0], dropped))
    }
    components = Components()
    for entry, split in known.values():
        if entry.video_id not in moved:
            components.join(nodes_of(entry, dropped), split)
    for video_id, entry in sorted(moved.items()):
        split = known[video_id][1]
        nodes = nodes_of(entry, dropped)
        if others := components.splits(nodes) - {split}:
            raise RefusedError(
                f"{video_id}: was planned into {split}, but the source now links it to an original or person in "
                f"{', '.join(sorted(others))}: a leak; undo that, use a new OUT, or accept it with --allow-leaks"
            )
        components.join(nodes, split)
