"""`DisjointSets`: names that belong together, by links between them (union-find)."""

from __future__ import annotations

from collections.abc import Iterable


class DisjointSets:
    """Sets of names, each with a root that stands for it; a name that was never joined is alone in its set."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, name: str) -> str:
        """The root of the set of `name`; shortens the paths to it."""
        while (parent := self._parent.setdefault(name, name)) != name:
            self._parent[name] = self._parent[parent]
            name = parent
        return name

    def join(self, root: str, others: Iterable[str]) -> None:
        """Joins the sets of these roots; `root` is that of the joined set."""
        self._parent.update(dict.fromkeys(others, root))
