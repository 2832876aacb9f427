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
    """Union-find over nodes; the split of a component is stored at its root."""

    parent: dict[str, str] = field(default_factory=dict)
    split: dict[str, str] = field(default_factory=dict)

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
        """Splits of the components of `nodes`."""
        return {self.split[root] for node in nodes if (root := self.root(node)) in self.split}

    def union(self, nodes: Sequence[str], split: str | None = None) -> None:
        """Joins the components of `nodes`; of several splits the alphabetically first is kept."""
        known = self.splits(nodes) | ({split} if split else set())
        first = self.root(nodes[0])
        for node in nodes[1:]:
            self.parent[self.root(node)] = first
            first = self.root(first)
        if known:
            self.split[self.root(first)] = min(known)
