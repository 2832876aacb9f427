"""People of several spellings: `Ben` and `ben` are two people, whom no split keeps together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from unicodedata import normalize

from ..console import first_names, plural
from ..sources import Entry


def spelling_warnings(planned: Iterable[tuple[Entry, str]]) -> list[str]:
    """A warning of people whose names differ in case, blanks or Unicode form alone, and who are in several splits.

    `planned`: inputs with their splits.
    """
    splits_of: defaultdict[str, set[str]] = defaultdict(set)
    for entry, split in planned:
        for name in entry.people:
            splits_of[name].add(split)
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(splits_of):
        spellings[" ".join(normalize("NFKC", name).casefold().split())].append(name)
    divided = [
        " and ".join(f"{name!r} ({', '.join(sorted(splits_of[name]))})" for name in names)
        for names in spellings.values()
        if len(names) > 1 and len(set().union(*(splits_of[name] for name in names))) > 1
    ]
    if not divided:
        return []
    return [
        f"{plural(len(divided), 'person', 'people')} may be spelt in several ways, and be in several splits so: "
        f"{first_names(divided)}; each spelling counts as a person of its own: spell them alike, with a new OUT where "
        "they are planned already"
    ]
