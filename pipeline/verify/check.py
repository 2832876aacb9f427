"""The checks of `verify`: every row that the manifest records exists once, undamaged."""

from __future__ import annotations

import math
import shlex
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa

from ..commit.finalize import renewed_manifest, superseded_units
from ..console import plural
from ..dataset.added_columns import column_files
from ..dataset.index import current_index_path
from ..dataset.index.part import PART_SUFFIX
from ..dataset.index_builder import faces_of
from ..dataset.manifest import Manifest, Receipt
from ..dataset.out import OutPaths
from ..dataset.stores.address import is_address
from ..dataset.stores.writing import open_out
from ..errors import CorruptDataError, StoppedError, UsageError
from ..execution.capacity import num_workers_without_gpu
from ..files import raise_unless_damage, refuse_unmapped, stop_on_any_disk_error
from ..planning.options import hash_config
from ..planning.plan import Plan, Unit
from ..planning.receipts import lists_inputs_of
from ..planning.run_state import RecordedRunState, RunState
from ..planning.worker_options import check_cluster_options
from .added_columns import check_added_columns
from .findings import RERUN, Finding, VerifyResult, errors_as_findings
from .index_check import IndexedFile, check_index
from .ordered import OrderedMap, map_here
from .unfinished import UnfinishedRun
from .unit_check import Step, UnitToCheck, check_steps

_CHUNK_BYTES: Final = 256_000_000
"""Of the files that a worker checks at a time, or of a larger one."""
_CHUNK_STEPS: Final = 256
_WORKER_BYTES: Final = 2_000_000_000
"""Of files that are worth a worker: to start the workers takes as long as to read some GB."""


def verify(
    out: str | Path,
    *,
    workers: int | tuple[int, int] | Literal["auto"] | None = None,
    scheduler: str | None = None,
    cluster: str | Callable[[], Any] | None = None,
    on_file: Callable[[str], None] = lambda _: None,
    on_wait: Callable[[str], object] = lambda _: None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyResult:
    """Reads every byte of the dataset; of an unfinished one, the files of all finished units.

    A damaged page, a missing or unaccounted file, a duplicate row, an index or a manifest that contradicts the files:
    each is one `Finding`; consequences of a finding are not reported again. Findings and their order are the same
    wherever units are checked.

    Args:
        out: a folder, or the address of a store, of which each worker fetches one file after the other.
        workers: processes on this machine; 1 or None: this one alone. "auto", as the command has it: one per core as
            far as memory allows and per 2 GB of files, so that small datasets are checked here. With `cluster` as in
            `precompute`. A script that starts workers needs ``if __name__ == "__main__":``.
        scheduler: address of a running Dask scheduler to use instead, whose workers see `out`.
        cluster: as in `precompute`.
        on_file: called with the name of each file before it is read.
        on_wait: called with a sentence where workers are waited for, or some could not be started.
        storage_options: of the store's fsspec file system; never printed.

    Raises:
        UsageError: an argument cannot be used, OUT holds no dataset, or its file system cannot map the index.
        StoppedError: the disk or the cluster fails.

    """
    check_cluster_options(None if workers == "auto" else workers, scheduler, cluster)
    if isinstance(cluster, str):
        from ..execution.batch_system import check_batch_system  # noqa: PLC0415 (Dask)

        check_batch_system(cluster)
    if not (scheduler is None and cluster is None) and not (isinstance(out, str) and is_address(out)):
        out = Path(out).absolute()  # workers have other working directories
    with open_out(out, storage_options) as paths, stop_on_any_disk_error(paths.root):
        paths.files.fetch([paths.index, paths.next_index])
        if (index_file := current_index_path(paths.root)).is_file():
            refuse_unmapped(index_file)
        # Not those of the working copy, which a run on this host may be writing.
        is_remote = paths.files.is_remote
        with tempfile.TemporaryDirectory(prefix="facefeed-verify-") if is_remote else nullcontext("") as parts:
            start = partial(_start_workers, paths, workers, scheduler, cluster, on_wait=on_wait)
            result = _Verification(paths, Path(parts), start, on_file).result()
        if is_remote:  # the working copy is gone by then
            result.findings = [
                replace(each, detail=each.detail.replace(str(paths.root), paths.place)) for each in result.findings
            ]
        return result


@contextmanager
def _start_workers(
    paths: OutPaths,
    workers: int | tuple[int, int] | Literal["auto"] | None,
    scheduler: str | None,
    cluster: str | Callable[[], Any] | None,
    size_bytes: int,
    *,
    on_wait: Callable[[str], object],
) -> Iterator[OrderedMap]:
    """Yields what reads files; `size_bytes`: of all of them."""
    if workers == "auto":
        workers = min(num_workers_without_gpu(), max(1, size_bytes // _WORKER_BYTES))
    if workers in (1, None) and scheduler is None and cluster is None:
        yield map_here(paths)
        return
    from .workers import start_workers  # noqa: PLC0415 (Dask)

    num_chunks = math.ceil(size_bytes / _CHUNK_BYTES)
    with start_workers(paths, workers, scheduler, cluster, num_chunks=num_chunks, on_wait=on_wait) as run:
        yield run


class _Verification:
    """The steps of one call of `verify`, in order.

    `parts`: a folder for parts of the index, which are made from the files of a store, as these are not kept.
    """

    def __init__(
        self,
        paths: OutPaths,
        parts: Path,
        start: Callable[[int], AbstractContextManager[OrderedMap]],
        on_file: Callable[[str], None],
    ) -> None:
        self._paths, self._parts, self._start, self._on_file = paths, parts, start, on_file
        self._units: list[Receipt] = []  # with rows, and without their inputs
        self._intact: dict[str, str] = {}  # of those without findings, a digest of the ids of their faces

    def result(self) -> VerifyResult:
        """Checks the files, and then all that is said of them."""
        kind, out, paths = "manifest", self._paths.root, self._paths
        try:
            unfinished = UnfinishedRun.find(paths)
            manifest = unfinished.manifest if unfinished else Manifest.read(out)
            schema = manifest.face_schema()
            kind = "plan"
            plan = unfinished.run_state.plan if unfinished else Plan.load(paths)
        except (UsageError, StoppedError):
            raise
        except Exception as error:
            raise_unless_damage(out, error)
            is_no_file = kind == "manifest" and paths.manifest.exists() and not paths.manifest.is_file()
            remedy = f"remove it and {RERUN}" if is_no_file else None
            return VerifyResult(findings=[Finding(kind, paths.place, str(error), remedy)])
        with self._start(manifest.bytes) as run, stop_on_any_disk_error(out):
            if unfinished:
                result = VerifyResult(unfinished=unfinished)
                self._check_units(run, schema, _finished_steps(unfinished.run_state), result)
                return result
            run_state = RecordedRunState(paths, plan, hash_config(manifest.config))
            result = VerifyResult(findings=[*_lost_parts(plan, manifest)])
            has_lost_parts = bool(result.findings)
            self._check_units(run, schema, _steps(run_state), result)
            self._check_account(run, run_state, manifest, result.findings, has_lost_parts=has_lost_parts)
            return result

    def _check_units(self, run: OrderedMap, schema: pa.Schema, steps: Iterator[Step], result: VerifyResult) -> None:
        """Adds what the files of the units say."""
        for checked in chain.from_iterable(run(partial(check_steps, schema), _chunks(steps, self._on_file))):
            if isinstance(checked, Finding):
                result.findings.append(checked)
                continue
            result.add(checked)
            self._units.append(checked.receipt)
            if checked.faces is not None:
                self._intact[checked.receipt.unit] = checked.faces
            if checked.index_part is not None:
                self._part(checked.receipt).write_bytes(checked.index_part)

    def _part(self, receipt: Receipt) -> Path:
        return self._parts / f"{receipt.unit}{PART_SUFFIX}"

    def _check_account(
        self,
        run: OrderedMap,
        run_state: RunState,
        manifest: Manifest,
        findings: list[Finding],
        *,
        has_lost_parts: bool,
    ) -> None:
        paths, out = self._paths, self._paths.root
        unaccounted = {Path(finding.location).stem for finding in findings if finding.kind == "receipt"}
        replaced = {unit.unit_id for unit in superseded_units(run_state)}
        findings += _files_left_of(replaced, run_state)
        if not has_lost_parts:
            findings += _unaccounted_files(paths, {str(unit.file) for unit in self._units}, unaccounted | replaced)
        is_accounted = not (unaccounted or has_lost_parts)
        parts = OutPaths(self._parts)  # of the index, of a store
        of_columns: list[Finding] = []
        if is_accounted:
            of_columns += check_added_columns(paths, self._units, self._intact, replaced, run, parts=parts)
        findings += of_columns
        files = self._files_to_index() if is_accounted and not of_columns else None
        checks = partial(check_index, paths, manifest, files, run)
        if paths.files.is_remote:
            checks = partial(check_index, paths, manifest, files, map_here(paths), parts)
        findings += errors_as_findings("index", out, "index.arrow", checks)
        if is_accounted:
            findings += errors_as_findings(
                "account", out, "manifest.json", lambda: _check_manifest(run_state, manifest)
            )

    def _files_to_index(self) -> list[IndexedFile] | None:
        """The dataset's files, or their parts of the index, in its order; None where one cannot be read."""
        files: list[IndexedFile] = []
        first_row = 0
        for unit in sorted(self._units, key=lambda unit: str(unit.file)):
            path = self._part(unit) if self._paths.files.is_remote else self._paths.root / str(unit.file)
            try:
                rows = unit.rows if unit.unit in self._intact else len(faces_of(path))
            except CorruptDataError:
                return None
            files.append(IndexedFile(path=path, location=str(unit.file), first_row=first_row, rows=rows))
            first_row += rows
        return files


def _chunks(steps: Iterator[Step], on_file: Callable[[str], None]) -> Iterator[list[Step]]:
    """Groups steps by the size of their files; announces each file."""
    chunk: list[Step] = []
    size_bytes = 0
    for step in steps:
        chunk.append(step)
        if isinstance(step, UnitToCheck):
            on_file(step.location)
            size_bytes += step.receipt.bytes
        if size_bytes >= _CHUNK_BYTES or len(chunk) >= _CHUNK_STEPS:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _lost_parts(plan: Plan, manifest: Manifest) -> Iterator[Finding]:
    """One finding where the plan lacks parts: nothing accounts for the files of their units then."""
    expected = manifest.plan_parts or 1
    if expected > len(plan.parts):
        detail = f"holds {plural(len(plan.parts), 'part')}, the manifest accounts for {expected}"
        yield Finding("plan", "plan", detail)


def _finished_steps(run_state: RunState) -> Iterator[Step]:
    """The finished units of an unfinished run; a missing or damaged receipt means a pending unit, not a finding."""
    for planned, unit, receipt in run_state.finished_units():
        if receipt.file:
            yield UnitToCheck.of(unit, receipt, run_state.owned_videos(planned))


def _steps(run_state: RunState) -> Iterator[Step]:
    """The units of a finished run that have rows, and findings on receipts."""
    for planned in run_state.plan.units():
        owned = run_state.owned_videos(planned)
        for each in _receipts(run_state, planned):
            if isinstance(each, Finding):
                yield each
            elif each[1].file:
                yield UnitToCheck.of(*each, owned)


def _receipts(run_state: RunState, unit: Unit) -> Iterator[Finding | tuple[Unit, Receipt]]:
    """The unit with its receipt or, where it was split, its halves; skips receipts that name another file."""
    location = f"receipts/{unit.unit_id}.json"
    try:
        receipt = run_state.receipt(unit)
        halves = unit.halves(run_state.config_hash)
        file = run_state.paths.unit_file(unit.split, unit.unit_id).relative_to(run_state.paths.root).as_posix()
        details = [] if receipt is None else list(_check_receipt(receipt, unit, halves, file))
    except StoppedError:
        raise
    except Exception as error:
        raise_unless_damage(run_state.paths.root / location, error)
        yield Finding("receipt", location, str(error))
        return
    yield from (Finding("receipt", location, detail) for detail in details)
    if receipt is None:
        yield Finding("receipt", location, f"missing; the unit has {len(unit.inputs)} inputs")
    elif receipt.outcome == "split":
        for half in halves if len(unit.inputs) > 1 else ():
            yield from _receipts(run_state, half)
    elif receipt.file in {None, file}:
        yield unit, receipt


def _check_receipt(receipt: Receipt, unit: Unit, halves: Sequence[Unit], file: str) -> Iterator[str]:
    if receipt.outcome == "split":
        if len(unit.inputs) < 2 or receipt.children != [half.unit_id for half in halves]:
            yield "its children are not the halves of the plan's unit"
        return
    if receipt.outcome != "done":
        yield f"its outcome is {receipt.outcome}, must be done or split"
    if receipt.file != (file if receipt.rows else None):
        yield f"its file is {receipt.file}, the {receipt.rows} rows of the unit belong into {file}"
    if not lists_inputs_of(unit, receipt):
        yield "its inputs are not those of the plan"


def _files_of_faces(paths: OutPaths) -> list[Path]:
    """None where the folder is missing: its files have findings of their own."""
    return paths.files.unit_files(paths.faces) if paths.files.is_remote or paths.faces.is_dir() else []


def _files_left_of(replaced: Container[str], run_state: RunState) -> Iterator[Finding]:
    """One finding on the files of replaced units, which the end of a run removes last."""
    paths = run_state.paths
    files = (*_files_of_faces(paths), *column_files(paths))
    left = [paths.name_of(path) for path in files if path.stem in replaced]
    if left:
        is_compaction = run_state.plan.parts[-1].is_compaction
        command = f"run `facefeed compact {shlex.quote(paths.place)}`" if is_compaction else RERUN
        detail = (
            "is left of a unit that was replaced"
            f"{f', and {len(left) - 1:,} more' if len(left) > 1 else ''}: readers of the folder see rows twice"
        )
        yield Finding("unknown-file", left[0], detail, f"{command}, which removes them")


def _unaccounted_files(paths: OutPaths, names: set[str], known: set[str]) -> Iterator[Finding]:
    """Files that are neither among `names` nor of the `known` units, which have findings of their own."""
    for path in _files_of_faces(paths):
        name = path.relative_to(paths.root).as_posix()
        if name not in names and path.stem not in known:
            yield Finding("unknown-file", name, "no receipt accounts for it; readers would see its rows")


def _check_manifest(run_state: RunState, manifest: Manifest) -> Iterator[Finding]:
    with_rows = {name: counts for name, counts in manifest.splits.items() if counts.get("rows")}  # others once were in
    manifest, expected = replace(manifest, splits=with_rows), renewed_manifest(run_state, manifest)
    masks = ("faces_without_mask", "faces_with_own_mask", "own_masks_unused")
    for name in ("fingerprint", "splits", "units", "rows", "bytes", "inputs", "removed", *masks):
        recorded, counted = getattr(manifest, name), getattr(expected, name)
        if recorded != counted:
            yield Finding("account", "manifest.json", f"{name}: says {recorded}, the receipts say {counted}")
