"""Incremental runs: what changed in the source since the last run, and the next plan part that covers it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..console import first_names, plural
from ..dataset.manifest import InputOutcome
from ..errors import RefusedError
from ..sources import Entry, Listing
from ..sources.clips.video_or_frames import clip_key
from ..splits.assignment import Assignment, assign_splits
from ..splits.leaks import refuse_new_leaks
from .content_hash import ComparisonProgress, find_renamed, find_unchanged_content
from .damage_limits import DamageLimitConflicts
from .options import JobSpec, Options, hash_config
from .outdated_rows import outdated_entries
from .plan import PlanPart, Unit, group_units
from .run_state import RunState


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Inputs classified by how they differ from the plan.

    `added`, `changed` and `touched` hold entries as the source has them now. `touched`: a new mtime, the same content;
    only the mtime is recorded (of a clip of images, the digest too). `gone`: planned, but no longer in the source;
    their rows stay. `refused`: never reach a unit. `rejudged`: have more damaged frames than is allowed now, and are
    redone on request. `blocked`: those of `gone` that the source names, but with a problem. `relinked`: the source is
    as it was, but other names are known to be of the same recording; this concerns the splits of added inputs alone.
    `renamed`: ids of added inputs that have the content of one that is gone, with its id.
    """

    added: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    touched: list[Entry] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    blocked: set[str] = field(default_factory=set)
    refused: list[Entry] = field(default_factory=list)
    rejudged: list[Entry] = field(default_factory=list)
    relinked: list[Entry] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def removed(self) -> set[str]:
        """Ids of planned inputs that the source does not name any more."""
        return {*self.gone} - self.blocked


def find_changes(
    listing: Listing,
    planned: dict[str, tuple[Entry, str]],
    find_unchanged: Callable[[Sequence[Entry]], Container[str]] = lambda _: (),
) -> Changes:
    """Compares the listing's entries with the planned videos, given as `(entry, split)` by video id.

    `find_unchanged`: given the entries that differ in mtime alone, returns the ids of those with unchanged content; by
    default none. Raises `RefusedError` where the source now gives a planned video another split: assignments are fixed.
    """
    changes = Changes()
    seen = set()
    retimed: list[Entry] = []
    for entry in listing.entries:
        if entry.problem:
            if entry.video_id in planned:
                changes.blocked.add(entry.video_id)
            else:
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
                "planned: use a new OUT, or --splits FILE if OUT was made with that"
            )
        before = replace(before, split=entry.split)
        if listing.footage_from_names and entry.footage != before.footage:
            changes.relinked.append(entry)
            before = replace(before, footage=entry.footage)
        if entry == before:
            continue
        only_time = entry == replace(before, mtime_ns=entry.mtime_ns, images_digest=entry.images_digest)
        (retimed if only_time else changes.changed).append(entry)
    if retimed:
        unchanged = find_unchanged(retimed)
        for entry in retimed:
            (changes.touched if entry.video_id in unchanged else changes.changed).append(entry)
    changes.gone.extend(video_id for video_id in planned if video_id not in seen)
    return changes


def compare_with_plan(
    run_state: RunState, listing: Listing, roots: Sequence[Path], comparing: ComparisonProgress
) -> Changes:
    """`find_changes` since the last run; contents are compared of files of which only the mtime or the name differs.

    `roots`: folders that inputs may lie in, the listing's root first.
    """
    planned = run_state.plan.planned_videos()
    changes = find_changes(listing, planned, partial(find_unchanged_content, run_state, roots, comparing))
    gone = [planned[video_id][0] for video_id in changes.gone]
    changes.renamed.update(find_renamed(run_state, changes.added, gone, roots, comparing))
    return changes


def absence_warnings(run_state: RunState, listing: Listing, changes: Changes) -> list[str]:
    """Warnings about inputs of OUT that the source lacks, before more is added to them: the source may be another one.

    A further set may be meant for the same OUT, so that this is no error.
    """
    if not changes.gone:
        return []
    failed = {outcome.video_id for _, outcome in run_state.outcomes() if outcome.outcome == "failed"}
    gone = [video_id for video_id in changes.gone if video_id not in failed]  # of the others nothing stays
    total = len(run_state.unit_of_video) - (len(changes.gone) - len(gone))
    if not gone:
        return []
    if len(gone) < total:
        text = (
            f"not in SRC, or not readable there: {len(gone):,} of the {total:,} inputs in OUT "
            f"({first_names(gone)}), whose rows stay"
        )
    else:
        text = (
            f"none of the {plural(total, 'input')} in OUT is in SRC, or readable there: their rows stay, and what SRC "
            f"has ({plural(len(listing.entries), 'input')}) is added to them; unless SRC is a further set for OUT, "
            "stop and name a new OUT, or the SRC that OUT was made from"
        )
    if not changes.renamed:
        return [text]
    new, old = min(changes.renamed.items())
    return [
        text,
        f"{plural(len(changes.renamed), 'input')} of SRC will be in OUT twice, with rows of the same content under "
        f"another name ({new} is {old}); a new OUT has each once",
    ]


def next_plan_part(
    run_state: RunState,
    listing: Listing,
    changes: Changes,
    *,
    job: JobSpec,
    config: dict[str, Any],
    allow_leaks: bool,
    retry: Callable[[str], bool] | None,
    cost_seconds: Callable[[Entry], float],
) -> PlanPart:
    """Plans units for added, changed and retried inputs.

    Args:
        run_state: the state of the dataset before this run.
        listing: what the source holds now.
        changes: how it differs from the plan; `refused`, `rejudged` and `changed` are extended in place.
        job: the job, whose options and limits apply to what is planned now.
        config: the job's config.
        allow_leaks: whether splits given by the source may share originals or people.
        retry: which failures, by reason, to redo; None for none. Where it accepts decode_error, partial inputs with
            more damage than the job allows are redone too.
        cost_seconds: expected seconds of work for an entry.

    Raises:
        RefusedError: where a given split leaks, or a changed or moved input would, unless `allow_leaks`; where an input
            was moved to another class.

    """
    salt = str(len(run_state.plan.parts))
    make = partial(Unit.make, config_hash=job.config_hash, salt=salt)
    planned = run_state.plan.planned_videos()
    assigned = _assign_added(run_state, listing, changes, planned, job.options, allow_leaks=allow_leaks)
    added = [entry for entry in changes.added if entry.video_id in assigned.split_of]
    units = group_units(added, assigned.split_of, config_hash=job.config_hash, salt=salt, cost_seconds=cost_seconds)
    current = {entry.video_id: entry for entry in listing.entries if not entry.problem}
    failed = _inputs_to_retry(run_state, retry) - changes.removed if retry is not None else set()
    if retry is not None and retry("decode_error"):
        conflicts = DamageLimitConflicts.find(run_state, job.limits.max_damaged_percent, current)
        changes.rejudged[:] = [current[outcome.video_id] for outcome in conflicts.partial]
    other_rows = [entry for entry in changes.changed if _has_other_rows(entry, planned[entry.video_id][0])]
    outdated = outdated_entries(run_state, current, job.file_exists)
    known_changed = _ids(changes.changed)
    changes.changed.extend(entry for entry in outdated if entry.video_id not in known_changed)
    redo = failed | _ids([*other_rows, *added, *changes.rejudged, *outdated])
    away = _fakes_away(redo, planned, current)
    redo |= away | _add_fakes(changes, redo, planned, current)
    changed = failed | away | _ids([*changes.changed, *changes.rejudged])
    return PlanPart(
        config=config,
        units=(*units, *_replace_changed(run_state, changed, redo, current, planned=planned, make=make)),
        dropped_identities=tuple(assigned.dropped_identities),
        mtime_updates={entry.video_id: entry.mtime_ns for entry in changes.touched},
        digest_updates={entry.video_id: entry.images_digest for entry in changes.touched if entry.images_digest},
    )


def _ids(entries: Iterable[Entry]) -> set[str]:
    return {entry.video_id for entry in entries}


def _assign_added(
    run_state: RunState,
    listing: Listing,
    changes: Changes,
    planned: dict[str, tuple[Entry, str]],
    options: Options,
    *,
    allow_leaks: bool,
) -> Assignment:
    """Assigns splits to the added inputs; those that are left out are added to `changes.refused`."""
    dropped = run_state.plan.dropped_identities()
    renamed = _same_clips(changes.added, [planned[name][0] for name in changes.gone]) | changes.renamed
    _refuse_moves(changes.added, renamed, planned, listing.labels, allow_leaks=allow_leaks)
    planned = _with_new_links(planned, changes.relinked)
    changed = [
        replace(entry, footage=planned[entry.video_id][0].footage) if listing.footage_from_names else entry
        for entry in changes.changed
    ]
    if not allow_leaks:
        refuse_new_leaks(changed, planned, dropped)
    assigned = assign_splits(
        changes.added,
        ratio=options.split_ratio,
        seed=options.seed,
        allow_leaks=allow_leaks,
        known=planned | {entry.video_id: (entry, planned[entry.video_id][1]) for entry in changed},
        known_dropped=dropped,
        without_splits=listing.without_splits,
        renamed=renamed,
    )
    detail = "it, or what it was made from, would join two splits that are fixed already"
    changes.refused.extend(
        replace(entry, problem="bridges_splits", detail=detail)
        for entry in changes.added
        if entry.video_id not in assigned.split_of
    )
    return assigned


def _same_clips(added: Iterable[Entry], gone: Iterable[Entry]) -> dict[str, str]:
    """Ids of `added` inputs that are the clip of a `gone` one in another form, with its id: a video for its frames."""
    gone_ids = {clip_key(entry.video_id): entry.video_id for entry in gone}
    return {entry.video_id: gone_ids[key] for entry in added if (key := clip_key(entry.video_id)) in gone_ids}


def _with_new_links(planned: dict[str, tuple[Entry, str]], relinked: Iterable[Entry]) -> dict[str, tuple[Entry, str]]:
    """The planned videos with the footage of `relinked` ones, but for footage that would join two splits."""
    linked = {entry.video_id: (entry, planned[entry.video_id][1]) for entry in relinked}
    splits: dict[str | None, set[str]] = defaultdict(set)
    for entry, split in (planned | linked).values():
        splits[entry.footage].add(split)
    return planned | {
        name: (entry, split) for name, (entry, split) in linked.items() if len(splits[entry.footage]) == 1
    }


def _refuse_moves(
    added: Iterable[Entry],
    renamed: Mapping[str, str],
    planned: Mapping[str, tuple[Entry, str]],
    labels: Sequence[str],
    *,
    allow_leaks: bool,
) -> None:
    """Raises `RefusedError` where a `renamed` input has another label than it had, or, unless `allow_leaks`, split.

    The rows under its old name stay, so that it would be in both. Not where either label is unknown.
    """
    for entry in added:
        if entry.video_id not in renamed:
            continue
        old = renamed[entry.video_id]
        before, split = planned[old]
        kept = f"{entry.video_id}: is {old}, renamed or moved, whose rows stay"
        if -1 not in (entry.label, before.label) and entry.label != before.label:
            raise RefusedError(
                f"{kept}: it was {labels[before.label]} and is {labels[entry.label]} now, and would be in OUT as both: "
                "use a new OUT, or undo the move"
            )
        if entry.split and entry.split != split and not allow_leaks:
            raise RefusedError(
                f"{kept}: it was planned into {split}, the source now says {entry.split}, and it would be in both, a "
                "leak: use a new OUT, undo the move, or accept it with --allow-leaks"
            )


def _add_fakes(changes: Changes, redo: set[str], planned: Container[str], current: dict[str, Entry]) -> set[str]:
    """Adds planned fakes of originals in `redo` to `changes.changed`, since masks depend on both; returns their ids.

    Not of an original that is gone, whose failure is retried: they would lose the masks that they have.
    """
    fakes = [
        entry
        for name, entry in current.items()
        if entry.source_id in redo and entry.source_id in current and name in planned and name not in redo
    ]
    changed = _ids(changes.changed)
    changes.changed.extend(entry for entry in fakes if entry.video_id not in changed)
    return _ids(fakes)


def _fakes_away(redo: set[str], planned: Mapping[str, tuple[Entry, str]], current: dict[str, Entry]) -> set[str]:
    """Ids of planned fakes that are gone, of originals in `redo`: their rows are kept, and redone once they are back.

    Where they come back as they were planned, nothing else shows that their masks are older than their originals.
    """
    return {
        name
        for name, (entry, _) in planned.items()
        if name not in current and entry.source_id in redo and entry.source_id in current
    }


def _has_other_rows(entry: Entry, before: Entry) -> bool:
    """Whether anything changed beyond the fields that affect splits alone and become no column."""
    return entry != replace(
        before, split=entry.split, footage=entry.footage, related_identities=entry.related_identities
    )


def _replace_changed(
    run_state: RunState,
    changed: set[str],
    redo: set[str],
    current: dict[str, Entry],
    *,
    planned: Mapping[str, tuple[Entry, str]],
    make: Callable[..., Unit],
) -> Iterator[Unit]:
    """Replaces each unit with a changed input as a whole, so that its file can go; reuses rows not in `redo`.

    Also each unfinished one with an input that a later unit has, as a retry was planned once: to redo it would give
    this input's rows twice.
    """
    for unit in run_state.plan.units():
        owned = [entry for entry in unit.inputs if run_state.unit_of_video[entry.video_id] == unit.unit_id]
        is_changed = any(entry.video_id in changed for entry in owned)
        if not owned or not (is_changed or len(owned) < len(unit.inputs)):
            continue
        leaves = list(run_state.leaf_units(unit))
        # An unfinished unit has not replaced its own predecessors yet; newest first.
        unfinished = any(receipt is None for _, receipt in leaves)
        if not (is_changed or unfinished):
            continue
        outcomes = {each.video_id: each for _, receipt in leaves if receipt is not None for each in receipt.inputs}
        inputs = [
            current.get(entry.video_id) or _gone_entry(entry, planned[entry.video_id][0], outcomes.get(entry.video_id))
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


def _gone_entry(entry: Entry, last_planned: Entry, outcome: InputOutcome | None) -> Entry:
    """The entry of a video that is gone, for a unit that reuses its rows: with the time of the file that they are of.

    That may have been another file than was planned, and the one that was planned may come back.
    """
    if outcome is None or outcome.mtime_ns == entry.mtime_ns:
        return last_planned
    return replace(last_planned, mtime_ns=outcome.mtime_ns)


def _inputs_to_retry(run_state: RunState, retry: Callable[[str], bool]) -> set[str]:
    """Ids of failed inputs to retry."""
    return {
        outcome.video_id
        for _, outcome in run_state.outcomes()
        if outcome.outcome == "failed" and retry(str(outcome.reason))
    }


def config_differences(before: dict[str, Any], now: dict[str, Any]) -> Iterable[str]:
    """One line for each field in which two configs differ; none only where their hashes are equal."""
    for key in sorted(before.keys() | now.keys()):
        there, here = ({key: config[key]} if key in config else {} for config in (before, now))
        if hash_config(there) != hash_config(here):
            there_text, here_text = (_setting_text(side.get(key, "not set")) for side in (there, here))
            yield f"{key}: {there_text} there, {here_text} now"


def _setting_text(value: object) -> str:
    return str(value) if not isinstance(value, Sequence) or isinstance(value, str) else ",".join(map(str, value))
