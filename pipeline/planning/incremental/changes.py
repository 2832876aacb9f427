"""What changed in the source since the last run: `Changes`, by comparison with the plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ...console import first_names, plural
from ...dataset.stores.remote_files import WEB
from ...errors import RefusedError
from ...sources import Entry, Listing
from ..content_hash import ComparisonProgress, find_renamed, find_unchanged_content
from ..options import JobSpec
from ..run_state import RunState
from .stored_times import planned_by_other_times


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
    retimed: list[Entry] = []
    for entry in listing.entries:
        if entry.problem:
            if entry.video_id in planned:
                changes.blocked.add(entry.video_id)
            else:
                changes.refused.append(entry)
            continue
        if entry.video_id not in planned:
            changes.added.append(entry)
            continue
        before, split = planned[entry.video_id]
        _refuse_another_split(entry, split)
        if entry is before:  # as `Plan.load` has it for those that are as planned
            continue
        before = replace(before, split=entry.split)
        if listing.is_relinked(entry, before.footage):
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
    changes.gone.extend(_gone(listing, planned))
    return changes


def _gone(listing: Listing, planned: Collection[str]) -> list[str]:
    """Ids of the `planned` videos that the listing does not name, or with a problem."""
    listed = (entry.video_id for entry in listing.entries if not entry.problem)
    if sum(video_id in planned for video_id in listed) == len(planned):  # mostly: needs no set of all that is listed
        return []
    current = {entry.video_id for entry in listing.entries if not entry.problem}
    return [video_id for video_id in planned if video_id not in current]


def _refuse_another_split(entry: Entry, planned: str) -> None:
    if entry.split and entry.split != planned:
        raise RefusedError(
            f"{entry.video_id}: was planned into {planned}, the source now says {entry.split}; a split is fixed once "
            "planned: use a new OUT, or --splits FILE if OUT was made with that"
        )


def compare_with_plan(run_state: RunState, listing: Listing, job: JobSpec, comparing: ComparisonProgress) -> Changes:
    """`find_changes` since the last run; contents are compared of files of which only the mtime or the name differs.

    Not of a source in a store, all of which would have to be fetched for that: such inputs count as changed or added,
    unless their times were only found in another way when they were planned. Raises `RefusedError` as `find_changes`
    does, and where SRC is another set than OUT was made from, with files of the same names.
    """
    planned = run_state.plan.planned_videos()
    _refuse_another_set(run_state, planned, listing, job.source)
    if job.stored_files is not None:
        were_without_times = job.stored_files.address.protocol in (*WEB, "hf")
        find_unchanged = partial(planned_by_other_times, listing.root, planned, were_without_times=were_without_times)
        return find_changes(listing, planned, find_unchanged)
    roots = job.roots
    changes = find_changes(listing, planned, partial(find_unchanged_content, run_state, roots, comparing))
    gone = [planned[video_id][0] for video_id in changes.gone]
    changes.renamed.update(find_renamed(run_state, changes.added, gone, roots, comparing))
    return changes


def _refuse_another_set(
    run_state: RunState, planned: Mapping[str, tuple[Entry, str]], listing: Listing, source: str
) -> None:
    """Raises `RefusedError` where most of the names that OUT knows from elsewhere are those of other files in SRC.

    Names alone identify inputs, and many sets have a real/0001.mp4: its rows would be replaced by those of another
    video. Where most files have the size that was planned, it is the same set, which was moved and has changed. An
    absolute name is of the same file wherever a table that lists it lies.
    """
    plan = run_state.plan
    if {part.source for part in plan.parts} <= {"", source}:
        return
    sources = plan.sources()
    moved = [
        entry
        for entry in listing.entries
        if not entry.problem and entry.video_id[0] != "/" and sources.get(entry.video_id, source) not in ("", source)
    ]
    others = [entry for entry in moved if entry.size_bytes != planned[entry.video_id][0].size_bytes]
    if 2 * len(others) <= len(moved):
        return
    computed = {outcome.video_id for _, outcome in run_state.outcomes() if outcome.outcome != "failed"}
    lost = [entry.video_id for entry in others if entry.video_id in computed]
    if 2 * len(lost) > len(moved):
        raise RefusedError(
            f"{lost[0]}: another file has that name in {source} than in {sources[lost[0]]}, and would replace its rows "
            f"in OUT; so would {len(lost):,} of {plural(len(moved), 'input')} of SRC whose names OUT has. For another "
            "set use a new OUT, or name the folder that holds both as SRC of a new OUT; put newer versions of the same "
            "videos where those were"
        )


def inputs_not_to_decode(run_state: RunState, changes: Changes) -> set[str]:
    """Ids of planned inputs that are gone; of those that the source names with a problem, the ones that have rows.

    The others of these are decoded, which says what is wrong with them.
    """
    return {*changes.gone} - run_state.without_rows(changes.blocked)


def absence_warnings(run_state: RunState, listing: Listing, changes: Changes) -> list[str]:
    """Warnings about inputs of OUT that the source lacks, before more is added to them: the source may be another one.

    A further set may be meant for the same OUT, so that this is no error.
    """
    if not changes.gone:
        return []
    without_rows = run_state.without_rows(changes.gone)
    gone = [video_id for video_id in changes.gone if video_id not in without_rows]
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
