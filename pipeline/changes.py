"""What is different since the last run, and the plan part that deals with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import RefusedError
from .job import config_hash
from .leaks import refuse_new_leaks
from .ledger import Ledger
from .plan import PlanPart, Unit, group_units
from .sources import Entry, Listing
from .splits import SplitRatio, assign_splits


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Inputs by what has to be done about them. `gone` are planned, but no longer in the source: their rows stay.

    `refused` never reach a unit; `added` and `changed` are as the source has them now.
    """

    added: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    refused: list[Entry] = field(default_factory=list)


def compare(listing: Listing, planned: dict[str, tuple[Entry, str]]) -> Changes:
    """Sorts the listing's entries by what the plan knows of them.

    Raises `RefusedError` where the source now gives a planned video another split: assignments are fixed.
    """
    changes = Changes()
    seen = set()
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
        if entry != replace(before, split=entry.split):
            changes.changed.append(entry)
    changes.gone.extend(video_id for video_id in planned if video_id not in seen)
    return changes


def next_part(
    ledger: Ledger,
    listing: Listing,
    changes: Changes,
    *,
    config: dict[str, Any],
    ratio: SplitRatio,
    seed: int,
    allow_leaks: bool,
    retry: Callable[[str], bool] | None,
    cost_seconds: Callable[[Entry], float],
) -> PlanPart:
    """The units that new, changed and retried inputs make; `retry` says which failures, by reason, to redo.

    Raises `RefusedError` where a given split leaks, or a changed input would, unless `allow_leaks`.
    """
    salt = str(len(ledger.plan.parts))
    known = ledger.plan.videos()
    if not allow_leaks:
        refuse_new_leaks(changes.changed, known, ledger.plan.dropped_identities())
    known |= {entry.video_id: (entry, known[entry.video_id][1]) for entry in changes.changed}
    assigned = assign_splits(
        changes.added,
        ratio=ratio,
        seed=seed,
        allow_leaks=allow_leaks,
        known=known,
        known_dropped=ledger.plan.dropped_identities(),
        without_splits=listing.without_splits,
    )
    bridging = set(assigned.bridging)
    why = "its original or person would join two splits that are fixed already"
    changes.refused.extend(
        replace(entry, problem="bridges_splits", detail=why) for entry in changes.added if entry.video_id in bridging
    )
    added = [entry for entry in changes.added if entry.video_id not in bridging]
    name = config_hash(config)
    units = group_units(added, assigned.split_of, config=name, salt=salt, cost_seconds=cost_seconds)
    current = {entry.video_id: entry for entry in listing.entries if not entry.problem}
    failed = _failed(ledger, retry) if retry is not None else {}
    anew = {entry.video_id for entry in (*added, *changes.changed)}.union(*failed.values())
    # What a fake's mask says depends on its original too.
    changes.changed.extend(
        entry for name, entry in current.items() if entry.source_id in anew and name in known and name not in anew
    )
    redone, replaced = _replace_changed(ledger, {entry.video_id for entry in changes.changed}, current, name, salt)
    units += redone
    left = {unit: names for unit, names in failed.items() if unit not in replaced}
    units += _retry_failed(ledger, left, current, name, salt)
    return PlanPart(
        config=config,
        units=tuple(units),
        dropped_identities=tuple(assigned.dropped_identities),
    )


def _replace_changed(
    ledger: Ledger, changed: set[str], current: dict[str, Entry], config: str, salt: str
) -> tuple[list[Unit], set[str]]:
    """A changed input re-runs its whole unit, so that the old file can go as one."""
    units, replaced = [], set()
    for unit in ledger.plan.units():
        mine = [entry for entry in unit.inputs if ledger.owner[entry.video_id] == unit.unit]
        if not any(entry.video_id in changed for entry in mine):
            continue
        inputs = [current.get(entry.video_id, entry) for entry in mine]
        # One that was never finished has not replaced its own predecessors yet: newest first.
        unfinished = any(receipt is None for _, receipt in ledger.leaves(unit))
        supersedes = [unit.unit, *(unit.supersedes if unfinished else ())]
        units.append(Unit.make(inputs, unit.split, config=config, salt=salt, supersedes=supersedes))
        replaced.add(unit.unit)
    return units, replaced


def _failed(ledger: Ledger, retry: Callable[[str], bool]) -> dict[str, set[str]]:
    """The failed inputs of each unit whose reason is to be tried again."""
    failed: dict[str, set[str]] = {}
    for unit, outcome in ledger.outcomes():
        if outcome.outcome == "failed" and retry(str(outcome.reason)):
            failed.setdefault(unit.unit, set()).add(outcome.video_id)
    return failed


def _retry_failed(
    ledger: Ledger, failed: dict[str, set[str]], current: dict[str, Entry], config: str, salt: str
) -> list[Unit]:
    units = []
    for unit in list(ledger.plan.units()):
        if unit.unit not in failed:
            continue
        again = [entry for entry in unit.inputs if entry.video_id in failed[unit.unit]]
        inputs = [current.get(entry.video_id, entry) for entry in again]
        whole = _owned(ledger, unit) == failed[unit.unit]
        supersedes = [unit.unit] if whole else []
        units.append(Unit.make(inputs, unit.split, config=config, salt=salt, supersedes=supersedes))
    return units


def _owned(ledger: Ledger, unit: Unit) -> set[str]:
    return {entry.video_id for entry in unit.inputs if ledger.owner[entry.video_id] == unit.unit}


def differing(before: dict[str, Any], now: dict[str, Any]) -> Iterable[str]:
    """One line for each field that two configs do not share; none only where `config_hash` is the same too."""
    for key in sorted(before.keys() | now.keys()):
        there, here = ({key: config[key]} if key in config else {} for config in (before, now))
        if config_hash(there) != config_hash(here):
            yield f"{key}: {_short(there.get(key, 'not set'))} there, {_short(here.get(key, 'not set'))} now"


def _short(value: object) -> str:
    return str(value) if not isinstance(value, Sequence) or isinstance(value, str) else ",".join(map(str, value))
