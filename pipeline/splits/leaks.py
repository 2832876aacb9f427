"""Leak checks: refuses given splits that share an original, footage or a person."""

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

    `known`: planned videos with their splits. `dropped`: people ignored in earlier plans; all others count, however
    many videos they link. `without_splits`: how the user removes given splits, for the error message.
    """
    holders: dict[str, dict[str, str]] = defaultdict(dict)  # node -> split -> a video that links it to that split
    for entry, split in known.values():
        for node in nodes_of(entry, dropped):
            holders[node].setdefault(split, entry.video_id)
    leaks: dict[str, str] = {}
    for entry in sorted((entry for entry in entries if entry.split), key=lambda entry: entry.video_id):
        split = str(entry.split)
        for node in nodes_of(entry, dropped):
            if others := sorted(holders[node].keys() - {split}):
                leaks.setdefault(node, _describe_leak(entry, split, node, holders[node][others[0]], others[0]))
            holders[node].setdefault(split, entry.video_id)
    if leaks:
        people = sum(node.startswith("person ") for node in leaks)
        raise RefusedError(
            f"{next(iter(leaks.values()))}: a leak; {people:,} people and {len(leaks) - people:,} originals are in "
            "more than one given split, and a model would be tested on what it was trained on: fix the splits, "
            f"accept it with --allow-leaks, or {without_splits}, so that splits are drawn"
        )


def _describe_leak(entry: Entry, split: str, node: str, other: str, other_split: str) -> str:
    kind, _, name = node.partition(" ")
    same = f"person {name!r}" if kind == "person" else f"original {name!r}"
    return f"{entry.video_id}: the source puts it in {split}, but {other}, of the same {same}, in {other_split}"


def refuse_new_leaks(changed: Sequence[Entry], known: Mapping[str, tuple[Entry, str]], dropped: Set[str]) -> None:
    """Raises `RefusedError` where a planned video now shares an original or a person with another split."""
    moved = {
        entry.video_id: entry
        for entry in changed
        if not set(nodes_of(entry, dropped)) <= set(nodes_of(known[entry.video_id][0], dropped))
    }
    components = Components()
    for entry, split in known.values():
        if entry.video_id not in moved:
            components.union(nodes_of(entry, dropped), split)
    for video_id, entry in sorted(moved.items()):
        split = known[video_id][1]
        nodes = nodes_of(entry, dropped)
        if others := components.splits(nodes) - {split}:
            raise RefusedError(
                f"{video_id}: was planned into {split}, but the source now links it to an original or person in "
                f"{', '.join(sorted(others))}: a leak; undo that, use a new OUT, or accept it with --allow-leaks"
            )
        components.union(nodes, split)
