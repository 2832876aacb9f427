"""Files of a published set by folder and stem: `033.MP4` or `033.mkv` is still the set's `033.mp4`."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


def stem_of(name: str) -> str:
    """Folder and stem, in lower case: the same for whatever a video was converted to or renamed on the way."""
    return posixpath.splitext(name)[0].lower()


@dataclass(frozen=True)
class NameMatcher:
    """Paths below the root by `stem_of`."""

    named: dict[str, list[str]]

    @classmethod
    def from_paths(cls, names: Iterable[str]) -> Self:
        """Paths in the order in which `find` prefers them where several have one stem."""
        named: dict[str, list[str]] = {}
        for name in names:
            named.setdefault(stem_of(name), []).append(name)
        return cls(named)

    def find(self, name: str) -> str:
        """The file of this name, else the first of the same folder and stem, else the name itself: nothing has it."""
        alike = self.named.get(stem_of(name), [name])
        return name if name in alike else alike[0]

    def missing(self, names: Iterable[str]) -> dict[str, str]:
        """Those of `names` that no file has under any suffix, by stem; of several with one stem the first in order."""
        asked = {stem_of(name): name for name in sorted(names, reverse=True)}
        return {stem: name for stem, name in asked.items() if stem not in self.named}
