"""`add_columns` and `remove_columns`: the whole of `facefeed add` and `facefeed remove`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..commit.file_system import limits_of_file_system
from ..commit.finalize import install_index, remove_attempts, write_index_or_quarantine
from ..commit.lease import Lease, hold_lease
from ..commit.publish import refuse_read_only
from ..dataset.added_columns import (
    ColumnSet,
    IncompleteSet,
    lost_sets,
    names_of_sets,
    read_column_sets,
    refuse_lost_sets,
    units_of_set,
)
from ..dataset.index import Index, current_index_path
from ..dataset.manifest import Manifest, OtherVersionError
from ..dataset.out import OutPaths
from ..dataset.schema import DENSE_COLUMNS
from ..dataset.stores.remote_files import stop_where_refused
from ..dataset.stores.writing import open_out
from ..errors import CorruptDataError, FacefeedError, RefusedError, StoppedError, UsageError
from ..execution.capacity import num_workers_without_gpu, visible_gpus
from ..execution.cluster import exit_if_imported_by_worker
from ..files import (
    make_folder,
    stop_on_any_disk_error,
    stop_on_disk_error,
    sync_folder,
)
from ..planning.run_state import RunState, finished_run_state
from ..verify.unfinished import UnfinishedRun, finished_manifest
from .by_name import absolute_source, load_column_maker
from .landmarks import REPLACED, LandmarkColumns
from .maker import ColumnMaker, check_maker, describe
from .workers import LoadMaker, add_to_units

OnProgress = Callable[[int, int], object]
"""Called after each unit with the number of rows that have the columns, and that of all rows; what it raises ends the
run."""


@dataclass(frozen=True, kw_only=True)
class AddSummary:
    """Result of `add_columns`: `units` and `rows` that this run computed, and those that had the columns before.

    `columns`: names of the set's; `indexed`: those of them that the index has. `size_bytes`: of all of the set's files.
    """

    name: str
    fingerprint: str
    columns: list[str]
    indexed: list[str]
    units: int
    rows: int
    units_before: int
    rows_before: int
    size_bytes: int
    seconds: float

    def figures(self) -> dict[str, Any]:
        """The values for `--json`."""
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "columns": self.columns,
            "indexed": self.indexed,
            "units": self.units,
            "rows": self.rows,
            "units_before": self.units_before,
            "rows_before": self.rows_before,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 2),
            "exit": 0,
        }


def add_columns(
    out: str | Path,
    maker: str | ColumnMaker,
    *,
    workers: int | None = None,
    on_progress: OnProgress = lambda *_: None,
    on_wait: Callable[[str], object] = lambda _: None,
    storage_options: Mapping[str, Any] | None = None,
) -> AddSummary:
    """Computes columns for all rows of the finished dataset `out` from its stored crops; called again, it resumes.

    Args:
        out: the folder of the dataset, or its address in a store, such as "s3://bucket/faces".
        maker: "landmarks", "FILE.py:Class", or a `ColumnMaker`.
        workers: processes on this machine; None: one per GPU (of landmarks: none is used), else one per core as far as
            memory allows. One works in this process.
        on_progress: called with the rows that are done and all rows.
        on_wait: called with a sentence before a wait for a run that may have been killed.
        storage_options: of the fsspec file system of `out` in a store; never printed.

    Raises:
        UsageError: `out` is no finished dataset, or the maker cannot be used; nothing was written.
        RefusedError: the set exists with another fingerprint, the index has another set whose files are gone, or a run
            is at work on `out`.
        CorruptDataError: an image is damaged.
        StoppedError: the maker failed, a worker died, the disk is full, the store does not answer, files of finished
            units were not found again; finished units are kept, the same call resumes.

    """
    exit_if_imported_by_worker()
    started = time.monotonic()
    if workers is not None and workers < 1:
        raise UsageError(f"workers={workers}: must be at least 1; leave it out for one per core")
    load: LoadMaker
    if isinstance(maker, str):
        source, load = absolute_source(maker), partial(load_column_maker, maker)
    else:
        source, load = f"{describe(maker)}(...)", partial(_identity, maker)
    loaded = load()
    with _claimed(out, "facefeed add", on_wait, storage_options) as (run_state, manifest, lease):
        files, root = run_state.paths.files, run_state.paths.root
        column_set = _begin(loaded, source, manifest, run_state)
        units = [receipt for _, _, receipt in run_state.finished_units() if receipt.file]
        pending = [unit for unit in units if not column_set.has_file_for(unit)]
        rows = sum(unit.rows for unit in units)
        if rows != manifest.rows:
            raise CorruptDataError(
                f"{root}: its receipts account for {rows:,} rows, its manifest for {manifest.rows:,}; run `facefeed "
                f"verify {root}`"
            )
        rows_before = done = rows - sum(unit.rows for unit in pending)
        with stop_where_refused("finished units"):
            if pending:
                on_progress(done, rows)
                num_workers = workers or _default_num_workers(loaded)
                with closing(add_to_units(column_set, load, pending, num_workers)) as finished:
                    for unit in finished:
                        done += unit.rows
                        on_progress(done, rows)
            lease.check()
            if pending:
                files.refresh()  # other processes may have written
            if pending or not _is_indexed(column_set):
                incomplete = {each.column_set.name: each for each in _renew_index(run_state, manifest)}
                if column_set.name in incomplete:  # on a network mount, what one look finds another may miss
                    raise StoppedError(
                        f"{column_set.folder}: files are not there any more: {incomplete[column_set.name]}"
                    )
            elif current_index_path(root) == run_state.paths.next_index:  # a run ended before it had installed that
                install_index(run_state.paths)
        return AddSummary(
            name=column_set.name, fingerprint=column_set.fingerprint, columns=column_set.schema.names,
            indexed=[field.name for field in column_set.indexed_fields], units=len(pending),
            rows=rows - rows_before, units_before=len(units) - len(pending), rows_before=rows_before,
            size_bytes=sum(files.size_bytes(column_set.unit_file(unit.unit)) or 0 for unit in units),
            seconds=time.monotonic() - started,
        )  # fmt: skip


def remove_columns(
    out: str | Path,
    name: str,
    *,
    on_wait: Callable[[str], object] = lambda _: None,
    storage_options: Mapping[str, Any] | None = None,
) -> int:
    """Removes the set `name` of added columns from the dataset `out`; returns the number of its files.

    A call that was killed leaves a valid dataset; called again, it completes.
    From a dataset that is unfinished, or whose manifest is damaged, only a set is removed whose record cannot be read:
    with it, no run can finish, and the end of a run writes the manifest and the index.

    Args:
        out: the folder of the dataset, or its address in a store.
        name: of the set.
        on_wait: called with a sentence before a wait for a run that may have been killed.
        storage_options: of the fsspec file system of `out` in a store; never printed.

    Raises:
        UsageError: there is no such set.
        RefusedError: another run is at work on `out`, or the index has another set whose files are gone.

    """
    with open_out(out, storage_options) as paths, stop_on_any_disk_error(paths.root):
        if name in names_of_sets(paths) and _is_unreadable(paths, name) and _needs_a_run(paths):
            refuse_read_only(paths)
            with hold_lease(paths, on_wait, work="facefeed remove"):
                paths.temporary.mkdir(exist_ok=True)  # a copy of a dataset may lack it
                return _remove_folder(paths, name)
    with _claimed(out, "facefeed remove", on_wait, storage_options) as (run_state, manifest, _):
        paths = run_state.paths
        refuse_lost_sets(paths, other_than={name})
        if name not in names_of_sets(paths):
            if name not in lost_sets(paths):
                raise _no_such_set(paths, name, manifest)
            _renew_index(run_state, manifest)  # a call before was killed once it had removed the folder
            return 0
        column_set = None if _is_unreadable(paths, name) else ColumnSet.read(paths, name)
        if column_set is not None:
            record = replace(column_set, is_being_removed=True).to_json()
            paths.files.write(column_set.record, record, paths.temporary)
            _renew_index(run_state, manifest)
        files = _remove_folder(paths, name)
        if column_set is None:  # what the index had of it is not known
            _renew_index(run_state, manifest)
    return files


def _is_unreadable(paths: OutPaths, name: str) -> bool:
    try:
        ColumnSet.read(paths, name)
    except CorruptDataError:
        return True
    return False


def _needs_a_run(paths: OutPaths) -> bool:
    try:
        return UnfinishedRun.find(paths) is not None
    except OtherVersionError:  # its sets may be sound
        raise
    except CorruptDataError:
        return True


def _remove_folder(paths: OutPaths, name: str) -> int:
    """Removes the folder of a set; returns how many files of columns it had."""
    num_files = len(units_of_set(paths, name))
    paths.files.remove_folder(paths.columns / name, paths.temporary, last=paths.columns_record(name))
    if not paths.files.is_remote and not any(paths.columns.iterdir()):
        with stop_on_disk_error(paths.columns):
            paths.columns.rmdir()
            sync_folder(paths.root)
    return num_files


def _default_num_workers(maker: ColumnMaker) -> int:
    gpus = 0 if isinstance(maker, LandmarkColumns) else len(visible_gpus())
    return gpus or num_workers_without_gpu()


def _identity(maker: ColumnMaker) -> ColumnMaker:
    return maker


@contextmanager
def _claimed(
    out: str | Path, work: str, on_wait: Callable[[str], object], storage_options: Mapping[str, Any] | None
) -> Iterator[tuple[RunState, Manifest, Lease]]:
    """Holds the lease of a finished dataset; yields its state, its manifest and the lease.

    Raises `UsageError` where it may not be written to.
    """
    with open_out(out, storage_options) as paths, stop_on_any_disk_error(paths.root):
        finished_manifest(paths)  # refuses before it waits for another run
        refuse_read_only(paths)
        with hold_lease(paths, on_wait, work=work) as lease:
            paths.files.refresh()
            manifest = finished_manifest(paths)
            paths.temporary.mkdir(exist_ok=True)  # a copy of a dataset may lack it
            for folder in paths.temporary.glob("*.removed"):
                shutil.rmtree(folder)
            remove_attempts(paths)
            yield finished_run_state(paths, manifest), manifest, lease


def _begin(maker: ColumnMaker, source: str, manifest: Manifest, run_state: RunState) -> ColumnSet:
    """The set of the maker, as it is there or newly begun; refuses one of another fingerprint that has files."""
    faces, paths = manifest.face_schema(), run_state.paths
    is_dense, root = isinstance(maker, LandmarkColumns), paths.root
    if is_dense and not {*DENSE_COLUMNS}.isdisjoint(faces.names):
        raise UsageError(f"{root}: has dense landmarks already, from `precompute --landmarks mesh`; nothing to add")
    check_maker(maker, faces, read_column_sets(paths), {*REPLACED, *DENSE_COLUMNS} if is_dense else set())
    wanted = ColumnSet(
        paths=paths, name=maker.name, fingerprint=maker.fingerprint, source=source,
        schema=maker.columns.remove_metadata(),
    )  # fmt: skip
    existing = ColumnSet.read(paths, maker.name)
    if existing is not None and existing.is_being_removed:
        raise RefusedError(f"{root}: {maker.name!r} is half removed; run `facefeed remove {root} {maker.name}` first")
    refuse_lost_sets(paths, other_than={maker.name})
    if existing is not None and (existing.fingerprint, existing.schema) == (wanted.fingerprint, wanted.schema):
        return existing
    if existing is not None and units_of_set(paths, maker.name):
        was, now = existing.fingerprint, maker.fingerprint
        what = f"fingerprint {was!r} there, {now!r} now" if was != now else "other columns there than now"
        raise RefusedError(
            f"{root}: has added columns {maker.name!r} of another maker ({what}); nothing was written; run `facefeed "
            f"remove {root} {maker.name}` first, or give the maker another name"
        )
    if paths.files.is_remote:
        limits_of_file_system(paths)  # refuses a store that overwrites what is to be created
    with stop_on_disk_error(wanted.folder):
        for folder in (wanted.folder.parent, wanted.folder, wanted.folder / "_receipts"):
            make_folder(folder)
    paths.files.write(wanted.record, wanted.to_json(), paths.temporary)
    return wanted


def _is_indexed(column_set: ColumnSet) -> bool:
    paths = column_set.paths
    paths.files.fetch([paths.index, paths.next_index])
    try:
        return Index(paths.root).added.get(column_set.name) == column_set.fingerprint
    except FacefeedError:
        return False


def _renew_index(run_state: RunState, manifest: Manifest) -> list[IncompleteSet]:
    """Writes and installs the index; returns the sets of columns that lack files and so stay out."""
    incomplete = write_index_or_quarantine(run_state, manifest, redoes_units=False)
    install_index(run_state.paths)
    return incomplete


def _no_such_set(paths: OutPaths, name: str, manifest: Manifest) -> UsageError:
    names: Sequence[str] = [column_set.name for column_set in read_column_sets(paths)]
    there = f"it has {', '.join(names)}" if names else "it has none"
    stored = name in manifest.face_schema().names
    stays = f"; the column {name!r}, stored by precompute, cannot be removed: a new OUT could lack it" if stored else ""
    return UsageError(f"{paths.root}: has no added columns {name!r}; {there}{stays}")
