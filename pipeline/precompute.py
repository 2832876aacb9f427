"""`precompute`: lists inputs, plans units, processes them and writes the manifest; resumable at any point."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .commit.adoption import adopt_files
from .commit.file_system import limits_of_file_system
from .commit.finalize import (
    build_manifest,
    is_published,
    publish_manifest,
    quarantine_orphans,
    record_plan_parts,
    remove_attempts,
    remove_superseded,
    write_index_or_quarantine,
)
from .commit.lease import Lease, hold_lease
from .commit.publish import make_folders, remove_empty_folders_on_refusal
from .console import first_names, plural
from .dataset.added_columns import IncompleteSet, lost_set_warnings
from .dataset.manifest import Manifest
from .dataset.out import OutPaths
from .dataset.stores.remote_files import stop_where_refused
from .dataset.stores.writing import open_out
from .dryrun.forecast import Forecast, load_forecast
from .errors import RefusedError, StoppedError, UsageError
from .execution.batch_system import check_batch_system
from .execution.cluster import exit_if_imported_by_worker
from .execution.progress import Progress, Totals
from .execution.run_units import run_units
from .faces import FaceDetector
from .faces.landmarks import Landmarker
from .files import stop_on_any_disk_error
from .planning.content_hash import EqualContent, find_equal_content
from .planning.cost_model import CostModel
from .planning.damage_limits import damage_limit_warnings
from .planning.failure_limit import (
    Failure,
    FailureLimit,
    check_failures,
    collect_failures,
    failures_in_source,
    refuse_known_failures,
)
from .planning.incremental import (
    Changes,
    absence_warnings,
    compare_with_plan,
    divided_recordings,
    inputs_not_to_decode,
    next_plan_part,
)
from .planning.job_share import JobShare
from .planning.options import JobSpec, Options, hash_config
from .planning.plan import PlanPart
from .planning.recorded import RecordedDataset
from .planning.run_state import RunState, plan_to_continue
from .planning.validation import job_share_of, prepare_job, retry_predicate
from .planning.worker_options import check_cluster_options
from .sources import Layout, Listing, listing_warnings
from .splits.coverage import coverage_warnings
from .splits.people import spelling_warnings
from .stored_source.source import OpenSource, open_source
from .video import DecoderLimits, MediaReader


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Result of a run: the manifest and what this run did; `forecast`: that of a dry run of the same inputs.

    `part`: the part of the job that it did, None for all of it; `totals` and `seconds` are its own, everything else is
    of OUT. `kept`: inputs that are gone from the source, whose rows stay; `unreadable`: those that are there and cannot
    be read, whose rows stay too. `incomplete_columns`: sets of added columns that lack rows, and so are not in the
    index. `units_left`: of a part of a job, how many units other parts have not finished; while there are any,
    `manifest` counts what is finished so far, and is not on disk. `parts_at_work`: how many other parts were at work
    when this one ended. `equal_content`: inputs in OUT that have the same bytes, whichever run did them.
    """

    manifest: Manifest
    listing: Listing
    changes: Changes
    totals: Totals
    seconds: float
    orphans: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    dropped_identities: list[str] = field(default_factory=list)
    forecast: Forecast | None = None
    incomplete_columns: list[IncompleteSet] = field(default_factory=list)
    part: JobShare | None = None
    units_left: int = 0
    parts_at_work: int = 0
    equal_content: EqualContent = field(default_factory=lambda: EqualContent([], []))


def precompute(
    src: str | Path,
    out: str | Path,
    *,
    options: Options | None = None,
    layout: str | Layout = "auto",
    allow_roots: Sequence[str | Path] = (),
    workers: int | tuple[int, int] | None = None,
    scheduler: str | None = None,
    cluster: str | Callable[[], Any] | None = None,
    part: str | None = None,
    detector: str | FaceDetector = "mtcnn",
    landmarker: str | Landmarker = "template5",
    limits: DecoderLimits | None = None,
    retry_failed: str | None = None,
    max_failed: FailureLimit | None = None,
    splits: str | Path | None = None,
    columns: Sequence[str] = (),
    allow_leaks: bool = False,
    allow_unlabelled: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Turns the videos and images of `src` into the dataset `out`; called again, it resumes where it stopped.

    Args:
        src: a folder, or a table of inputs; or the address of one in a store, such as "s3://bucket/videos".
        out: the folder of the dataset, or its address in a store, such as "s3://bucket/faces".
        options: what the rows contain; None for the defaults.
        layout: a name, or a `Layout` (docs/guides/layouts.md).
        allow_roots: further folders that links in `src` and absolute paths in a table may lead into.
        workers: processes on this machine; None: one per core as far as memory allows, with GPUs at most 4 for each.
            With `cluster`: how many it is to have, or the least and the largest number.
        scheduler: address of a running Dask scheduler to use instead of a local cluster.
        cluster: "slurm", "pbs" or "sge" for workers that are its jobs, or a function that returns a Dask cluster
            object, which is closed at the end; without `workers`, with the workers that it has.
        part: "3/8" to process the third of eight shares of the units alone, beside other runs that process the others,
            on any host that sees `src` and `out`; the last to end finishes the dataset.
        detector: "mtcnn", "track", "yunet:FILE.onnx", "whole-frame", or a `FaceDetector`.
        landmarker: "template5", "mesh", or a `Landmarker`.
        limits: of the decoder; None for the defaults.
        retry_failed: a reason whose failed inputs are processed again; "" for all reasons.
        max_failed: how many inputs may fail; None for 1 %.
        splits: DeepfakeBench's dataset JSON, or a JSON of paths by split, in place of the source's own splits.
        columns: names of the source's own columns to store in each row: further labels, scores, names.
        allow_leaks: whether given splits may share originals or people.
        allow_unlabelled: whether more than half of the inputs of a new dataset may have no label.
        storage_options: of the fsspec file system of `src` and `out` in a store; never printed.
        progress: where progress is reported; None for nowhere.

    Raises:
        UsageError: an argument cannot be used; nothing was written.
        RefusedError: another config, another driver, a leak, or inputs without labels; for a part, also new or changed
            inputs while other parts are at work; nothing was written.
        StoppedError: stopped half-way; finished units are kept, the same call resumes.
        TooManyFailedError: more inputs failed than allowed, or no face was found; finished units are kept.
        CorruptDataError: OUT holds damaged files that this call does not compute again.

    """
    exit_if_imported_by_worker()
    started = time.monotonic()
    check_cluster_options(workers, scheduler, cluster, part)
    if isinstance(cluster, str):
        check_batch_system(cluster)
    retry, job_share = retry_predicate(retry_failed), job_share_of(part, retry_failed)
    if not isinstance(max_failed, FailureLimit | None):
        raise UsageError(f"max_failed={max_failed!r}: must be a FailureLimit; try FailureLimit.parse('1%')")
    progress = progress or Progress.silent()
    with (
        open_out(out, storage_options, on_listing=progress.announce) as paths,
        open_source(src, storage_options, on_listing=progress.announce) as source,
    ):
        with stop_on_any_disk_error(source.path):
            job, listing, config = prepare_job(
                source, paths, options=options, layout=layout, detector=detector, landmarker=landmarker,
                limits=limits, allow_roots=allow_roots, splits=splits, columns=columns, allow_leaks=allow_leaks,
                allow_unlabelled=allow_unlabelled,
            )  # fmt: skip
        run = _Run(
            source=source, paths=replace(paths, root=job.out), job=job, listing=listing, config=config, retry=retry,
            allow_leaks=allow_leaks, failure_limit=max_failed or FailureLimit(), job_share=job_share, progress=progress,
            workers=workers, scheduler=scheduler, cluster=cluster, started=started,
        )  # fmt: skip
        with stop_on_any_disk_error(job.out):
            return run.execute()


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The steps of one call of `precompute`, in order; `started`: when the call was, on the monotonic clock."""

    source: OpenSource
    paths: OutPaths
    job: JobSpec
    listing: Listing
    config: dict[str, Any]
    failure_limit: FailureLimit
    retry: Callable[[str], bool] | None
    allow_leaks: bool
    job_share: JobShare | None
    progress: Progress
    workers: int | tuple[int, int] | None
    scheduler: str | None
    cluster: str | Callable[[], Any] | None
    started: float

    def execute(self) -> Summary:
        """All steps."""
        job, progress = self.job, self.progress
        self.announce_source()
        make_folders(self.paths)
        expected = load_forecast(job.paths.place)
        with (
            remove_empty_folders_on_refusal(self.paths),
            hold_lease(self.paths, progress.on_wait, job_share=self.job_share, waits=self.cluster is not None) as lease,
        ):
            run_state = self.load_state()
            orphans = self.clean_up(run_state, lease)
            for limit in limits_of_file_system(self.paths):
                progress.warn(f"OUT={str(job.out)!r}: {limit}")
            changes = self.find_changes(run_state)
            run_state = run_state.with_gone(inputs_not_to_decode(run_state, changes))
            run_state = self.extend_plan(run_state, changes, lease)
            with stop_where_refused("finished units"):
                with lease.shared_with_parts():
                    totals = self.process_pending_units(run_state)
                self.paths.files.refresh()
                units_left = sum(1 for _ in run_state.pending_units())
                lease.check()
                parts_at_work = len(lease.parts_at_work())  # removes leases, as only the holder may
                manifest, failures, incomplete_columns = self.finalize(run_state, changes, units_left)
        with_rows = {*changes.gone} - run_state.without_rows(changes.gone)
        return Summary(
            manifest=manifest, part=self.job_share, units_left=units_left, parts_at_work=parts_at_work,
            listing=self.listing, changes=changes, totals=totals, orphans=orphans,
            seconds=time.monotonic() - self.started, failures=failures,
            kept=sorted(with_rows - changes.blocked), unreadable=sorted(with_rows & changes.blocked),
            partial=_partial_inputs(run_state) if manifest.inputs["partial"] else [],
            dropped_identities=sorted(run_state.plan.dropped_identities()),
            equal_content=find_equal_content(run_state, manifest.labels),
            forecast=_matching_forecast(expected, job, totals), incomplete_columns=incomplete_columns,
        )  # fmt: skip

    def announce_source(self) -> None:
        """Reports what the source holds, and what is odd about it."""
        listing, source = self.listing, self.source
        text = f"{source.address}: {len(listing.entries):,} inputs "
        text += f"(layout {listing.layout}: {listing.format_class_counts()})"
        if listing.clips:
            num_images = sum(entry.num_images for entry in listing.clips)
            text += f"; {plural(len(listing.clips), 'clip')} of {plural(num_images, 'image')}"
        if listing.missing:
            text += f"; {len(listing.missing):,} listed in metadata, but absent on disk"
        self.progress.announce(text)
        for warning in (*listing_warnings(listing), *source.warnings):
            self.progress.warn(warning)

    def load_state(self) -> RunState:
        """The state of OUT; refuses one of another config: another run may have planned it since `prepare_job`.

        Raises `CorruptDataError` as `plan_to_continue` does.
        """
        job = self.job
        self.paths.files.refresh()  # another run may have written to it since it was opened
        plan = plan_to_continue(self.paths, self.listing.entries)
        RecordedDataset(self.paths, plan).refuse_other(self.config)
        # It may have begun without clips of images, which this one has: then only the config's hash differs.
        if plan.parts and hash_config(plan.parts[0].config) != job.config_hash:
            raise RefusedError(f"{job.out}: another run has begun it meanwhile; run the same command again")
        return RunState(self.paths, plan, job.config_hash)

    def clean_up(self, run_state: RunState, lease: Lease) -> list[str]:
        """Finishes or removes what killed runs left, unless parts are at work; returns the files moved to `_tmp`."""
        if lease.parts_at_work():
            return []
        remove_attempts(self.paths)
        adopt_files(run_state)
        return quarantine_orphans(run_state)

    def find_changes(self, run_state: RunState) -> Changes:
        """Compares the source with OUT; refuses it where more inputs than allowed fail before they are read."""
        job, listing = self.job, self.listing
        changes = compare_with_plan(run_state, listing, job, self.progress.comparing)
        for text in (
            *absence_warnings(run_state, listing, changes),
            *divided_recordings(run_state.plan, changes.relinked),
            *damage_limit_warnings(run_state, job.limits.max_damaged_percent, listing, self.retry),
            *lost_set_warnings(run_state.paths),
        ):
            self.progress.warn(text)
        planned = run_state.unit_of_video
        total = len(planned) + sum(entry.video_id not in planned for entry in listing.entries)
        refuse_known_failures(collect_failures((), changes.refused), total, self.failure_limit, self.job_share)
        return changes

    def extend_plan(self, run_state: RunState, changes: Changes, lease: Lease) -> RunState:
        """Writes the next part of the plan, unless it is empty.

        Raises `TooManyFailedError` where known failures exceed the limit, `RefusedError` where parts of the job are at
        work: they follow the plan as it is.
        """
        part = self._next_part(run_state, changes)
        grows = part.units or part.mtime_updates or not run_state.plan.parts
        if grows and (at_work := lease.parts_at_work()):
            raise RefusedError(
                f"{self.job.out}: inputs are new or have changed since its plan was made, and "
                f"{plural(len(at_work), 'part')} of the job may be at work on that ({first_names(at_work, 3)}); run "
                "this again once they have ended (a minute later, if they were killed)"
            )
        grown = run_state.with_part(part) if grows else run_state
        if any(grown.pending_units()):  # before the plan grows: where nothing is done, a finished OUT stays finished
            failures, total = failures_in_source(grown, changes.refused, changes.removed)
            refuse_known_failures(failures, total, self.failure_limit, self.job_share)
        if grows:
            record_plan_parts(run_state)
            try:
                run_state.plan.append(run_state.paths, part)
            except FileExistsError as error:
                raise RefusedError(
                    f"{run_state.paths.place}: another run has planned meanwhile; run this again"
                ) from error
        planned = grown.plan.planned_videos().values()
        for text in (
            *coverage_warnings(planned, self.listing.labels, self.listing.misspelt_labels),
            *spelling_warnings(planned),
        ):
            self.progress.warn(text)
        return grown

    def _next_part(self, run_state: RunState, changes: Changes) -> PlanPart:
        """Plans the units that the changes need."""
        job = self.job
        readable = changes.added if job.stored_files is None else []  # in a store, each would have to be fetched
        with MediaReader(job.limits, job.roots) as reader:
            cost = CostModel(readable, job.root, job.options.sampling, reader)
        return next_plan_part(
            run_state, self.listing, changes, job=job, config=self.config, allow_leaks=self.allow_leaks,
            retry=self.retry, cost_seconds=lambda entry: cost(entry).seconds,
        )  # fmt: skip

    def process_pending_units(self, run_state: RunState) -> Totals:
        """Processes the units without a receipt, or this part's share of them, on a cluster of workers."""
        progress = self.progress
        pending, finished = run_state.pending_and_finished(self.job_share)
        done_before = sum(1 for _ in run_state.outcomes()) if pending and self.job_share is None else 0
        progress.expect(inputs=sum(len(unit.inputs_to_decode) for unit in pending), done_before=done_before)
        if pending:
            share = "" if self.job_share is None else f" of part {self.job_share}"
            progress.announce(f"{len(pending):,} of {plural(len(pending) + finished, 'unit')}{share} to do")
            run_units(
                self.job, pending, finished=finished, workers=self.workers, scheduler=self.scheduler,
                cluster=self.cluster, job_share=self.job_share, progress=progress,
            )  # fmt: skip
        return progress.totals

    def finalize(
        self, run_state: RunState, changes: Changes, units_left: int
    ) -> tuple[Manifest, list[Failure], list[IncompleteSet]]:
        """Writes index and manifest; returns the manifest, what has failed, and the added columns that lack rows now.

        Writes nothing where units are left to other parts of the job. Raises `TooManyFailedError` where more inputs
        failed than allowed, `StoppedError` where one of this run's own units is left.
        """
        out = run_state.paths.root
        # Of the whole job those that were found: a second look may see what the first one did not.
        left = units_left
        if left and self.job_share is not None:
            left = sum(1 for _ in run_state.pending_units(self.job_share))
        if left:
            raise StoppedError(
                f"{out}: {plural(left, 'unit')} without a receipt that this host can see; run the same command again"
            )
        config = run_state.plan.parts[0].config
        manifest = build_manifest(
            run_state, config, changes.refused, len(self.listing.missing), changes.removed, is_whole=not units_left
        )
        failures, _ = failures_in_source(run_state, changes.refused, changes.removed)
        if units_left:
            return manifest, failures, []
        quarantine_orphans(run_state)  # of units that were split in this run
        check_failures(manifest, failures, self.failure_limit, out, self.job_share)
        incomplete: list[IncompleteSet] = []
        if not is_published(run_state, manifest):
            incomplete = write_index_or_quarantine(run_state, manifest, redoes_units=True)
            publish_manifest(run_state.paths, manifest)
        remove_superseded(run_state)
        return manifest, failures, incomplete


def _partial_inputs(run_state: RunState) -> list[str]:
    return sorted(outcome.video_id for _, outcome in run_state.outcomes() if outcome.outcome == "partial")


def _matching_forecast(expected: Forecast | None, job: JobSpec, totals: Totals) -> Forecast | None:
    """The forecast, if it was made for the config and the inputs that this run processed."""
    return expected if expected and (expected.config, expected.inputs) == (job.config_hash, totals.inputs) else None
