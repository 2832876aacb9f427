"""Which planned inputs are computed again, and the units that replace theirs; other rows of these are copied."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from ...dataset.manifest import InputOutcome
from ...sources import Entry
from ..damage_limits import DamageLimitConflicts
from ..options import JobSpec
from ..plan import Unit
from ..run_state import RunState
from .changes import Changes
from .outdated_rows import outdated_entries


def extend_changes(
    run_state: RunState,
    changes: Changes,
    planned: Mapping[str, tuple[Entry, str]],
    current: Mapping[str, Entry],
    job: JobSpec,
    *,
    added: Iterable[Entry],
    retry: Callable[[str], bool] | None,
) -> tuple[set[str], set[str]]:
    """Adds what the source alone does not show to `changes.changed` and `changes.rejudged`.

    Returns the ids of planned inputs whose units are replaced, and the ids of all inputs whose rows are computed anew.
    `current`: the source's entries without a problem, by id. `added`: those of the new units. `retry`: see
    `next_plan_part`.
    """
    if not planned:  # a new OUT has no rows; sets of all that is added would take 130 bytes an input
        return set(), set()
    failed = _inputs_to_retry(run_state, retry) - changes.removed if retry is not None else set()
    if retry is not None and retry("decode_error"):
        conflicts = DamageLimitConflicts.find(run_state, job.limits.max_damaged_percent, current)
        changes.rejudged[:] = [current[outcome.video_id] for outcome in conflicts.partial]
    other_rows = [entry for entry in changes.changed if _has_other_rows(entry, planned[entry.video_id][0])]
    outdated = outdated_entries(run_state, current, job.file_exists)
    redo = failed | _ids([*other_rows, *added, *changes.rejudged, *outdated])
    fakes, fakes_away = _fakes_of(redo, planned, current), _fakes_away(redo, planned, current)
    known = _ids(changes.changed)
    changes.changed.extend(entry for entry in (*outdated, *fakes) if entry.video_id not in known)
    replaced = failed | fakes_away | _ids([*changes.changed, *changes.rejudged])
    return replaced, redo | fakes_away | _ids(fakes)


def _inputs_to_retry(run_state: RunState, retry: Callable[[str], bool]) -> set[str]:
    """Ids of failed inputs to retry, also where an unfinished unit is to copy that they failed."""
    return {
        outcome.video_id
        for outcome in run_state.known_outcomes(run_state.unit_of_video.keys())
        if outcome.outcome == "failed" and retry(str(outcome.reason))
    }


def _has_other_rows(entry: Entry, before: Entry) -> bool:
    """Whether anything changed beyond the fields that affect splits alone and become no column."""
    return entry != replace(
        before, split=entry.split, footage=entry.footage, related_identities=entry.related_identities
    )


def _fakes_of(redo: set[str], planned: Container[str], current: Mapping[str, Entry]) -> list[Entry]:
    """Planned fakes of originals in `redo`, since masks depend on both.

    Not of an original that is gone, whose failure is retried: they would lose the masks that they have.
    """
    return [
        entry
        for name, entry in current.items()
        if entry.source_id in redo and entry.source_id in current and name in planned and name not in redo
    ]


def _fakes_away(redo: set[str], planned: Mapping[str, tuple[Entry, str]], current: Mapping[str, Entry]) -> set[str]:
    """Ids of planned fakes that are gone, of originals in `redo`: their rows are kept, and redone once they are back.

    Where they come back as they were planned, nothing else shows that their masks are older than their originals.
    """
    return {
        name
        for name, (entry, _) in planned.items()
        if name not in current and entry.source_id in redo and entry.source_id in current
    }


def _ids(entries: Iterable[Entry]) -> set[str]:
    return {entry.video_id for entry in entries}


def replacing_units(
    run_state: RunState,
    replaced: set[str],
    redo: set[str],
    current: Mapping[str, Entry],
    *,
    planned: Mapping[str, tuple[Entry, str]],
    make: Callable[..., Unit],
) -> Iterator[Unit]:
    """A unit in place of each that has an input in `replaced`, as a whole, so that its file can go; reuses other rows.

    Also of each unfinished one with an input that a later unit has, as a retry was planned once: to redo it would give
    this input's rows twice. `redo`: inputs whose rows are not reused. `make`: `Unit.make` for the job.
    """
    for unit in run_state.plan.units():
        owned = [entry for entry in unit.inputs if run_state.unit_of_video[entry.video_id] == unit.unit_id]
        is_changed = any(entry.video_id in replaced for entry in owned)
        if not owned or not (is_changed or len(owned) < len(unit.inputs)):
            continue
        leaves = list(run_state.leaf_units(unit))
        # An unfinished unit has not replaced its own predecessors yet; newest first.
        unfinished = any(receipt is None for _, receipt in leaves)
        if not (is_changed or unfinished):
            continue
        outcomes = {each.video_id: each for _, receipt in leaves if receipt is not None for each in receipt.inputs}
        inputs = [
            current.get(entry.video_id)
            or entry_of_rows(entry, planned[entry.video_id][0], outcomes.get(entry.video_id))
            for entry in owned
        ]
        supersedes = [unit.unit_id, *(unit.supersedes if unfinished else ())]
        reuses = [
            entry.video_id
            for entry in owned
            # In an unfinished unit, older rows are valid only if it was to reuse them.
            if entry.video_id not in redo and (entry.video_id in outcomes or entry.video_id in unit.reuses)
        ]
        yield make(inputs, unit.split, supersedes=supersedes, reuses=reuses)


def entry_of_rows(entry: Entry, last_planned: Entry, outcome: InputOutcome | None) -> Entry:
    """The entry of an input for a unit that reuses its rows: with the time of the file that they are of.

    That may have been another file than was planned, and the one that was planned may come back. `entry`: as in the
    unit whose rows they are. `last_planned`: with later times of the same content.
    """
    if outcome is None or outcome.mtime_ns == entry.mtime_ns:
        return last_planned
    return replace(last_planned, mtime_ns=outcome.mtime_ns)
