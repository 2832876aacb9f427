"""Class names of a table: the names of its labels and their numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Self

from ....console import first_names, plural
from ....dataset.schema import real_class
from ....errors import UsageError
from ...listing import MAX_CLASSES
from ...media.media_files import path_exists
from ..names.class_spelling import misspelt_classes

_REAL_FAKE = ("real", "fake")
_UNKNOWN = {"", "-1", "-1.0", "unknown"}  # -1 is how a dataset of facefeed's own writes it
EMPTY_CELLS = frozenset(["nan", "NaN", "None", "none", "NULL", "null", "NA", "na", "N/A", "n/a", "<NA>", "<na>"])
"""How an empty cell is written as text by pandas, SQL and others; not Na and Nan, which are names of people."""
_STORED_AS = re.compile(r"(real|fake)\s*:\s*(\S.*)", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,6})?", re.IGNORECASE)  # as far as `Decimal` goes


@dataclass(frozen=True)
class ClassNames:
    """`names[i]` is the name of class `i`; real and fake are matched in any case.

    `renamed`: names that are stored as real or fake, with that.
    """

    names: tuple[str, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """The names as they are stored with the data."""
        return tuple(self.renamed.get(name, name) for name in self.names)

    @classmethod
    def of_table(cls, table: Path, labels: Iterable[str]) -> Self:
        """Derives the classes from the labels of `table`, or reads its file of classes where there is one.

        Raises `UsageError` where there are more than can be stored, two differ in case alone or are one number, or the
        file cannot be read or lacks one of them.
        """
        listed = class_file(table)
        if path_exists(listed):
            return cls._read(listed, set(labels))
        known = _with_one_spelling({name for name in labels if not _is_unknown(name)})
        _refuse_two_spellings(table, known)
        others = {name for name in known if name.lower() not in _REAL_FAKE}
        has_both = {name.lower() for name in known - others} == set(_REAL_FAKE)
        names = [*_REAL_FAKE, *_sorted(others)] if has_both or not others else _real_first(_sorted(known))
        if len(names) > MAX_CLASSES:
            raise UsageError(
                f"{table}: label has {len(names)} different values, at most {MAX_CLASSES} can be stored; "
                "is it the right column?"
            )
        return cls(tuple(names))

    @classmethod
    def _read(cls, path: Path, labels: set[str]) -> Self:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{path}: cannot be read as a list of classes ({error}); fix it or take it away"
            ) from error
        # Whatever labels this table has: tables that share a list are to have the same classes.
        stored_as = {line: match for line in lines if (match := _STORED_AS.fullmatch(line))}
        names = [stored_as[line][2] if line in stored_as else line for line in lines]
        renamed = {match[2]: match[1].lower() for match in stored_as.values()}
        _refuse_stored_twice(path, names, renamed)
        if len(set(names)) < len(names) or not 1 <= len(names) <= MAX_CLASSES:
            raise UsageError(f"{path}: holds {len(names)} names; must be 1 to {MAX_CLASSES}, each once, one a line")
        classes = cls(tuple(names), renamed)
        unlisted = sorted(name for name in labels if classes.number(name) < 0 and not _is_unknown(name))
        if unlisted:
            raise UsageError(
                f"{path}: lacks {', '.join(map(repr, unlisted[:5]))}, which the table has as a label; "
                f"it lists {', '.join(map(repr, names[:20]))}: add it, or fix the table"
            )
        return classes

    def number(self, label: str) -> int:
        """Class number of a label of the table; -1 where it is unknown."""
        if label in self.names:
            return self.names.index(label)
        lower = label.lower()
        return next((n for n, name in enumerate(self.names) if name.lower() == lower and lower in _REAL_FAKE), -1)


def misspelt_labels(table: Path, inputs: Mapping[str, int]) -> dict[str, str]:
    """Classes of `table` that may be others misspelt, with these; none where a file lists the classes.

    `inputs`: number of inputs by the name of their class.
    """
    return {} if path_exists(class_file(table)) else misspelt_classes(inputs)


def misspelt_warnings(table: Path, meant: Mapping[str, str], inputs: Mapping[str, int]) -> tuple[str, ...]:
    """A warning of the `misspelt_labels` of `table`, if there are any."""
    if not meant:
        return ()
    names = [f"{name!r} ({plural(inputs[name], 'input')}) for {other!r}" for name, other in meant.items()]
    is_own = "it is a class of its own" if len(meant) == 1 else "each is a class of its own"
    return (
        f"{table}: {plural(len(meant), 'label')} may be misspelt: {first_names(names)}; {is_own}: fix the table, or "
        f"list all classes in {class_file(table).name}, one a line",
    )


def _refuse_stored_twice(path: Path, names: Iterable[str], renamed: Mapping[str, str]) -> None:
    """Raises `UsageError` where one of `names` is stored as real or fake, and another one is that too."""
    stored = Counter(renamed.get(name, name.lower()) for name in names)
    if twice := next((name for name in renamed.values() if stored[name] > 1), None):
        raise UsageError(f"{path}: has several classes that are {twice!r}; a line '{twice}: NAME' names the only one")


def class_file(table: Path) -> Path:
    """Where the classes of `table` may be listed."""
    return table.with_suffix(".classes.txt")


def _is_unknown(label: str) -> bool:
    return label.lower() in _UNKNOWN or label in EMPTY_CELLS


def _with_one_spelling(names: set[str]) -> set[str]:
    """The names, with `real` and `fake` in place of several spellings of them."""
    spellings = {name: {other for other in names if other.lower() == name} for name in _REAL_FAKE}
    several = {name: same for name, same in spellings.items() if len(same) > 1}
    return names.difference(*several.values()) | several.keys()


def _refuse_two_spellings(table: Path, names: Set[str]) -> None:
    """Raises `UsageError` where two names differ in case alone: they are hardly meant as two classes.

    Nor are 1 and 1.0, as where tables were joined of which one had empty labels; 1 and 01 may be ids.
    """
    spelt: dict[str | Decimal, str] = {}
    decimals = {Decimal(name) for name in names if _NUMBER.fullmatch(name) and not name.isdecimal()}
    for name in sorted(names):
        number = Decimal(name) if _NUMBER.fullmatch(name) else None
        key = number if number is not None and number in decimals else name.casefold()
        if (other := spelt.setdefault(key, name)) != name:
            raise UsageError(
                f"{table}: has the labels {other!r} and {name!r}, which would be two classes; spell them alike, or, "
                f"if they are two, list all classes in {class_file(table).name}, one a line"
            )


def _real_first(names: list[str]) -> list[str]:
    """The names with that of the real class first, where it is known: `pristine` before `manipulated`."""
    real = real_class(names)
    return names if real is None else [names[real], *names[:real], *names[real + 1 :]]


def _sorted(names: Iterable[str]) -> list[str]:
    """Sorted by value where all are numbers, else alphabetically."""
    alphabetical = sorted(names)
    return sorted(alphabetical, key=Decimal) if all(map(_NUMBER.fullmatch, alphabetical)) else alphabetical
