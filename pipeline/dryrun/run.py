"""The dry run: plans as the run would, tries a few inputs on the same workers, saves the forecast."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..commit.publish import refuse_read_only
from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.out import OutPaths
from ..dataset.stores.writing import open_out
from ..errors import RefusedError
from ..execution.capacity import default_num_workers
from ..execution.progress import Progress
from ..planning.content_hash import conflicting_content_text, find_equal_content, repeated_content_text
from ..planning.cost_model import MAX_HEADERS, CostModel
from ..planning.damage_limits import damage_limit_warnings
from ..planning.failure_limit import Failure, failures_in_source
from ..planning.incremental import (
    absence_warnings,
    compare_with_plan,
    divided_recordings,
    inputs_not_to_decode,
    next_plan_part,
)
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..planning.run_state import RunState, plan_to_continue
from ..planning.validation import prepare_job, retry_predicate
from ..planning.worker_options import check_cluster_options
from ..sources import Listing
from ..stored_source.source import open_source
from ..video import MediaReader
from .forecast import Forecast, forecast, save_forecast
from .survey import Survey, existing_originals, survey_source
from .trials import TOTAL_TRIAL_SECONDS, Trials, sample_families, try_families

_MAX_HEADERS = 200
_FINALIZE_FRACTION = 1.0
"""What index and manifest take, of what planning took: 0.3 to 1.7 s after 0.3 to 1.5 s in seven runs."""


@dataclass(frozen=True, kw_only=True)
class DryRunResult:
    """Result of a dry run.

    `inputs_in_out`: number of inputs that OUT would have, with those that are gone from the source since, unless they
    failed.
    `pending`: number of inputs to process. `copied`: number of inputs whose rows in OUT are copied into new files.
    `forecast`: None where there are none to process, or none could be tried.
    `known_failures`: number of inputs that have failed already, or fail before they are read. `tried`: number of inputs
    that were tried. `failures`: those of them that failed. `partial`: number of those with some damaged frames.
    `any_face`: whether a face was found, or OUT holds one already and keeps it.
    """

    survey: Survey
    inputs_in_out: int
    pending: int
    copied: int
    forecast: Forecast | None
    known_failures: int
    tried: int
    failures: Sequence[Failure]
    partial: int
    any_face: bool
    seconds: float


def dry_run(
    src: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    retry_failed: str | None = None,
    allow_leaks: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> DryRunResult:
    """What `precompute` would do and what that would take; writes nothing but the forecast in the user's cache.

    Takes the arguments of `precompute`, except the number of inputs that may fail; `settings`: of `prepare_job`.
    Raises what `precompute` raises before it writes, except for a leak, and `StoppedError` if the cluster fails.
    """
    called = time.monotonic()
    check_cluster_options(workers, scheduler)
    progress, retry = progress or Progress.silent(), retry_predicate(retry_failed)
    with (
        open_out(out, storage_options, on_listing=progress.announce) as paths,
        open_source(src, storage_options, on_listing=progress.announce) as source,
    ):
        job, listing, config = prepare_job(source, paths, allow_leaks=allow_leaks, **settings)
        refuse_read_only(job.paths)
        return _dry_run(
            replace(paths, root=job.out), job, listing, config, warnings=source.warnings, called=called,
            workers=workers, scheduler=scheduler, retry=retry, allow_leaks=allow_leaks, progress=progress,
        )  # fmt: skip


def _dry_run(
    paths: OutPaths,
    job: JobSpec,
    listing: Listing,
    config: dict[str, Any],
    *,
    warnings: Sequence[str],
    called: float,
    workers: int | None,
    scheduler: str | None,
    retry: Callable[[str], bool] | None,
    allow_leaks: bool,
    progress: Progress,
) -> DryRunResult:
    """What is to be done of a source that is listed, with the `warnings` of what lies in a store.

    `called`: when the dry run began, on the monotonic clock.
    """
    listed = time.monotonic()
    run_state = RunState(paths, plan_to_continue(paths, listing.entries), job.config_hash)
    changes = compare_with_plan(run_state, listing, job, progress.comparing)
    run_state = run_state.with_gone(inputs_not_to_decode(run_state, changes))
    compared = time.monotonic()
    cost, headers_seconds = _read_headers(job, listing)
    equal = find_equal_content(run_state, listing.labels)
    caveats = [
        *warnings,
        *([conflicting_content_text(equal.conflicting)] if equal.conflicting else []),
        *([repeated_content_text(equal.repeated)] if equal.repeated else []),
        *absence_warnings(run_state, listing, changes),
        *divided_recordings(run_state.plan, changes.relinked),
        *damage_limit_warnings(run_state, job.limits.max_damaged_percent, listing, retry),
    ]
    plan_next = partial(
        next_plan_part, run_state, listing, changes, job=job, config=config, retry=retry,
        cost_seconds=lambda entry: cost(entry).seconds,
    )  # fmt: skip
    leak: str | None = None
    try:
        part = plan_next(allow_leaks=allow_leaks)
    except RefusedError as error:
        part, leak = plan_next(allow_leaks=True), str(error)
    planned = run_state.with_part(part)
    copied = [*planned.outcomes_to_reuse()]
    units = [*planned.pending_units()]
    planning_seconds = listed - called + headers_seconds
    originals = existing_originals(listing, job)
    trials, guess = _try_and_forecast(
        units, cost, job, originals, copied=copied, num_workers=workers or default_num_workers(), scheduler=scheduler,
        fixed_seconds=compared - listed + (1 + _FINALIZE_FRACTION) * planning_seconds, progress=progress,
    )  # fmt: skip
    known_failures, inputs_in_out = failures_in_source(planned, changes.refused, changes.removed)
    survey = survey_source(
        listing, changes, planned.plan, cost, pending=units, originals=originals,
        uncounted=planned.without_rows(changes.removed), leak=leak, caveats=caveats,
    )  # fmt: skip
    return DryRunResult(
        survey=survey,
        inputs_in_out=inputs_in_out,
        pending=sum(len(unit.inputs_to_decode) for unit in units),
        copied=len(copied),
        forecast=guess,
        known_failures=len(known_failures),
        tried=len(trials.probes) + len(trials.lost),
        failures=trials.failures(),
        partial=sum(probe.is_partial for probe in trials.probes),
        any_face=any(probe.faces for probe in trials.probes) or _keeps_rows(planned, copied),
        seconds=time.monotonic() - called,
    )


def _read_headers(job: JobSpec, listing: Listing) -> tuple[CostModel, float]:
    """Reads the headers of some inputs; returns what they cost, and the seconds that the run's fewer headers take."""
    started = time.monotonic()
    sound = [entry for entry in listing.entries if not entry.problem]
    if job.stored_files is not None:  # each would have to be fetched
        sound = []
    with MediaReader(job.limits, job.roots) as reader:
        cost = CostModel(sound, job.root, job.options.sampling, reader, max_headers=_MAX_HEADERS)
    return cost, (time.monotonic() - started) * min(1.0, MAX_HEADERS / max(cost.headers_read, 1))


def _keeps_rows(planned: RunState, copied: Sequence[tuple[Receipt, InputOutcome]]) -> bool:
    """Whether OUT has faces already whose rows stay, or are `copied`."""
    stay = any(receipt.rows for _, _, receipt in planned.finished_units())
    return stay or any(outcome.faces for _, outcome in copied)


def _try_and_forecast(
    units: Sequence[Unit],
    cost: CostModel,
    job: JobSpec,
    originals: Container[str],
    *,
    copied: Sequence[tuple[Receipt, InputOutcome]],
    num_workers: int,
    scheduler: str | None,
    fixed_seconds: float,
    progress: Progress,
) -> tuple[Trials, Forecast | None]:
    """Tries some inputs of `units`, if any are to be decoded; saves the forecast, if any could be tried.

    `originals`: `existing_originals` of the source. `copied`: see `RunState.outcomes_to_reuse`. `fixed_seconds`: what
    the run spends once, beside what the trials measure of that.
    """
    if not (families := sample_families(units)):
        return Trials(), None
    progress.announce(f"trying inputs for up to {TOTAL_TRIAL_SECONDS:.0f} s")
    trials = try_families(job, families, num_workers, scheduler)
    if not trials.families:
        return trials, None
    guess = forecast(
        units, cost, trials.families, copied=copied, workers=trials.workers,
        is_paired=lambda entry: entry.mask_id is None and entry.compared and entry.source_id in originals,
        fixed_seconds=fixed_seconds + trials.fixed_seconds, background=trials.background, config=job.config_hash,
    )  # fmt: skip
    save_forecast(guess, job.paths.place)
    return trials, guess
