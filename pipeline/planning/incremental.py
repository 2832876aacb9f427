"""What is different since the last run, and the plan part that deals with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import RefusedError
from ..sources import Entry, Listing
from ..splits.assignment import SplitRatio, assign_splits
from ..splits.leaks import refuse_new_leaks
from .content_hash import content_sha256
from .damage_limits import OtherLimit
from .options import hash_config
from .plan import PlanPart, Unit, group_units
from .run_state import RunState

_HASHING_THREADS = 8  # network file systems answer several readers faster than one
_HASHED_AT_ONCE = 1024

Comparing = Callable[[int, int], AbstractContextManager[Callable[[int], None]]]
"""Given how many inputs and bytes are compared, a context whose value is called with the size of each one done."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Inputs by what has to be done about them. `gone` are planned, but no longer in the source: their rows stay.

    `refused` never reach a unit; `added`, `changed` and `touched` are as the source has them now. `touched` have a new
    time of change and the content they had: that time is recorded, and nothing else is done about them. `rejudged` have
    more damaged frames than is allowed now, and are done again since that was asked for.
    """

    added: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    touched: list[Entry] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    refused: list[Entry] = field(default_factory=list)
    rejudged: list[Entry] = field(default_factory=list)


def compare(
    listing: Listing,
    planned: dict[str, tuple[Entry, str]],
    same_content: Callable[[Sequence[Entry]], Container[str]] = lambda _: (),
) -> Changes:
    """Sorts the listing's entries by what the plan knows of them.

    `same_content`: given the inputs of which nothing but the time of change is new, names those whose bytes are as they
    were; by default none. Raises `RefusedError` where the source now gives a planned video another split: assignments
    are fixed.
    """
    changes = Changes()
    seen = set()
    retimed: list[Entry] = []
    for entry in listing.entries:
        if entry.problem:
            if entry.video_id not in planned:
                changes.refused.append(entry)
            continue
        seen.add(entry.video_id)
        if entry.video_id not in planned:
            changes.added.append(entry)
            continue
        before, split = planned[entry.video_id]
        if entry.split and entry.split != split:
            raise RefusedError(
                f"{entry.video_id}: was planned into {split}, the source now says {entry.split}; a split is fixed once "
                "planned: use a new OUT"
            )
        if entry == replace(before, split=entry.split):
            continue
        only_time = entry == replace(before, split=entry.split, mtime_ns=entry.mtime_ns)
        (retimed if only_time else changes.changed).append(entry)
    if retimed:
        same = same_content(retimed)
        for entry in retimed:
            (changes.touched if entry.video_id in same else changes.changed).append(entry)
    changes.gone.extend(video_id for video_id in planned if video_id not in seen)
    return changes


def same_content(run_state: RunState, root: Path, comparing: Comparing, entries: Sequence[Entry]) -> set[str]:
    """Names of those `entries` whose files below `root` hold what their receipts say was decoded.

    None that has no receipt, or one without a hash: of an input that was not finished, or that changed under the
    decoder, or from before hashes were kept.
    """
    names = {entry.video_id for entry in entries}
    hashes = {one.video_id: one.sha256 for _, one in run_state.outcomes() if one.sha256 and one.video_id in names}
    known = [entry for entry in entries if entry.video_id in hashes]
    same = set()
    given_up = threading.Event()
    with comparing(len(known), sum(entry.size_bytes for entry in known)) as on_compared:
        pool = ThreadPoolExecutor(min(_HASHING_THREADS, max(len(known), 1)), "facefeed-hash")
        try:
            for start in range(0, len(known), _HASHED_AT_ONCE):  # a future each, of what may be millions
                some = known[start : start + _HASHED_AT_ONCE]
                found = pool.map(lambda one: content_sha256(root / one.video_id, cancelled=given_up.is_set), some)
                for entry, digest in zip(some, found, strict=True):
                    on_compared(entry.size_bytes)
                    if digest == hashes[entry.video_id]:
                        same.add(entry.video_id)
        finally:
            given_up.set()
            pool.shutdown(cancel_futures=True)
    return same


def next_part(
    run_state: RunState,
    listing: Listing,
    changes: Changes,
    *,
    config: dict[str, Any],
    ratio: SplitRatio,
    seed: int,
    allow_leaks: bool,
    retry: Callable[[str], bool] | None,
    max_damaged_percent: float,
    cost_seconds: Callable[[Entry], float],
) -> PlanPart:
    """The units that new, changed and retried inputs make; `retry` says which failures, by reason, to redo.

    Partial inputs with more damage than `max_damaged_percent` allows are redone with the failures by decode_error.
    Raises `RefusedError` where a given split leaks, or a changed input would, unless `allow_leaks`.
    """
    salt = str(len(run_state.plan.parts))
    known = run_state.plan.videos()
    if not allow_leaks:
        refuse_new_leaks(changes.changed, known, run_state.plan.dropped_identities())
    redo = {entry.video_id for entry in changes.changed if _has_other_rows(entry, known[entry.video_id][0])}
    known |= {entry.video_id: (entry, known[entry.video_id][1]) for entry in changes.changed}
    assigned = assign_splits(
        changes.added,
        ratio=ratio,
        seed=seed,
        allow_leaks=allow_leaks,
        known=known,
        known_dropped=run_state.plan.dropped_identities(),
        without_splits=listing.without_splits,
    )
    bridging = set(assigned.bridging)
    why = "its original or person would join two splits that are fixed already"
    changes.refused.extend(
        replace(entry, problem="bridges_splits", detail=why) for entry in changes.added if entry.video_id in bridging
    )
    added = [entry for entry in changes.added if entry.video_id not in bridging]
    name = hash_config(config)
    units = group_units(added, assigned.split_of, config_hash=name, salt=salt, cost_seconds=cost_seconds)
    current = {entry.video_id: entry for entry in listing.entries if not entry.problem}
    failed = _failed(run_state, retry) if retry is not None else {}
    if retry is not None and retry("decode_error"):
        other = OtherLimit.of(run_state, max_damaged_percent, current)
        changes.rejudged[:] = [current[one.video_id] for one in other.partial]
    rejudged = {entry.video_id for entry in changes.rejudged}
    anew = redo.union((entry.video_id for entry in added), rejudged, *failed.values())
    # What a fake's mask says depends on its original too.
    fakes = [entry for name, entry in current.items() if entry.source_id in anew and name in known and name not in anew]
    changed = {entry.video_id for entry in changes.changed}
    changes.changed.extend(entry for entry in fakes if entry.video_id not in changed)
    changed.update(rejudged, (entry.video_id for entry in fakes))
    redo = anew.union(entry.video_id for entry in fakes)
    make = partial(Unit.make, config_hash=name, salt=salt)
    redone, replaced = _replace_changed(run_state, changed, redo, current, make)
    units += redone
    left = {unit: names for unit, names in failed.items() if unit not in replaced}
    units += _retry_failed(run_state, left, current, make)
    return PlanPart(
        config=config,
        units=tuple(units),
        dropped_identities=tuple(assigned.dropped_identities),
        times={entry.video_id: entry.mtime_ns for entry in changes.touched},
    )


def _has_other_rows(entry: Entry, before: Entry) -> bool:
    """Whether anything has changed but what decides on splits alone and becomes no column."""
    return entry != replace(before, split=entry.split, footage=entry.footage, kin=entry.kin)


def _replace_changed(
    run_state: RunState, changed: set[str], redo: set[str], current: dict[str, Entry], make: Callable[..., Unit]
) -> tuple[list[Unit], set[str]]:
    """A changed input replaces its whole unit, so that the old file can go as one; rows but those to `redo` stay."""
    units, replaced = [], set()
    for unit in run_state.plan.units():
        mine = [entry for entry in unit.inputs if run_state.owner[entry.video_id] == unit.unit_id]
        if not any(entry.video_id in changed for entry in mine):
            continue
        inputs = [current.get(entry.video_id, entry) for entry in mine]
        leaves = list(run_state.leaves(unit))
        done = {entry.video_id for leaf, receipt in leaves if receipt is not None for entry in leaf.inputs}
        # One that was never finished has not replaced its own predecessors yet: newest first.
        unfinished = any(receipt is None for _, receipt in leaves)
        supersedes = [unit.unit_id, *(unit.supersedes if unfinished else ())]
        reuses = [
            entry.video_id
            for entry in mine
            # Of one that is not done, older rows are good only if the unit was to reuse them, or nothing better comes.
            if entry.video_id not in redo
            and (entry.video_id in done or entry.video_id in unit.reuses or entry.video_id not in current)
        ]
        units.append(make(inputs, unit.split, supersedes=supersedes, reuses=reuses))
        replaced.add(unit.unit_id)
    return units, replaced


def _failed(run_state: RunState, retry: Callable[[str], bool]) -> dict[str, set[str]]:
    """The failed inputs of each unit whose reason is to be tried again."""
    failed: dict[str, set[str]] = {}
    for unit, outcome in run_state.outcomes():
        if outcome.outcome == "failed" and retry(str(outcome.reason)):
            failed.setdefault(unit.unit_id, set()).add(outcome.video_id)
    return failed


def _retry_failed(
    run_state: RunState, failed: dict[str, set[str]], current: dict[str, Entry], make: Callable[..., Unit]
) -> list[Unit]:
    units = []
    for unit in list(run_state.plan.units()):
        if unit.unit_id not in failed:
            continue
        again = [entry for entry in unit.inputs if entry.video_id in failed[unit.unit_id]]
        inputs = [current.get(entry.video_id, entry) for entry in again]
        whole = _owned(run_state, unit) == failed[unit.unit_id]
        supersedes = [unit.unit_id] if whole else []
        units.append(make(inputs, unit.split, supersedes=supersedes))
    return units


def _owned(run_state: RunState, unit: Unit) -> set[str]:
    return {entry.video_id for entry in unit.inputs if run_state.owner[entry.video_id] == unit.unit_id}


def differing(before: dict[str, Any], now: dict[str, Any]) -> Iterable[str]:
    """One line for each field that two configs do not share; none only where `hash_config` is the same too."""
    for key in sorted(before.keys() | now.keys()):
        there, here = ({key: config[key]} if key in config else {} for config in (before, now))
        if hash_config(there) != hash_config(here):
            yield f"{key}: {_short(there.get(key, 'not set'))} there, {_short(here.get(key, 'not set'))} now"


def _short(value: object) -> str:
    return str(value) if not isinstance(value, Sequence) or isinstance(value, str) else ",".join(map(str, value))
