"""The next part of the plan: units for what was added to the source, changed in it, or is to be tried again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...sources import Entry, Listing
from ..options import JobSpec
from ..plan import PlanPart, Unit, group_units
from ..run_state import RunState
from .added_splits import assign_added
from .changes import Changes
from .replaced_units import extend_changes, replacing_units


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
    planned = run_state.plan.planned_videos()
    assigned = assign_added(run_state, listing, changes, planned, job.options, allow_leaks=allow_leaks)
    added = [entry for entry in changes.added if entry.video_id in assigned.split_of]
    units = group_units(added, assigned.split_of, config_hash=job.config_hash, salt=salt, cost_seconds=cost_seconds)
    current = {entry.video_id: entry for entry in listing.entries if not entry.problem}
    replaced, redo = extend_changes(run_state, changes, planned, current, job, added=added, retry=retry)
    make = partial(Unit.make, config_hash=job.config_hash, salt=salt)
    return PlanPart(
        config=config,
        units=(*units, *replacing_units(run_state, replaced, redo, current, planned=planned, make=make)),
        source=job.source,
        dropped_identities=tuple(assigned.dropped_identities),
        mtime_updates={entry.video_id: entry.mtime_ns for entry in changes.touched},
        digest_updates={entry.video_id: entry.images_digest for entry in changes.touched if entry.images_digest},
    )
