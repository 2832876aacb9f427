"""`compact`: the whole of `facefeed compact`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich import filesize

from ..commit.adoption import adopt_files
from ..commit.file_system import limits_of_file_system
from ..commit.finalize import (
    install_index,
    publish_manifest,
    record_plan_parts,
    remove_attempts,
    remove_superseded,
    renewed_manifest,
    write_index_or_quarantine,
)
from ..commit.index_parts import files_to_index
from ..commit.lease import Lease, hold_lease
from ..commit.publish import refuse_read_only
from ..console import plural
from ..dataset.added_columns import ColumnSet, IncompleteSet, complete_sets, read_column_sets
from ..dataset.index import current_index_path
from ..dataset.index_builder import faces_of
from ..dataset.manifest import Manifest, Receipt
from ..dataset.out import OutPaths
from ..dataset.stores.remote_files import stop_where_refused
from ..dataset.stores.writing import open_out
from ..errors import CorruptDataError, RefusedError, UsageError
from ..execution.capacity import num_workers_without_gpu
from ..files import stop_on_any_disk_error
from ..planning.plan import Plan, PlanPart, Unit
from ..planning.run_state import RunState, finished_run_state
from ..verify.unfinished import finished_manifest
from .checking import check_files
from .grouping import plan_compaction
from .merged_columns import merge_columns
from .merging import merge_units

_DEFAULT_TARGET_MB: Final = 256

OnProgress = Callable[[int, int], object]
"""Called after each merged unit with the number of rows that are merged, and of all that are to be; what it raises ends
the run."""


@dataclass(frozen=True, kw_only=True)
class CompactSummary:
    """Result of `compact`.

    files_before, files: of the dataset. merged_rows: that this call copied, into `merged_files`. removed_files: that
    this call removed, with rows that others have. is_resumed: whether an earlier call had begun it, which chose what is
    merged. incomplete_columns: sets of added columns that lack rows, and so are not in the index.
    """

    files_before: int
    files: int
    merged_files: int
    merged_rows: int
    removed_files: int
    is_resumed: bool
    size_bytes: int
    incomplete_columns: list[IncompleteSet]
    seconds: float

    def figures(self) -> dict[str, Any]:
        """The values for `--json`."""
        return {
            "files_before": self.files_before,
            "files": self.files,
            "merged_files": self.merged_files,
            "merged_rows": self.merged_rows,
            "removed_files": self.removed_files,
            "resumed": self.is_resumed,
            "bytes": self.size_bytes,
            "incomplete_columns": [str(each) for each in self.incomplete_columns],
            "seconds": round(self.seconds, 2),
            "exit": 0,
        }


def compact(
    out: str | Path,
    *,
    target_mb: int | None = None,
    workers: int | None = None,
    on_progress: OnProgress = lambda *_: None,
    on_wait: Callable[[str], object] = lambda _: None,
    storage_options: Mapping[str, Any] | None = None,
) -> CompactSummary:
    """Copies the rows of small files of the finished dataset `out` into large ones; called again, it resumes.

    The rows and those of added columns stay as they are, but for their order; the dataset's fingerprint changes. Until
    the end readers have the files that are there; then those are removed.

    Args:
        out: the folder of the dataset, or its address in a store, such as "s3://bucket/faces".
        target_mb: size in MB (10^6 bytes) that files are merged up to; those of half of it and more stay. None: 256.
        workers: threads; None: one per core as far as memory allows.
        on_progress: see `OnProgress`.
        on_wait: called with a sentence before a wait for a run that may have been killed.
        storage_options: of the fsspec file system of `out` in a store; never printed.

    Raises:
        UsageError: `out` is no finished dataset; nothing was written.
        RefusedError: another run is at work on `out`, or did not come to its end, added columns lack rows of small
            files, or the disk lacks room: for a copy of these or, with `out` in a store, for what each thread merges
            and the file that it makes of that; nothing was written.
        CorruptDataError: files are missing or damaged; found before anything is written, unless they were damaged
            since, or an earlier call was killed.
        StoppedError: the disk failed, or the store does not answer, or refuses what it accepted before; merged files
            are kept, the same call resumes.

    """
    started = time.monotonic()
    for name, value in (("target_mb", target_mb), ("workers", workers)):
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name}={value!r}: must be a whole number of at least 1; leave it out for the default")
    with open_out(out, storage_options) as paths, stop_on_any_disk_error(paths.root):
        finished_manifest(paths, or_in_compaction=True)  # refuses before it waits for another run
        refuse_read_only(paths)
        with hold_lease(paths, on_wait, work="facefeed compact") as lease:
            paths.files.refresh()
            manifest = finished_manifest(paths, or_in_compaction=True)
            compaction = _Compaction(paths, manifest, lease, workers or num_workers_without_gpu())
            units = compaction.plan((target_mb or _DEFAULT_TARGET_MB) * 1_000_000, on_progress)
            with stop_where_refused("merged files"):
                merged_rows = compaction.merge(units, on_progress)
                manifest, incomplete, removed_files = compaction.finish()
            return CompactSummary(
                files_before=compaction.files_before, files=len(compaction.run_state.parquet_files()),
                merged_files=len(units), merged_rows=merged_rows, removed_files=removed_files,
                is_resumed=compaction.is_resumed, size_bytes=manifest.bytes, incomplete_columns=incomplete,
                seconds=time.monotonic() - started,
            )  # fmt: skip


class _Compaction:
    """The steps of one call of `compact`, in order.

    files_before: number of the dataset's files before any of it. is_resumed: whether an earlier call has begun it.
    """

    def __init__(self, paths: OutPaths, manifest: Manifest, lease: Lease, num_workers: int) -> None:
        self._paths, self._manifest, self._lease, self._num_workers = paths, manifest, lease, num_workers
        self.run_state = finished_run_state(paths, manifest)
        plan = self.run_state.plan
        covered = plan.parts[: manifest.plan_parts]  # all of them, where it is from before that was recorded
        self._begun = plan.parts[len(covered) :]
        self.is_resumed = bool(self._begun)
        self.files_before = len(RunState(paths, Plan(covered), self.run_state.config_hash).parquet_files())

    def plan(self, target_bytes: int, on_progress: OnProgress) -> list[Unit]:
        """The units that are to be merged: what an earlier call has left of its own, or the next part of the plan.

        Raises `RefusedError` where the disk lacks room or added columns lack rows, `CorruptDataError` where units of
        the dataset are not as they were finished. What `on_progress` raises ends the check of their files.
        """
        self._paths.temporary.mkdir(exist_ok=True)  # a copy of a dataset may lack it
        remove_attempts(self._paths)
        if self._begun:
            adopt_files(self.run_state)
        else:
            self._refuse_damaged()
            part = plan_compaction(self.run_state, target_bytes)
            if part.units:
                replaced = [receipt for unit in part.units for receipt in self._replaced(unit)]
                self._refuse_full_disk(part.units)
                if self._paths.files.is_remote:
                    limits_of_file_system(self._paths)  # refuses a store that overwrites what is to be created
                num_rows = sum(receipt.rows for receipt in replaced)
                check_files(self.run_state, replaced, self._column_sets(), lambda: on_progress(0, num_rows))
                record_plan_parts(self.run_state)
                self._append(part)
                self._begun = [part]
                self.run_state = RunState(self._paths, self.run_state.plan, self.run_state.config_hash)
        return self._pending(of_compaction=True)

    def _pending(self, *, of_compaction: bool) -> list[Unit]:
        own = {unit.unit_id for part in self._begun for unit in part.units}
        planned = (unit for unit in self.run_state.plan.units() if (unit.unit_id in own) == of_compaction)
        return [leaf for unit in planned for leaf, receipt in self.run_state.leaf_units(unit) if receipt is None]

    def _refuse_damaged(self) -> None:
        """Raises `CorruptDataError` where a unit of the dataset is not as it was finished."""
        if damaged := self._pending(of_compaction=False):
            raise CorruptDataError(
                f"{self._paths.root}: {plural(len(damaged), 'unit')} of it, for example {damaged[0].unit_id}, "
                f"{'is' if len(damaged) == 1 else 'are'} missing or damaged; run `facefeed verify {self._paths.root}`"
            )

    def _append(self, part: PlanPart) -> None:
        try:
            self.run_state.plan.append(self._paths, part)
        except FileExistsError as error:  # this one was paused until another had taken its lease
            raise RefusedError(f"{self._paths.place}: another run has planned meanwhile; run this again") from error

    def _refuse_full_disk(self, units: Sequence[Unit]) -> None:
        """In a folder, copies of all small files; of a store, those of the units at hand beside what they become.

        Added columns of one unit after the other are merged, once all rows are.
        """
        files, root, sets = self._paths.files, self._paths.root, self._column_sets()
        replaced = [[receipt for receipt in self._replaced(unit) if receipt.file] for unit in units]
        sizes = sorted((sum(receipt.bytes for receipt in receipts) for receipts in replaced), reverse=True)
        of_columns = [
            sum(files.size_bytes(column_set.unit_file(receipt.unit)) or 0 for receipt in receipts)
            for receipts in replaced
            for column_set in sets
        ]
        needed = sum(sizes) + sum(of_columns)
        if files.is_remote:
            needed = 2 * max([sum(sizes[: self._num_workers]), *of_columns])
        if needed > (free := shutil.disk_usage(root).free):
            what, remedy = "are copied before they are removed", "make room"
            if files.is_remote:
                what = f"and what they are merged into are in {root.parent} at a time"
                remedy += ", give fewer --workers or a smaller --target-mb, or set XDG_CACHE_HOME to another disk"
            raise RefusedError(
                f"{root}: small files of {filesize.decimal(needed)}{', with their added columns,' if sets else ''} "
                f"{what}, and {filesize.decimal(free)} are free; nothing was written: {remedy}"
            )

    def merge(self, units: Sequence[Unit], on_progress: OnProgress) -> int:
        """Merges `units`; returns their number of rows."""
        done, total = 0, sum(receipt.rows for unit in units for receipt in self._replaced(unit))
        schema = self._manifest.face_schema()
        if units:
            on_progress(0, total)
        try:
            with closing(merge_units(self.run_state, units, schema, self._num_workers)) as merged:
                for receipt in merged:
                    done += receipt.rows
                    on_progress(done, total)
        except CorruptDataError:
            self._lease.check()  # whoever has taken it may have merged these files, and removed them
            raise
        return done

    def _replaced(self, unit: Unit) -> Iterator[Receipt]:
        return self.run_state.receipts.superseded(unit)

    def finish(self) -> tuple[Manifest, list[IncompleteSet], int]:
        """Merges added columns, writes index and manifest, and removes the files that were merged.

        Also where an earlier call did all of this but for the removal. Returns the manifest, the sets of added columns
        that lack rows, and the number of files that were removed.
        """
        self._lease.check()
        self._paths.files.refresh()
        if self._begun:
            self._refuse_damaged()
        manifest = renewed_manifest(self.run_state, self._manifest, is_whole=True)
        if self._begun:
            if manifest.rows != self._manifest.rows:
                raise CorruptDataError(
                    f"{self._paths.root}: has {manifest.rows:,} rows once merged, and {self._manifest.rows:,} now; no "
                    f"file was removed; run `facefeed precompute SRC {self._paths.root}`, which computes what is "
                    "missing and finishes the compaction"
                )
            self._merge_columns()
            incomplete = write_index_or_quarantine(self.run_state, manifest, redoes_units=False)
            publish_manifest(self._paths, manifest)
        else:
            if self._paths.files.size_bytes(self._paths.next_index) is not None:  # a call ended before that
                self._paths.files.fetch([self._paths.index, self._paths.next_index])
                if current_index_path(self._paths.root) == self._paths.next_index:
                    install_index(self._paths)
            receipts = (receipt for _, _, receipt in self.run_state.finished_units())
            _, incomplete = complete_sets(self._paths, receipts)
        return manifest, incomplete, remove_superseded(self.run_state)

    def _column_sets(self) -> list[ColumnSet]:
        return [each for each in read_column_sets(self._paths) if not each.is_being_removed]

    def _merge_columns(self) -> None:
        sets = self._column_sets()
        own = {unit.unit_id for part in self._begun for unit in part.units}
        indexed = {name: path for path, name in files_to_index(self.run_state)} if sets else {}
        for planned, unit, receipt in self.run_state.finished_units() if sets else ():
            if planned.unit_id in own and receipt.file:
                read_faces = partial(faces_of, indexed[receipt.file])
                for column_set in sets:
                    merge_columns(self.run_state, column_set, unit, receipt, read_faces)
