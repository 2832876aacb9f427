"""Splits that nothing crosses: drawn by hash over connected components of originals and people.

A component is everything linked by "is a fake of", "is a version of the same footage", "shows the same person" and "was
made with the same person". Two videos of one component in two splits would let a model be tested on faces it was
trained on.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..dataset.schema import SPLITS
from ..errors import UsageError
from ..sources import Entry, Listing
from .components import Components, nodes_of
from .leaks import refuse_given_leaks

_LARGEST_SHARE = 0.30


@dataclass(frozen=True, kw_only=True)
class SplitRatio:
    """Shares of train, val and test in percent; they sum to 100."""

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
        """The three, in the order of `SPLITS`."""
        return (float(self.train), float(self.val), float(self.test))  # 80 and 80.0 must not be two configs

    def split_at(self, position: float) -> str:
        """The split that a hash in [0, 1) falls into."""
        edge = 0.0
        for name, share in zip(SPLITS, self.shares, strict=True):
            edge += share / 100
            if position < edge:
                return name
        return max(zip(self.shares, SPLITS, strict=True))[1]

    def distance(self, position: float, split: str) -> float:
        """How far a hash in [0, 1) lies from the interval of `split`."""
        number = SPLITS.index(split)
        low = sum(self.shares[:number]) / 100
        high = low + self.shares[number] / 100
        return max(low - position, position - high, 0.0)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Where each new video goes; `bridging` would have joined two splits; `dropped_identities` were too large."""

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
) -> Assignment:
    """Assigns a split to each of `entries`; `known` holds the videos of earlier plans with their splits.

    Splits that the source gives are kept; where they leak, raises `RefusedError` unless `allow_leaks`, which says
    `without_splits` as the other way out. Others are drawn from ``sha256(seed, component)``, so that they depend on
    nothing but the component itself.
    """
    known = known or {}
    dropped = set(known_dropped)
    if not allow_leaks:
        refuse_given_leaks(entries, known, dropped, without_splits)
    if any(entry.split is None for entry in entries):
        dropped |= _oversized_people(entries, [entry for entry, _ in known.values()], dropped)
    components = Components()
    for entry, split in known.values():
        components.join(nodes_of(entry, dropped), split)
    bridging = []
    taken = []
    # Those with a given split first, so that no name decides which one bridges.
    for entry in sorted(entries, key=lambda one: (one.split is None, one.video_id)):
        nodes = nodes_of(entry, dropped)
        if entry.split is None and len(components.splits(nodes)) > 1:
            bridging.append(entry.video_id)
            continue
        components.join(nodes, entry.split)
        taken.append(entry)
    drawn = _draw(components, taken, dropped, ratio, seed, fill_empty=not known)
    split_of = {entry.video_id: entry.split or drawn[components.root_of(entry)] for entry in taken}
    return Assignment(split_of=split_of, bridging=bridging, dropped_identities=sorted(dropped))


def group_sizes(entries: Sequence[Entry], dropped: Container[str]) -> list[int]:
    """How many videos each set holds that no split may cut; `dropped` people hold nothing together."""
    components = Components()
    for entry in entries:
        components.join(nodes_of(entry, dropped))
    return list(Counter(map(components.root_of, entries)).values())


def _oversized_people(entries: Sequence[Entry], known: Sequence[Entry], dropped: set[str]) -> set[str]:
    """People, the weakest links, of every component of which over 30 % of all videos would be drawn as one.

    Only those who link more than one original, and none that an earlier plan relied on: dropping them now would let
    their next video go to another split.
    """
    everything = [*known, *entries]
    everyone = {name for entry in everything for name in entry.people}
    linked, originals = Components(), Components()
    for entry in everything:
        linked.join(nodes_of(entry, dropped))
        originals.join(nodes_of(entry, everyone))
    sizes = Counter(linked.root_of(entry) for entry in entries if entry.split is None)
    holds: dict[str, set[str]] = defaultdict(set)
    for entry in everything:
        if entry.people and sizes[linked.root_of(entry)] > _LARGEST_SHARE * len(everything):
            for name in entry.people:
                holds[name].add(originals.root_of(entry))
    relied_on = {name for entry in known for name in entry.people}
    return {name for name, roots in holds.items() if len(roots) > 1} - relied_on - dropped


def _draw(
    components: Components, entries: Sequence[Entry], dropped: set[str], ratio: SplitRatio, seed: int, *,
    fill_empty: bool,
) -> dict[str, str]:  # fmt: skip
    members: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for entry in entries:
        members[components.root_of(entry)].append(_drawn_by(entry, dropped))
    drawn = {root: components.split[root] for root in members if root in components.split}
    positions = {root: _position(seed, min(names)[1]) for root, names in members.items() if root not in drawn}
    drawn |= {root: ratio.split_at(position) for root, position in positions.items()}
    if fill_empty:
        _fill_empty_splits(drawn, positions, ratio)
    return drawn


def _drawn_by(entry: Entry, dropped: set[str]) -> tuple[int, str]:
    """Whose name is hashed, people first: with some of the videos missing, the others are still drawn alike."""
    people = [name for name in entry.people if name not in dropped]
    return (0, min(people)) if people else (1, entry.footage or entry.source_id or entry.video_id)


def _position(seed: int, name: str) -> float:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _fill_empty_splits(drawn: dict[str, str], positions: dict[str, float], ratio: SplitRatio) -> None:
    """A small set can leave a split without any video: the component whose hash lies nearest moves there."""
    for split, share in zip(SPLITS, ratio.shares, strict=True):
        counts = Counter(drawn.values())
        movable = [root for root in positions if counts[drawn[root]] > 1]
        if share > 0 and not counts[split] and movable:
            nearest = min(movable, key=lambda root: (ratio.distance(positions[root], split), positions[root]))
            drawn[nearest] = split
