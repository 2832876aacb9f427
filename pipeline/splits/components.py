"""Connected components of videos that are linked by originals, footage and people."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from ..sources import Entry
from ..sources.disjoint_sets import DisjointSets


def nodes_of(entry: Entry, dropped: Container[str]) -> list[str]:
    """Nodes of a video in the graph: itself, its original, footage and people, without `dropped` people."""
    nodes = [f"video {entry.video_id}"]
    if entry.source_id:
        nodes.append(f"video {entry.source_id}")
    if entry.footage:
        nodes.append(f"footage {entry.footage}")
    nodes += [f"person {name}" for name in entry.people if name not in dropped]
    return nodes


@dataclass
class Components:
    """Sets of linked nodes; `all_splits` of a component are stored at its root: several where a leak was accepted."""

    sets: DisjointSets = field(default_factory=DisjointSets)
    all_splits: dict[str, frozenset[str]] = field(default_factory=dict)

    def root(self, node: str) -> str:
        """The representative node of the component of `node`."""
        return self.sets.root(node)

    def root_of(self, entry: Entry) -> str:
        """The representative node of a video's component."""
        return self.root(f"video {entry.video_id}")

    def splits(self, nodes: Iterable[str]) -> set[str]:
        """Splits of the components of `nodes`; of several of one component the alphabetically first."""
        return {min(self.all_splits[root]) for node in nodes if (root := self.root(node)) in self.all_splits}

    def union(self, nodes: Sequence[str], split: str | None = None) -> None:
        """Joins the components of `nodes`; `split`: of a video that links them, where that is fixed."""
        first, *others = map(self.root, nodes)
        known = frozenset({split} if split else ()).union(
            *(self.all_splits.get(root, frozenset()) for root in (first, *others))
        )
        self.sets.join(first, others)
        if known:
            self.all_splits[first] = known
