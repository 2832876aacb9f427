"""Splits of videos that are linked to several splits, as given splits leak and the user accepts that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence, Set

from ..sources import Entry
from .components import Components, Node, nodes_of

Draw = Callable[[Set[str], str], str]
"""Draws one of several splits by the hash of a name."""


def splits_beside_leaks(
    entries: Sequence[Entry],
    known: Iterable[tuple[Entry, str]],
    components: Components,
    dropped: Container[str],
    *,
    draw: Draw,
) -> dict[str, str]:
    """Splits, by video id, of `entries` without a given one whose component holds several splits.

    Each follows its original, else its footage, so that none of these comes into a further split. What is linked to
    several splits by people alone stays together with its fakes and versions.

    Args:
        entries: new videos.
        known: `(entry, split)` of the videos of earlier plans.
        components: of all of them.
        dropped: people who are no links.
        draw: where several splits are alike.

    """
    pending = [entry for entry in entries if not entry.split and _is_leaking(components, entry)]
    if not pending:
        return {}
    given = [(entry, entry.split) for entry in entries if entry.split]
    fixed = _FixedSplits([*known, *given], dropped)
    groups: dict[int, list[Entry]] = defaultdict(list)
    for entry in pending:
        fixed.footage.union(nodes_of(entry, entry.people))
    for entry in pending:
        groups[fixed.footage.root_of(entry)].append(entry)
    split_of: dict[str, str] = {}
    for root, group in groups.items():
        if splits_of_footage := fixed.footage.splits_of(root):
            split_of |= fixed.of_links(group, splits_of_footage, draw)
        else:
            splits = fixed.of_people(group) or components.splits_of(components.root_of(group[0]))
            split = draw(splits, min(entry.footage or entry.source_id or entry.video_id for entry in group))
            split_of |= dict.fromkeys((entry.video_id for entry in group), split)
    return split_of


def _is_leaking(components: Components, entry: Entry) -> bool:
    return len(components.splits_of(components.root_of(entry))) > 1


class _FixedSplits:
    """Splits of `videos`, which do not change, and of what follows them.

    `footage`: components of all videos, but without people as links.
    """

    def __init__(self, videos: Iterable[tuple[Entry, str]], dropped: Container[str]) -> None:
        self.footage = Components()
        self._dropped = dropped
        self._of_video: dict[str, str] = {}
        self._of_node: dict[Node, set[str]] = defaultdict(set)
        for entry, split in videos:
            self.footage.union(nodes_of(entry, entry.people), split)
            self._of_video[entry.video_id] = split
            for node in nodes_of(entry, dropped):
                self._of_node[node].add(split)

    def of_links(self, group: Iterable[Entry], splits: Set[str], draw: Draw) -> dict[str, str]:
        """Splits of videos whose footage or original is in `splits`, by video id; originals first."""
        split_of: dict[str, str] = {}
        for entry in sorted(group, key=lambda entry: (entry.source_id is not None, entry.video_id)):
            source = entry.source_id or entry.video_id
            footage = ("footage", str(entry.footage))
            nodes = [footage, ("video", source), ("video", entry.video_id)]
            unknown = footage if entry.footage else ("video", source)
            node = next((node for node in nodes if self._of_node.get(node)), unknown)
            of_source = split_of.get(source) or self._of_video.get(source)
            split_of[entry.video_id] = of_source or draw(self._of_node.get(node) or splits, " ".join(node))
            if entry.footage and not self._of_node.get(footage):
                self._of_node[footage] = {split_of[entry.video_id]}  # its other versions follow
        return split_of

    def of_people(self, group: Iterable[Entry]) -> Set[str]:
        """Splits that all known people of the group are in or, without one, those that any of them is in."""
        people = {name for entry in group for name in entry.people if name not in self._dropped}
        found = [splits for name in people if (splits := self._of_node.get(("person", name)))]
        return set.intersection(*found) or set.union(*found) if found else set()
