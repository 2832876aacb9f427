"""Assigns splits by a hash over the connected components of videos that share originals, footage or people.

Videos of a component are linked by "is a fake of", "is a version of the same footage", "shows the same person" or "was
made with the same person". If two of them were in different splits, a model would be tested on faces it was trained on.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from types import MappingProxyType

from ..dataset.schema import SPLITS
from ..errors import UsageError
from ..sources import Entry, Listing
from .accepted_leaks import splits_beside_leaks
from .components import Components, nodes_of
from .leaks import refuse_given_leaks

_MAX_COMPONENT_SHARE = 0.30


@dataclass(frozen=True, kw_only=True)
class SplitRatio:
    """Shares of train, val and test in percent; must sum to 100."""

    train: float = 80
    val: float = 10
    test: float = 10

    def __post_init__(self) -> None:
        shares = self.shares
        if not (all(share >= 0 for share in shares) and abs(sum(shares) - 100) <= 1e-6):  # NaN fails both
            raise UsageError(f"split_ratio={shares}: must be three shares >= 0 that sum to 100; try 80,10,10")

    @classmethod
    def parse(cls, text: str) -> SplitRatio:
        """`80,10,10`; raises `UsageError` on anything else."""
        try:
            train, val, test = (float(part) for part in text.split(","))
        except ValueError as error:
            raise UsageError(f"split_ratio={text!r}: must be three shares; try 80,10,10") from error
        return cls(train=train, val=val, test=test)

    @property
    def shares(self) -> tuple[float, float, float]:
        """The shares in percent, in the order of `SPLITS`."""
        return (float(self.train), float(self.val), float(self.test))  # so that 80 and 80.0 have the same hash

    def split_at(self, position: float) -> str:
        """The split whose interval contains `position`, a hash in [0, 1)."""
        edge = 0.0
        for name, share in zip(SPLITS, self.shares, strict=True):
            edge += share / 100
            if position < edge:
                return name
        # The sum may be rounded to a little below 1.
        return [name for name, share in zip(SPLITS, self.shares, strict=True) if share][-1]

    def split_among(self, splits: Container[str], position: float) -> str:
        """As `split_at`, of `splits` alone; all alike where none of them has a share."""
        given = [share if name in splits else 0.0 for name, share in zip(SPLITS, self.shares, strict=True)]
        shares = given if any(given) else [float(name in splits) for name in SPLITS]
        train, val, test = (100 * share / sum(shares) for share in shares)
        return SplitRatio(train=train, val=val, test=test).split_at(position)

    def distance(self, position: float, split: str) -> float:
        """Distance of `position`, a hash in [0, 1), from the interval of `split`."""
        number = SPLITS.index(split)
        low = sum(self.shares[:number]) / 100
        high = low + self.shares[number] / 100
        return max(low - position, position - high, 0.0)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Result of `assign_splits`.

    `split_of`: split of each new video by id. `bridging`: new videos that are left out, as they would join two splits,
    or were made from one that would, or are versions of it. `dropped_identities`: people who are ignored, since they
    link too many videos.
    """

    split_of: dict[str, str]
    bridging: list[str]
    dropped_identities: list[str]


def assign_splits(
    entries: Sequence[Entry],
    *,
    ratio: SplitRatio,
    seed: int,
    allow_leaks: bool = False,
    known: Mapping[str, tuple[Entry, str]] | None = None,
    known_dropped: Iterable[str] = (),
    without_splits: str = Listing.without_splits,
    renamed: Mapping[str, str] = MappingProxyType({}),
) -> Assignment:
    """Assigns a split to each of `entries`.

    Splits that the source gives are kept; others are drawn from ``sha256(seed, component)``, so that they depend on the
    component alone.

    Args:
        entries: new videos.
        ratio: shares of the drawn splits.
        seed: seed of the draw.
        allow_leaks: whether given splits may leak.
        known: `(entry, split)` of the videos of earlier plans, by video id.
        known_dropped: people ignored in earlier plans.
        without_splits: how the user removes given splits, for the error message.
        renamed: ids of new videos that have the content of one of an earlier plan, with its id.

    Raises:
        RefusedError: where given splits leak, unless `allow_leaks`.

    """
    known = known or {}
    dropped = set(known_dropped)
    if not entries:  # there may be millions of known ones
        return Assignment(split_of={}, bridging=[], dropped_identities=sorted(dropped))
    if not allow_leaks:
        refuse_given_leaks(entries, known, dropped, without_splits)
    if any(entry.split is None for entry in entries):
        dropped |= _oversized_people(entries, [entry for entry, _ in known.values()], dropped)
    bridging: set[str] = set()
    while True:
        components, assigned, newly_bridging = _join(
            [entry for entry in entries if entry.video_id not in bridging], known, dropped, renamed
        )
        if not newly_bridging:
            break
        bridging |= _with_derived(newly_bridging, assigned, known)  # without these, their links join nothing
    assigned = [  # also where a leak was accepted, and its component is in several splits
        replace(entry, split=known[renamed[entry.video_id]][1])
        if entry.split is None and entry.video_id in renamed
        else entry
        for entry in assigned
    ]
    drawn = _draw(components, assigned, dropped, ratio, seed, fill_empty=not known)
    split_of = {entry.video_id: entry.split or drawn[components.root_of(entry)] for entry in assigned}
    split_of |= splits_beside_leaks(
        assigned, known.values(), components, dropped,
        draw=lambda splits, name: ratio.split_among(splits, _hash_position(seed, name)),
    )  # fmt: skip
    return Assignment(split_of=split_of, bridging=sorted(bridging), dropped_identities=sorted(dropped))


def _join(
    entries: Sequence[Entry],
    known: Mapping[str, tuple[Entry, str]],
    dropped: Container[str],
    renamed: Mapping[str, str],
) -> tuple[Components, list[Entry], list[Entry]]:
    """Components of all videos, the new ones in them, and those left out, as they would join two splits."""
    components = Components()
    for entry, split in known.values():
        components.union(nodes_of(entry, dropped), split)
    joined: list[Entry] = []
    bridging: list[Entry] = []
    # Videos with a given split first, so that the result does not depend on the order of names.
    for entry in sorted(sorted(entries, key=attrgetter("video_id")), key=lambda entry: entry.split is None):
        nodes = nodes_of(entry, dropped)
        if entry.split is None and entry.video_id in renamed:
            nodes.append(("video", renamed[entry.video_id]))
        if entry.split is None and len(components.splits(nodes)) > 1:
            bridging.append(entry)
            continue
        components.union(nodes, entry.split)
        joined.append(entry)
    return components, joined, bridging


def _with_derived(
    bridging: Sequence[Entry], entries: Iterable[Entry], known: Mapping[str, tuple[Entry, str]]
) -> set[str]:
    """Ids of the `bridging` videos, of fakes of them, of versions of their footage, of fakes of these, and so on.

    They show what is in two splits, whatever else is known of them. Not videos whose split is given, nor versions of
    footage of which one has a split: they follow it.
    """
    fixed = {entry.footage for entry, _ in known.values()}
    derived: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.split is not None:
            fixed.add(entry.footage)
            continue
        if entry.source_id:
            derived[f"video {entry.source_id}"].append(entry)
        if entry.footage:
            derived[f"footage {entry.footage}"].append(entry)
    names = {entry.video_id for entry in bridging}
    pending = [*bridging]
    while pending:
        entry = pending.pop()
        others = derived.pop(f"video {entry.video_id}", [])
        if entry.footage not in fixed:
            others = [*others, *derived.pop(f"footage {entry.footage}", [])]
        pending += [other for other in others if other.video_id not in names]
        names |= {other.video_id for other in others}
    return names


def group_sizes(entries: Sequence[Entry], dropped: Container[str]) -> list[int]:
    """Number of videos in each component; `dropped` people are no links."""
    components = Components()
    for entry in entries:
        components.union(nodes_of(entry, dropped))
    return list(Counter(map(components.root_of, entries)).values())


def _oversized_people(entries: Sequence[Entry], known: Sequence[Entry], dropped: set[str]) -> set[str]:
    """People to ignore: those in components of which more than 30 % of all videos would be drawn together.

    Only people who link several originals, and none of an earlier plan: otherwise their next video could be assigned to
    another split.
    """
    crowded = _in_large_components(entries, known, dropped)
    if not crowded:
        return set()
    all_entries = [*known, *entries]
    all_people = {name for entry in all_entries for name in entry.people}
    originals = Components()
    for entry in all_entries:
        originals.union(nodes_of(entry, all_people))
    roots_of_person: dict[str, set[int]] = defaultdict(set)
    for entry in crowded:
        for name in entry.people:
            roots_of_person[name].add(originals.root_of(entry))
    known_people = {name for entry in known for name in entry.people}
    return {name for name, roots in roots_of_person.items() if len(roots) > 1} - known_people - dropped


def _in_large_components(entries: Sequence[Entry], known: Sequence[Entry], dropped: set[str]) -> list[Entry]:
    """Videos of people in components of which more than 30 % of all videos would be drawn together."""
    all_entries = [*known, *entries]
    if not any(entry.people for entry in all_entries):
        return []
    components = Components()
    for entry in all_entries:
        components.union(nodes_of(entry, dropped))
    sizes = Counter(components.root_of(entry) for entry in entries if entry.split is None)
    most = _MAX_COMPONENT_SHARE * len(all_entries)
    return [entry for entry in all_entries if entry.people and sizes[components.root_of(entry)] > most]


def _draw(
    components: Components, entries: Sequence[Entry], dropped: set[str], ratio: SplitRatio, seed: int, *,
    fill_empty: bool,
) -> dict[int, str]:  # fmt: skip
    least: dict[int, Entry] = {}  # by the root of each component, the entry whose name is hashed
    drawn: dict[int, str] = {}

    def key(entry: Entry) -> tuple[int, str]:
        return _hash_key(entry, dropped)

    def position(root: int) -> float:
        return _hash_position(seed, key(least[root])[1])

    for entry in entries:
        root = components.root_of(entry)
        if splits := components.splits_of(root):
            drawn[root] = min(splits)
        elif root not in least or key(entry) < key(least[root]):
            least[root] = entry
    drawn.update((root, ratio.split_at(position(root))) for root in least)
    wanted = {split for split, share in zip(SPLITS, ratio.shares, strict=True) if share}
    if fill_empty and not wanted <= {*drawn.values()}:
        _fill_empty_splits(drawn, {root: position(root) for root in least}, ratio)
    return drawn


def _hash_key(entry: Entry, dropped: set[str]) -> tuple[int, str]:
    """Key to hash for the draw, people first: so the draw does not change when some of the videos are missing."""
    people = [name for name in entry.people if name not in dropped]
    return (0, min(people)) if people else (1, entry.footage or entry.source_id or entry.video_id)


def _hash_position(seed: int, name: str) -> float:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _fill_empty_splits(drawn: dict[int, str], positions: dict[int, float], ratio: SplitRatio) -> None:
    """Moves the component with the nearest hash to each empty split, as small sets can have."""
    for split, share in zip(SPLITS, ratio.shares, strict=True):
        counts = Counter(drawn.values())
        movable = [root for root in positions if counts[drawn[root]] > 1]
        if share > 0 and not counts[split] and movable:
            nearest = min(movable, key=lambda root: (ratio.distance(positions[root], split), positions[root]))
            drawn[nearest] = split
