"""The dry run: plans as the run would, tries a few inputs on the same workers, saves the forecast."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..errors import RefusedError
from ..execution.capacity import default_num_workers
from ..execution.progress import Progress
from ..planning.cost_model import MAX_HEADERS, CostModel
from ..planning.damage_limits import damage_limit_warnings
from ..planning.failure_limit import Failure, failures_in_source
from ..planning.incremental import Changes, find_changes, find_unchanged_content, next_plan_part
from ..planning.options import JobSpec
from ..planning.plan import Plan, PlanPart
from ..planning.run_state import RunState
from ..sources import Listing, listing_warnings
from ..splits.assignment import group_sizes
from ..video import MediaReader
from .forecast import Forecast, TrialConditions, forecast
from .forecast_cache import save_forecast
from .survey import Survey, by_split, play_hours, refused_by_reason
from .trials import TOTAL_TRIAL_SECONDS, Trials, sample_families, try_families

_MAX_HEADERS = 200
_MAX_NAMED = 100
_FINALIZE_FRACTION = 1.0
"""What index and manifest take, of what planning took: 0.3 to 1.7 s after 0.3 to 1.5 s in seven runs."""


@dataclass(frozen=True, kw_only=True)
class DryRunResult:
    """Result of a dry run.

    `pending`: number of inputs to process. `forecast`: None where there are none, or none could be tried.
    `known_failures`: number of inputs that have failed already, or fail before they are read. `tried`: number of inputs
    that were tried. `failures`: those of them that failed. `partial`: number of those with some damaged frames.
    `any_face`: whether a face was found, or OUT holds one already and keeps it.
    """

    survey: Survey
    pending: int
    forecast: Forecast | None
    known_failures: int
    tried: int
    failures: Sequence[Failure]
    partial: int
    any_face: bool
    seconds: float


def dry_run(
    job: JobSpec,
    listing: Listing,
    config: dict[str, Any],
    *,
    workers: int | None,
    scheduler: str | None,
    allow_leaks: bool,
    progress: Progress,
    retry: Callable[[str], bool] | None = None,
    listing_seconds: float = 0.0,
) -> DryRunResult:
    """What `precompute` would do and what that would take; writes nothing but the forecast in the user's cache.

    `retry`: which failures, by reason, would be done again. `listing_seconds`: how long it took to make `listing`.
    """
    started = time.monotonic()
    run_state = RunState(job.paths, Plan.load(job.paths), job.config_hash)
    changes = find_changes(
        listing,
        run_state.plan.planned_videos(),
        partial(find_unchanged_content, run_state, job.root, progress.comparing),
    )
    compared = time.monotonic()
    with MediaReader(job.limits) as reader:
        sound = [entry for entry in listing.entries if not entry.problem]
        cost = CostModel(sound, job.root, job.options.sampling, reader, max_headers=_MAX_HEADERS)
    # The run itself reads fewer headers.
    headers_seconds = (time.monotonic() - compared) * min(1.0, MAX_HEADERS / max(cost.headers_read, 1))
    damaged = damage_limit_warnings(run_state, job.limits.max_damaged_percent, listing, retry)
    part, leak = _part(run_state, listing, changes, cost, job=job, config=config, allow_leaks=allow_leaks, retry=retry)
    whole = RunState(job.paths, Plan([*run_state.plan.parts, part]), job.config_hash)
    units = list(whole.pending_units())
    survey = _survey(
        listing, changes, whole.plan, cost, new=sum(len(unit.inputs_to_decode) for unit in part.units), leak=leak
    )
    survey.caveats.extend(damaged)
    planning_seconds = listing_seconds + headers_seconds
    guess, trials = None, Trials()
    if units:
        count = workers or default_num_workers()
        progress.announce(f"trying inputs for up to {TOTAL_TRIAL_SECONDS:.0f} s")
        trials = try_families(job, sample_families(units), count, scheduler)
        if trials.families:
            here = {entry.video_id for entry in sound}
            conditions = TrialConditions(
                slots=trials.slots, background=trials.background,
                fixed_seconds=compared - started + (1 + _FINALIZE_FRACTION) * planning_seconds + trials.fixed_seconds,
            )  # fmt: skip
            guess = forecast(
                units, cost, trials.families, is_paired=lambda entry: entry.source_id in here, conditions=conditions,
                config=job.config_hash,
            )  # fmt: skip
            save_forecast(guess, job.out)
    return DryRunResult(
        survey=survey,
        pending=sum(len(unit.inputs_to_decode) for unit in units),
        forecast=guess,
        known_failures=len(failures_in_source(whole, changes.refused, changes.gone)),
        tried=trials.tried,
        failures=trials.failures(),
        partial=sum(trial.is_partial for family in trials.families for trial in family),
        any_face=(
            any(trial.faces for family in trials.families for trial in family)
            or any(receipt.rows for _, _, receipt in whole.finished_units())
            or any(unit.reuses for unit in units)
        ),
        seconds=time.monotonic() - started,
    )


def _part(
    run_state: RunState,
    listing: Listing,
    changes: Changes,
    cost: CostModel,
    *,
    job: JobSpec,
    config: dict[str, Any],
    allow_leaks: bool,
    retry: Callable[[str], bool] | None,
) -> tuple[PlanPart, str | None]:
    """The part that the run would append, and the leak that would keep it from doing so."""

    def planned(*, allow_leaks: bool) -> PlanPart:
        changes.refused[:] = [entry for entry in changes.refused if entry.problem != "bridges_splits"]
        return next_plan_part(
            run_state, listing, changes, config=config, ratio=job.options.split_ratio, seed=job.options.seed,
            allow_leaks=allow_leaks, retry=retry, max_damaged_percent=job.limits.max_damaged_percent,
            cost_seconds=lambda entry: cost(entry).seconds,
        )  # fmt: skip

    try:
        return planned(allow_leaks=allow_leaks), None
    except RefusedError as error:
        return planned(allow_leaks=True), str(error)


def _survey(listing: Listing, changes: Changes, plan: Plan, cost: CostModel, *, new: int, leak: str | None) -> Survey:
    held = [entry for entry, _ in plan.planned_videos().values()]
    here = {entry.video_id for entry in listing.entries if not entry.problem}
    sizes = group_sizes(held, plan.dropped_identities())
    return Survey(
        layout=listing.layout,
        inputs=len(listing.entries),
        new=new,
        size_bytes=sum(entry.size_bytes for entry in listing.entries),
        hours=play_hours(listing, cost),
        headers_read=cost.headers_read,
        by_split=by_split(list(plan.units()), listing.labels),
        groups=len(sizes),
        largest_group=max(sizes, default=0),
        dropped_identities=sorted(plan.dropped_identities()),
        leak=leak,
        refused=refused_by_reason(changes),
        missing=len(listing.missing),
        missing_files=listing.missing[:_MAX_NAMED],
        ignored=listing.ignored,
        caveats=listing_warnings(listing),
        fakes=sum(entry.source_id is not None for entry in listing.entries),
        without_original=sum(entry.source_id is not None and entry.source_id not in here for entry in listing.entries),
    )
