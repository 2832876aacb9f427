"""`compact`: the whole of `facefeed compact`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich import filesize

from ..commit.adoption import adopt_files
from ..commit.finalize import (
    install_index,
    publish_manifest,
    record_plan_parts,
    remove_attempts,
    remove_superseded,
    renewed_manifest,
    write_index_or_quarantine,
)
from ..commit.lease import Lease, hold_lease
from ..commit.publish import refuse_read_only
from ..console import plural
from ..dataset.added_columns import ColumnSet, IncompleteSet, complete_sets, read_column_sets
from ..dataset.index import current_index_path
from ..dataset.manifest import Manifest, Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError, RefusedError, UsageError
from ..execution.capacity import num_workers_without_gpu
from ..files import refuse_address, stop_on_any_disk_error
from ..planning.plan import Plan, Unit
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
) -> CompactSummary:
    """Copies the rows of small files of the finished dataset `out` into large ones; called again, it resumes.

    The rows and those of added columns stay as they are, but for their order; the dataset's fingerprint changes. Until
    the end readers have the files that are there; then those are removed.

    Args:
        out: the dataset.
        target_mb: size in MB (10^6 bytes) that files are merged up to; those of half of it and more stay. None: 256.
        workers: threads; None: one per core as far as memory allows.
        on_progress: see `OnProgress`.
        on_wait: called with a sentence before a wait for a run that may have been killed.

    Raises:
        UsageError: `out` is no finished dataset; nothing was written.
        RefusedError: another run is at work on `out`, or did not come to its end, added columns lack rows of small
            files, or the disk lacks room for a copy of these; nothing was written.
        CorruptDataError: files are missing or damaged; found before anything is written, unless they were damaged
            since, or an earlier call was killed.
        StoppedError: the disk failed; merged files are kept, the same call resumes.

    """
    started = time.monotonic()
    for name, value in (("target_mb", target_mb), ("workers", workers)):
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name}={value!r}: must be a whole number of at least 1; leave it out for the default")
    out = Path(out)
    refuse_address(out, "files are merged in a folder: mount the store, or copy from and to it")
    paths = OutPaths(out)
    with stop_on_any_disk_error(out):
        finished_manifest(out, or_in_compaction=True)  # refuses before it waits for another run
        refuse_read_only(paths)
        with hold_lease(paths, on_wait, work="facefeed compact") as lease:
            compaction = _Compaction(paths, finished_manifest(out, or_in_compaction=True), lease)
            units = compaction.plan((target_mb or _DEFAULT_TARGET_MB) * 1_000_000, on_progress)
            merged_rows = compaction.merge(units, workers or num_workers_without_gpu(), on_progress)
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

    def __init__(self, paths: OutPaths, manifest: Manifest, lease: Lease) -> None:
        self._paths, self._manifest, self._lease = paths, manifest, lease
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
                self._refuse_full_disk(replaced)
                num_rows = sum(receipt.rows for receipt in replaced)
                check_files(self.run_state, replaced, self._column_sets(), lambda: on_progress(0, num_rows))
                record_plan_parts(self.run_state)
                self.run_state.plan.append(self._paths, part)
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

    def _refuse_full_disk(self, replaced: Sequence[Receipt]) -> None:
        needed = sum(receipt.bytes for receipt in replaced)
        free = shutil.disk_usage(self._paths.root).free
        if needed > free:
            raise RefusedError(
                f"{self._paths.root}: small files of {filesize.decimal(needed)} are copied before they are removed, "
                f"and {filesize.decimal(free)} are free; nothing was written: make room"
            )

    def merge(self, units: Sequence[Unit], num_workers: int, on_progress: OnProgress) -> int:
        """Merges `units`; returns their number of rows."""
        done, total = 0, sum(receipt.rows for unit in units for receipt in self._replaced(unit))
        schema = self._manifest.face_schema()
        if units:
            on_progress(0, total)
        with closing(merge_units(self.run_state, units, schema, num_workers)) as merged:
            for receipt in merged:
                done += receipt.rows
                on_progress(done, total)
        return done

    def _replaced(self, unit: Unit) -> Iterator[Receipt]:
        return self.run_state.receipts.superseded(unit)

    def finish(self) -> tuple[Manifest, list[IncompleteSet], int]:
        """Merges added columns, writes index and manifest, and removes the files that were merged.

        Also where an earlier call did all of this but for the removal. Returns the manifest, the sets of added columns
        that lack rows, and the number of files that were removed.
        """
        self._lease.check()
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
            if current_index_path(self._paths.root) == self._paths.next_index:  # a call ended before that
                install_index(self._paths)
            receipts = (receipt for _, _, receipt in self.run_state.finished_units())
            _, incomplete = complete_sets(self._paths.root, receipts)
        return manifest, incomplete, remove_superseded(self.run_state)

    def _column_sets(self) -> list[ColumnSet]:
        return [each for each in read_column_sets(self._paths.root) if not each.is_being_removed]

    def _merge_columns(self) -> None:
        sets = self._column_sets()
        own = {unit.unit_id for part in self._begun for unit in part.units}
        for planned, unit, receipt in self.run_state.finished_units() if sets else ():
            if planned.unit_id in own and receipt.file:
                for column_set in sets:
                    merge_columns(self.run_state, column_set, unit, receipt)
