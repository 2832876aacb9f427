"""What a source holds, as far as it is known without opening more than headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass

from ..dataset.schema import unlabelled_name
from ..planning.cost_model import CostModel
from ..planning.incremental import Changes
from ..planning.options import JobSpec
from ..planning.plan import Plan, Unit
from ..sources import Entry, Listing, listing_warnings
from ..splits.assignment import group_sizes
from ..splits.coverage import coverage_warnings
from ..splits.people import spelling_warnings

_MAX_NAMED = 100


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What a source holds.

    `recognised_by`: what shows the layout. `classes`: names of the labels by index, then that of inputs without
    one; `by_split[split][class]` counts inputs; of `split_given` of them the source says the split. `leak` is what
    the run would refuse, None where nothing leaks. `groups`: how many sets of inputs no split may cut;
    `largest_group`: inputs in the largest one. `clips` of the inputs are folders of `images`. `hours` of playing
    time are those of `headers_read` headers, the rest by their bytes. `missing_files` names the first 100 of
    `missing`. `fakes`: inputs that name an original to compare them with; `without_original`: of these, those whose
    original is not there. `own_masks`: inputs with a mask of their own; `whole_frames`: inputs that are cropped
    already. `caveats`: what the source does not say, which splits lack a class, people of several spellings, inputs of
    OUT that it lacks, that are copies or that are of one recording in several splits, and what OUT holds that another
    `--max-damaged` has decided.
    """

    layout: str
    recognised_by: str
    inputs: int
    clips: int
    images: int
    new: int
    size_bytes: int
    hours: float
    headers_read: int
    classes: list[str]
    by_split: dict[str, Counter[str]]
    split_given: int
    groups: int
    largest_group: int
    dropped_identities: Sequence[str]
    leak: str | None
    refused: Counter[str]
    missing: int
    missing_files: list[str]
    ignored: Counter[str]
    fakes: int
    without_original: int
    own_masks: int
    whole_frames: int
    caveats: list[str]


def existing_originals(listing: Listing, job: JobSpec) -> set[str]:
    """Ids of the originals that fakes are compared with: inputs of the source, or files that are no inputs of it."""
    present = {entry.video_id for entry in listing.entries if not entry.problem}
    named = {entry.source_id for entry in listing.entries if entry.compared and entry.source_id is not None}
    return {source_id for source_id in named if source_id in present or job.file_exists(source_id)}


def survey_source(
    listing: Listing, changes: Changes, plan: Plan, cost: CostModel, *, pending: Sequence[Unit],
    originals: Container[str], uncounted: Container[str], leak: str | None, caveats: list[str],
) -> Survey:  # fmt: skip
    """Surveys a source; the last part of `plan` is the one that the run would append.

    `pending`: units that it would process. `originals`: `existing_originals` of the source. `uncounted`: ids of planned
    inputs that the report of the run does not count.
    """
    fakes = [entry for entry in listing.entries if entry.source_id is not None and entry.compared]
    dropped = plan.dropped_identities()
    planned = [found for video_id, found in plan.planned_videos().items() if video_id not in uncounted]
    new_units = {unit.unit_id for unit in plan.parts[-1].units}
    sizes = group_sizes([entry for entry, _ in planned], dropped)
    return Survey(
        layout=listing.layout,
        recognised_by=listing.recognised_by,
        inputs=len(listing.entries),
        clips=len(listing.clips),
        images=sum(entry.num_images for entry in listing.clips),
        new=sum(len(unit.inputs_to_decode) for unit in pending if unit.unit_id in new_units),
        size_bytes=sum(entry.size_bytes for entry in listing.entries),
        hours=sum(cost(entry).duration_seconds for entry in listing.entries if not entry.problem) / 3600,
        headers_read=cost.headers_read,
        classes=[*listing.labels, unlabelled_name(listing.labels)],
        by_split=_count_by_split(planned, listing.labels),
        split_given=sum(entry.split is not None for entry in listing.entries),
        groups=len(sizes),
        largest_group=max(sizes, default=0),
        dropped_identities=sorted(dropped),
        leak=leak,
        refused=Counter(str(entry.problem) for entry in changes.refused),
        missing=len(listing.missing),
        missing_files=listing.missing[:_MAX_NAMED],
        ignored=listing.ignored,
        fakes=len(fakes),
        without_original=sum(entry.source_id not in originals for entry in fakes),
        own_masks=sum(entry.mask_id is not None for entry in listing.entries),
        whole_frames=sum(entry.whole_frame for entry in listing.entries),
        caveats=[
            *listing_warnings(listing), *coverage_warnings(planned, listing.labels, listing.misspelt_labels),
            *spelling_warnings(planned), *caveats,
        ],
    )  # fmt: skip


def _count_by_split(planned: Sequence[tuple[Entry, str]], labels: Sequence[str]) -> dict[str, Counter[str]]:
    """Number of planned inputs by split and name of the label."""
    names = {-1: unlabelled_name(labels), **dict(enumerate(labels))}
    counts: dict[str, Counter[str]] = {}
    for entry, split in planned:
        counts.setdefault(split, Counter())[names[entry.label]] += 1
    return counts
