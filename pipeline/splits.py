"""Splits that nothing crosses: drawn by hash over connected components of originals and identities.

A component is everything linked by "is a fake of" and "shows the same person". Two videos of one component in two
splits would let a model be tested on faces it was trained on.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import RefusedError, UsageError
from .schema import SPLITS
from .sources import Entry

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


@dataclass
class _Components:
    """Union-find over video and identity nodes; a component's split is kept at its root."""

    parent: dict[str, str] = field(default_factory=dict)
    split: dict[str, str] = field(default_factory=dict)

    def root(self, node: str) -> str:
        parent = self.parent.setdefault(node, node)
        while parent != self.parent[parent]:
            self.parent[parent] = self.parent[self.parent[parent]]
            parent = self.parent[parent]
        self.parent[node] = parent
        return parent

    def splits(self, nodes: Iterable[str]) -> set[str]:
        return {self.split[root] for node in nodes if (root := self.root(node)) in self.split}

    def join(self, nodes: Sequence[str], split: str | None = None) -> None:
        known = self.splits(nodes) | ({split} if split else set())
        first = self.root(nodes[0])
        for node in nodes[1:]:
            self.parent[self.root(node)] = first
            first = self.root(first)
        if known:
            self.split[self.root(first)] = min(known)


def _nodes(entry: Entry, dropped: set[str]) -> list[str]:
    nodes = [f"video:{entry.video_id}"]
    if entry.source_id:
        nodes.append(f"video:{entry.source_id}")
    if entry.identity and entry.identity not in dropped:
        nodes.append(f"identity:{entry.identity}")
    return nodes


def assign_splits(
    entries: Sequence[Entry],
    *,
    ratio: SplitRatio,
    seed: int,
    allow_leaks: bool = False,
    known: Mapping[str, tuple[Entry, str]] | None = None,
    known_dropped: Iterable[str] = (),
) -> Assignment:
    """Assigns a split to each of `entries`; `known` holds the videos of earlier plans with their splits.

    Splits that the source gives are kept; where they leak, raises `RefusedError` unless `allow_leaks`. Others are
    drawn from ``sha256(seed, component)``, so that they depend on nothing but the component itself.
    """
    known = known or {}
    dropped = set(known_dropped)
    dropped |= _oversized_identities(entries, [entry for entry, _ in known.values()], dropped)
    components = _Components()
    for entry, split in known.values():
        components.join(_nodes(entry, dropped), split)
    bridging = []
    taken = []
    # Those with a given split first, so that no name decides whether they leak or another one bridges.
    for entry in sorted(entries, key=lambda one: (one.split is None, one.video_id)):
        nodes = _nodes(entry, dropped)
        there = components.splits(nodes)
        if entry.split and there - {entry.split} and not allow_leaks:
            raise RefusedError(
                f"{entry.video_id}: the source puts it in {entry.split}, but a video of the same original or person is "
                f"in {', '.join(sorted(there - {entry.split}))}: a leak; mend the split or accept it with --allow-leaks"
            )
        if len(there) > 1 and not entry.split:
            bridging.append(entry.video_id)
            continue
        components.join(nodes, entry.split)
        taken.append(entry)
    drawn = _draw(components, taken, ratio, seed, fill_empty=not known)
    split_of = {entry.video_id: entry.split or drawn[components.root(f"video:{entry.video_id}")] for entry in taken}
    return Assignment(split_of=split_of, bridging=bridging, dropped_identities=sorted(dropped))


def refuse_new_leaks(changed: Sequence[Entry], known: Mapping[str, tuple[Entry, str]], dropped: set[str]) -> None:
    """Raises `RefusedError` where a planned video now has an original or a person that stands in another split."""
    moved = {
        entry.video_id: entry
        for entry in changed
        if not set(_nodes(entry, dropped)) <= set(_nodes(known[entry.video_id][0], dropped))
    }
    components = _Components()
    for entry, split in known.values():
        if entry.video_id not in moved:
            components.join(_nodes(entry, dropped), split)
    for video_id, entry in sorted(moved.items()):
        split = known[video_id][1]
        nodes = _nodes(entry, dropped)
        if others := components.splits(nodes) - {split}:
            raise RefusedError(
                f"{video_id}: was planned into {split}, but the source now links it to an original or person in "
                f"{', '.join(sorted(others))}: a leak; undo that, use a new OUT, or accept it with --allow-leaks"
            )
        components.join(nodes, split)


def _oversized_identities(entries: Sequence[Entry], known: Sequence[Entry], dropped: set[str]) -> set[str]:
    """Identities, the weakest links, of every component that would hold over 30 % of all videos.

    Only those that link more than one original, and none that an earlier plan relied on: dropping them now would
    let their next video go to another split.
    """
    everything = [*known, *entries]
    people = {entry.identity for entry in everything if entry.identity}
    linked, originals = _Components(), _Components()
    for entry in everything:
        linked.join(_nodes(entry, dropped))
        originals.join(_nodes(entry, people))
    sizes = Counter(linked.root(f"video:{entry.video_id}") for entry in everything)
    holds: dict[str, set[str]] = defaultdict(set)
    for entry in everything:
        node = f"video:{entry.video_id}"
        if entry.identity and sizes[linked.root(node)] > _LARGEST_SHARE * len(everything):
            holds[entry.identity].add(originals.root(node))
    return {name for name, roots in holds.items() if len(roots) > 1} - {entry.identity for entry in known} - dropped


def _draw(
    components: _Components, entries: Sequence[Entry], ratio: SplitRatio, seed: int, *, fill_empty: bool
) -> dict[str, str]:
    members: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        members[components.root(f"video:{entry.video_id}")].append(entry.source_id or entry.video_id)
    drawn = {root: components.split[root] for root in members if root in components.split}
    positions = {root: _position(seed, min(names)) for root, names in members.items() if root not in drawn}
    drawn |= {root: ratio.split_at(position) for root, position in positions.items()}
    if fill_empty:
        _fill_empty_splits(drawn, positions, ratio)
    return drawn


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
