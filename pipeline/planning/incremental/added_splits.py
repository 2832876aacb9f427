"""Splits of added inputs, beside those that are fixed already: no original and no person comes into two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...console import first_names, plural
from ...errors import RefusedError
from ...sources import Entry, Listing
from ...sources.clips.image_sequences import collecting_folders
from ...sources.clips.video_or_frames import EntriesOfClips
from ...sources.media.suffixes import is_image
from ...splits.assignment import Assignment, assign_splits
from ...splits.leaks import refuse_new_leaks
from ..options import Options
from ..plan import Plan
from ..run_state import RunState
from .changes import Changes


def assign_added(
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
    with_faces = [each.video_id for each in run_state.known_outcomes({*changes.gone}) if each.faces]
    renamed = _same_clips(listing, changes.added, [planned[name][0] for name in with_faces]) | changes.renamed
    _refuse_moves(changes.added, renamed, planned, listing.labels, allow_leaks=allow_leaks)
    planned = _with_new_links(planned, changes.relinked)
    changed = [
        replace(entry, footage=footage) if listing.is_relinked(entry, footage) else entry
        for entry in changes.changed
        for footage in [planned[entry.video_id][0].footage]
    ]
    if not allow_leaks:
        refuse_new_leaks(changed, planned, dropped)
    assigned = assign_splits(
        changes.added,
        ratio=options.split_ratio,
        seed=options.seed,
        allow_leaks=allow_leaks,
        known=_linked(planned, changed),
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


def _same_clips(listing: Listing, added: Sequence[Entry], gone: Sequence[Entry]) -> dict[str, str]:
    """Ids of `added` inputs that are the clip of a `gone` one in another form, with its id: a video for its frames."""
    if not gone:
        return {}
    classes = collecting_folders(listing)
    clips, gone_clips = EntriesOfClips.of(listing.entries, classes), EntriesOfClips.of(gone, classes)
    new = {entry.video_id for entry in added}

    def same_clip(entry: Entry, others: EntriesOfClips) -> str | None:
        found = next(iter(others.find(entry.video_id)), None) or others.in_folder(entry.video_id)
        if found is None and is_image(entry.video_id):
            found = next(iter(others.of_image(entry.video_id, classes)), None)
        return found.video_id if found else None

    of_gone = {video_id: entry.video_id for entry in gone if (video_id := same_clip(entry, clips)) in new}
    return of_gone | {entry.video_id: old for entry in added if (old := same_clip(entry, gone_clips))}


def divided_recordings(plan: Plan, relinked: Sequence[Entry]) -> list[str]:
    """A warning of planned videos that are known now to show the same recording, and are in several splits.

    Splits are fixed once planned, so that nothing else follows from such a link. `relinked`: see `Changes`.
    """
    inputs: dict[str, list[str]] = defaultdict(list)
    if not relinked:
        return []
    planned = plan.planned_videos()
    divided = _divided_footages(planned, relinked)
    for name, (entry, split) in sorted(_linked(planned, relinked).items()):
        if entry.footage and entry.footage in divided:
            inputs[entry.footage].append(f"{name} ({split})")
    if not inputs:
        return []
    return [
        f"{plural(len(inputs), 'recording')} in several splits: {first_names([' = '.join(e) for e in inputs.values()])}"
        "; these inputs were planned before SRC showed that they belong together, and splits are fixed once planned; "
        "a new OUT has each recording in one split"
    ]


def _with_new_links(planned: dict[str, tuple[Entry, str]], relinked: Sequence[Entry]) -> dict[str, tuple[Entry, str]]:
    """The planned videos with the footage of `relinked` ones, but for footage that would join two splits."""
    if not relinked:
        return planned
    divided = _divided_footages(planned, relinked)
    return _linked(planned, [entry for entry in relinked if entry.footage not in divided])


def _linked(planned: dict[str, tuple[Entry, str]], relinked: Iterable[Entry]) -> dict[str, tuple[Entry, str]]:
    others = {entry.video_id: (entry, planned[entry.video_id][1]) for entry in relinked}
    return {**planned, **others} if others else planned  # a copy takes 50 bytes an input


def _divided_footages(planned: dict[str, tuple[Entry, str]], relinked: Sequence[Entry]) -> set[str | None]:
    """Footage of `relinked` videos that would join two splits."""
    splits: dict[str | None, set[str]] = defaultdict(set)
    for entry, split in _linked(planned, relinked).values():
        splits[entry.footage].add(split)
    return {entry.footage for entry in relinked if len(splits[entry.footage]) > 1}


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
