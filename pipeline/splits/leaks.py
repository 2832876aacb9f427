"""Leak checks: refuses given splits that share an original, footage or a person."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from ..dataset.schema import SPLITS
from ..errors import RefusedError
from ..sources import Entry
from .components import Components, Node, nodes_of


def refuse_given_leaks(
    entries: Sequence[Entry], known: Mapping[str, tuple[Entry, str]], dropped: Set[str], without_splits: str
) -> None:
    """Raises `RefusedError` where a given split shares an original, footage or a person with another split.

    Also where only videos without a given split show that, such as the original of one, which is a version of another.

    `known`: planned videos with their splits. `dropped`: people ignored in earlier plans; all others count, however
    many videos they link. `without_splits`: how the user removes given splits, for the error message.
    """
    holders = _Holders()
    for entry, split in known.values():
        for node in nodes_of(entry, dropped):
            holders.add(node, split, entry.video_id)
    leaks: dict[Node, str] = {}
    for entry in sorted((entry for entry in entries if entry.split), key=lambda entry: entry.video_id):
        split = str(entry.split)
        for node in nodes_of(entry, dropped):
            if (other := holders.first_of_another_split(node, split)) is not None:
                leaks.setdefault(node, _describe_leak(entry, split, node, *other))
            holders.add(node, split, entry.video_id)
    if leaks:
        people = sum(kind == "person" for kind, _ in leaks)
        raise RefusedError(
            f"{next(iter(leaks.values()))}: a leak; {people:,} people and {len(leaks) - people:,} originals are in "
            "more than one given split, and a model would be tested on what it was trained on: fix the splits, "
            f"accept it with --allow-leaks, or {without_splits}, so that splits are drawn"
        )
    _refuse_leaks_between(entries, known, without_splits)


class _Holders:
    """A video that links a node to a split, for each node and split: the first that was added."""

    def __init__(self) -> None:
        self._videos: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)  # by split and kind, then by name

    def add(self, node: Node, split: str, video_id: str) -> None:
        kind, name = node
        self._videos[split, kind].setdefault(name, video_id)

    def first_of_another_split(self, node: Node, split: str) -> tuple[str, str] | None:
        """`(video_id, split)` of the alphabetically first other split of the node; None where it has no other."""
        kind, name = node
        for other in sorted(SPLITS):
            if other != split and name in (videos := self._videos[other, kind]):
                return videos[name], other
        return None


def _refuse_leaks_between(
    entries: Sequence[Entry], known: Mapping[str, tuple[Entry, str]], without_splits: str
) -> None:
    """Raises `RefusedError` where new videos without a given split link one with a given split to another split.

    Not by people: a video of two people is set aside, and nobody else shows both. Nor where all that it links is
    planned already: it is set aside too, since a plan never changes.
    """
    if {bool(entry.split) for entry in entries} != {True, False}:  # then nothing can be between given splits
        return
    given = {entry.video_id: (entry, str(entry.split)) for entry in entries if entry.split}
    planned, all_fixed = Components(), Components()
    for entry, split in known.values():
        planned.union(_footage_nodes(entry), split)
    for entry, split in (*known.values(), *given.values()):
        all_fixed.union(_footage_nodes(entry), split)
    for entry in sorted((entry for entry in entries if not entry.split), key=lambda entry: entry.video_id):
        nodes = _footage_nodes(entry)
        if len(planned.splits(nodes)) > 1:
            continue
        if len(all_fixed.splits(nodes)) > 1:
            roots = {all_fixed.root(node) for node in nodes}
            linked = {
                split: video_id for video_id, (other, split) in sorted({**known, **given}.items(), reverse=True)
                if all_fixed.root_of(other) in roots
            }  # fmt: skip
            (first_split, first), (second_split, second), *_ = sorted(linked.items(), reverse=True)
            raise RefusedError(
                f"{entry.video_id}: has no split of its own, but {first} in {first_split} and {second} in "
                f"{second_split} show what it shows: a leak, and a model would be tested on what it was trained on: "
                f"fix the splits, accept it with --allow-leaks, or {without_splits}, so that splits are drawn"
            )
        planned.union(nodes)
        all_fixed.union(nodes)


def _footage_nodes(entry: Entry) -> list[Node]:
    return nodes_of(entry, entry.people)


def _describe_leak(entry: Entry, split: str, node: Node, other: str, other_split: str) -> str:
    kind, name = node
    same = f"person {name!r}" if kind == "person" else f"original {name!r}"
    return f"{entry.video_id}: the source puts it in {split}, but {other}, of the same {same}, in {other_split}"


def refuse_new_leaks(changed: Sequence[Entry], known: Mapping[str, tuple[Entry, str]], dropped: Set[str]) -> None:
    """Raises `RefusedError` where a planned video now shares an original or a person with another split."""
    moved = {
        entry.video_id: entry
        for entry in changed
        if not set(nodes_of(entry, dropped)) <= set(nodes_of(known[entry.video_id][0], dropped))
    }
    if not moved:
        return
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
