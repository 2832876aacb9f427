"""The classes of a table: which names its labels are, in which order, and which number each has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Self

from ...errors import UsageError
from ..listing import MAX_CLASSES
from ..media_files import path_exists

_REAL_FAKE = ("real", "fake")
_UNKNOWN = {"", "-1", "-1.0", "unknown"}  # -1 is how a dataset of facefeed's own writes it
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class ClassNames:
    """`names[i]` is the class of label `i`; real and fake may be written in any case."""

    names: tuple[str, ...]

    @classmethod
    def of_table(cls, table: Path, given: Iterable[str]) -> Self:
        """The classes of the labels that `table` has, by its file of classes where there is one.

        Raises `UsageError` where there are more than can be stored, or the file cannot be read or lacks one of them.
        """
        listed = table.with_suffix(".classes.txt")
        if path_exists(listed):
            return cls._listed(listed, set(given))
        named = {name for name in given if name.lower() not in _UNKNOWN}
        others = {name for name in named if name.lower() not in _REAL_FAKE}
        has_both = {name.lower() for name in named - others} == set(_REAL_FAKE)
        names = [*_REAL_FAKE, *_sorted(others)] if has_both or not others else _sorted(named)
        if len(names) > MAX_CLASSES:
            raise UsageError(
                f"{table}: label has {len(names)} different values, at most {MAX_CLASSES} can be stored; "
                "is it the right column?"
            )
        return cls(tuple(names))

    @classmethod
    def _listed(cls, path: Path, given: set[str]) -> Self:
        try:
            names = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{path}: cannot be read as a list of classes ({error}); mend it or take it away"
            ) from error
        if len(set(names)) < len(names) or not 1 <= len(names) <= MAX_CLASSES:
            raise UsageError(f"{path}: holds {len(names)} names; must be 1 to {MAX_CLASSES}, each once, one a line")
        made = cls(tuple(names))
        strangers = sorted(name for name in given if made.number(name) < 0 and name.lower() not in _UNKNOWN)
        if strangers:
            raise UsageError(
                f"{path}: lacks {', '.join(map(repr, strangers[:5]))}, which the table has as a label; "
                f"it lists {', '.join(map(repr, names[:20]))}: add it, or mend the table"
            )
        return made

    def number(self, label: str) -> int:
        """The number of a table's label; -1 where it is unknown."""
        if label in self.names:
            return self.names.index(label)
        lower = label.lower()
        return next((n for n, name in enumerate(self.names) if name.lower() == lower and lower in _REAL_FAKE), -1)


def _sorted(names: Iterable[str]) -> list[str]:
    """By value where all are numbers."""
    listed = sorted(names)
    return sorted(listed, key=Decimal) if all(map(_NUMBER.fullmatch, listed)) else listed
