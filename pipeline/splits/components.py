"""Connected components of videos that are linked by originals, footage and people (union-find)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from ..sources import Entry


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
    """Union-find over nodes; `all_splits` of a component are stored at its root: several where a leak was accepted."""

    parent: dict[str, str] = field(default_factory=dict)
    all_splits: dict[str, frozenset[str]] = field(default_factory=dict)

    def root(self, node: str) -> str:
        """The representative node of the component of `node`; compresses paths."""
        parent = self.parent.setdefault(node, node)
        while parent != self.parent[parent]:
            self.parent[parent] = self.parent[self.parent[parent]]
            parent = self.parent[parent]
        self.parent[node] = parent
        return parent

    def root_of(self, entry: Entry) -> str:
        """The representative node of a video's component."""
        return self.root(f"video {entry.video_id}")

    def splits(self, nodes: Iterable[str]) -> set[str]:
        """Splits of the components of `nodes`; of several of one component the alphabetically first."""
        return {min(self.all_splits[root]) for node in nodes if (root := self.root(node)) in self.all_splits}

    def union(self, nodes: Sequence[str], split: str | None = None) -> None:
        """Joins the components of `nodes`; `split`: of a video that links them, where that is fixed."""
        known = frozenset().union(*(self.all_splits.get(self.root(node), frozenset()) for node in nodes))
        known |= frozenset({split} if split else ())
        first = self.root(nodes[0])
        for node in nodes[1:]:
            self.parent[self.root(node)] = first
            first = self.root(first)
        if known:
            self.all_splits[self.root(first)] = known
