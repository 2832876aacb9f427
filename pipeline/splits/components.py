"""Connected components of videos that are linked by originals, footage and people."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence

from ..dataset.schema import SPLITS
from ..sources import Entry

Node = tuple[str, str]
"""Kind and name: `("video", id)`, `("footage", name)` or `("person", name)`."""

_FLAG_OF = {split: 1 << number for number, split in enumerate(SPLITS)}
_SPLITS_OF = [frozenset(split for split in SPLITS if flags & _FLAG_OF[split]) for flags in range(1 << len(SPLITS))]


def nodes_of(entry: Entry, dropped: Container[str]) -> list[Node]:
    """Nodes of a video in the graph: itself, its original, footage and people, without `dropped` people."""
    nodes = [("video", entry.video_id)]
    if entry.source_id:
        nodes.append(("video", entry.source_id))
    if entry.footage:
        nodes.append(("footage", entry.footage))
    nodes += [("person", name) for name in entry.people if name not in dropped]
    return nodes


class Components:
    """Sets of linked nodes (union-find), each with a root that stands for it, and with the splits of its videos.

    Nodes are numbered in the order in which they come: there are millions, so that each takes five bytes beside the
    number of its name. A component has several splits where a leak was accepted.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = defaultdict(dict)  # by kind and name
        self._parents = array("i")
        self._flags = bytearray()  # of splits; those of a component are at its root

    def root(self, node: Node) -> int:
        """The number of the root of the component of `node`; shortens the paths to it."""
        kind, name = node
        parents = self._parents
        number = self._numbers[kind].setdefault(name, len(parents))
        if number == len(parents):
            parents.append(number)
            self._flags.append(0)
        while (parent := parents[number]) != number:
            parents[number] = parents[parent]
            number = parent
        return number

    def root_of(self, entry: Entry) -> int:
        """The number of the root of a video's component."""
        return self.root(("video", entry.video_id))

    def splits_of(self, root: int) -> frozenset[str]:
        """All splits of the component with this root."""
        return _SPLITS_OF[self._flags[root]]

    def splits(self, nodes: Iterable[Node]) -> set[str]:
        """Splits of the components of `nodes`; of several of one component the alphabetically first."""
        return {min(splits) for node in nodes if (splits := self.splits_of(self.root(node)))}

    def union(self, nodes: Sequence[Node], split: str | None = None) -> None:
        """Joins the components of `nodes`; `split`: of a video that links them, where that is fixed."""
        first, *others = map(self.root, nodes)
        flags = self._flags[first] | (_FLAG_OF[split] if split else 0)
        for other in others:
            flags |= self._flags[other]
            self._parents[other] = first
        self._flags[first] = flags
