"""The checks of `verify`: every row that the manifest records exists once, undamaged."""

from __future__ import annotations

import shlex
import tempfile
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..commit.finalize import renewed_manifest, superseded_units
from ..commit.publish import check_unit_file
from ..console import plural
from ..dataset.added_columns import ColumnSet
from ..dataset.index import Index, current_index_path, index_schema
from ..dataset.index.part import PART_SUFFIX, write_part
from ..dataset.index_builder import IndexBuilder
from ..dataset.manifest import Manifest, Receipt
from ..dataset.out import OutPaths
from ..dataset.schema import ROW_GROUP_ROWS, labels_of
from ..dataset.stores.writing import open_out
from ..errors import CorruptDataError, FacefeedError, StoppedError, UsageError
from ..files import files_below, raise_unless_damage, refuse_unmapped, sha256_of, stop_on_any_disk_error
from ..planning.options import hash_config
from ..planning.plan import Plan, Unit
from ..planning.receipts import lists_inputs_of
from ..planning.run_state import RecordedRunState, RunState
from .added_columns import check_added_columns
from .findings import RERUN, Finding, VerifyResult, errors_as_findings
from .unfinished import UnfinishedRun


def verify(
    out: str | Path,
    *,
    on_file: Callable[[str], None] = lambda _: None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyResult:
    """Reads every byte of the dataset; of an unfinished one, the files of all finished units.

    OUT may be the address of a store, of which one file after the other is fetched; `storage_options`: of its fsspec
    file system.

    A damaged page, a missing or unaccounted file, a duplicate row, an index or a manifest that contradicts the files:
    each is one `Finding`; consequences of a finding are not reported again. `on_file`: called with the name of each
    file before it is read. Raises `UsageError` where OUT holds no dataset, or its file system cannot map the index, and
    `StoppedError` where the disk fails.
    """
    with open_out(out, storage_options) as paths, stop_on_any_disk_error(paths.root):
        paths.files.fetch([paths.index, paths.next_index])
        if (index_file := current_index_path(paths.root)).is_file():
            refuse_unmapped(index_file)
        # Not those of the working copy, which a run on this host may be writing.
        is_remote = paths.files.is_remote
        with tempfile.TemporaryDirectory(prefix="facefeed-verify-") if is_remote else nullcontext("") as parts:
            return _verify(paths, Path(parts), on_file)


def _verify(paths: OutPaths, parts: Path, on_file: Callable[[str], None]) -> VerifyResult:
    """`parts`: a folder for parts of the index, which are made from the files of a store, as these are not kept."""
    kind, out = "manifest", paths.root
    try:
        if unfinished := UnfinishedRun.find(paths):
            return _check_unfinished(unfinished, parts, on_file)
        manifest = Manifest.read(out)
        kind = "plan"
        plan = Plan.load(paths)
        run_state = RecordedRunState(paths, plan, hash_config(manifest.config))
    except (UsageError, StoppedError):
        raise
    except Exception as error:
        raise_unless_damage(out, error)
        return VerifyResult(findings=[Finding(kind, paths.place, str(error))])
    result = VerifyResult()
    findings = result.findings
    lost_parts = list(_lost_parts(plan, manifest))
    findings += lost_parts
    files: list[tuple[Path, str]] = []
    units: list[Receipt] = []
    intact: set[str] = set()
    for planned in run_state.plan.units():
        owned = run_state.owned_videos(planned)
        for unit, receipt in _receipts(run_state, planned, findings):
            if receipt.file:
                on_file(receipt.file)
                if result.add(paths, receipt, _check_unit(paths, unit, receipt, owned, manifest, parts=parts)):
                    intact.add(receipt.unit)
                is_remote = paths.files.is_remote
                files.append((_part(parts, receipt) if is_remote else out / receipt.file, receipt.file))
                units.append(receipt)
    files.sort(key=lambda file: file[1])
    unaccounted = {Path(finding.location).stem for finding in findings if finding.kind == "receipt"}
    replaced = {unit.unit_id for unit in superseded_units(run_state)}
    findings += _files_left_of(replaced, run_state)
    if not lost_parts:
        findings += _unaccounted_files(paths, {name for _, name in files}, unaccounted | replaced)
    is_accounted = not (unaccounted or lost_parts)
    of_columns = list(check_added_columns(out, units, intact, replaced)) if is_accounted else []
    findings += of_columns
    findings += errors_as_findings(
        "index", out, "index.arrow",
        lambda: _check_index(out, manifest, files if is_accounted and not of_columns else None),
    )  # fmt: skip
    if is_accounted:
        findings += errors_as_findings("account", out, "manifest.json", lambda: _check_manifest(run_state, manifest))
    return result


def _lost_parts(plan: Plan, manifest: Manifest) -> Iterator[Finding]:
    """One finding where the plan lacks parts: nothing accounts for the files of their units then."""
    expected = manifest.plan_parts or 1
    if expected > len(plan.parts):
        detail = f"holds {plural(len(plan.parts), 'part')}, the manifest accounts for {expected}"
        yield Finding("plan", "plan", detail)


def _check_unfinished(unfinished: UnfinishedRun, parts: Path, on_file: Callable[[str], None]) -> VerifyResult:
    """Checks the files of finished units; a missing or damaged receipt means a pending unit, not a finding."""
    run_state = unfinished.run_state
    result = VerifyResult(unfinished=unfinished)
    for planned, unit, receipt in run_state.finished_units():
        if receipt.file:
            on_file(receipt.file)
            owned = run_state.owned_videos(planned)
            checks = _check_unit(run_state.paths, unit, receipt, owned, unfinished.manifest, parts=parts)
            result.add(run_state.paths, receipt, checks)
    return result


def _receipts(run_state: RunState, unit: Unit, findings: list[Finding]) -> Iterator[tuple[Unit, Receipt]]:
    """Yields the unit with its receipt or, where it was split, its halves; skips receipts that name another file."""
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
        findings.append(Finding("receipt", location, str(error)))
        return
    findings += [Finding("receipt", location, detail) for detail in details]
    if receipt is None:
        findings.append(Finding("receipt", location, f"missing; the unit has {len(unit.inputs)} inputs"))
    elif receipt.outcome == "split":
        for half in halves if len(unit.inputs) > 1 else ():
            yield from _receipts(run_state, half, findings)
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


def _check_unit(
    paths: OutPaths, unit: Unit, receipt: Receipt, owned: set[str], manifest: Manifest, *, parts: Path
) -> Iterator[Finding]:
    location = str(receipt.file)
    if paths.files.size_bytes(paths.root / location) is None:
        yield Finding("file", location, "missing")
        return
    with paths.files.local(paths.root / location) as path:
        yield from _check_file(path, unit, receipt, owned, manifest)
        if paths.files.is_remote:
            write_part(path, str(receipt.sha256), _part(parts, receipt))


def _part(parts: Path, receipt: Receipt) -> Path:
    return parts / f"{receipt.unit}{PART_SUFFIX}"


def _check_file(path: Path, unit: Unit, receipt: Receipt, owned: set[str], manifest: Manifest) -> Iterator[Finding]:
    location = str(receipt.file)
    if (size_bytes := path.stat().st_size) != receipt.bytes:
        yield Finding("size", location, f"is {size_bytes} bytes, the receipt says {receipt.bytes}")
    if sha256_of(path) != receipt.sha256:
        yield Finding("hash", location, "its SHA-256 is not the receipt's")
    check_unit_file(path, unit.unit_id, receipt.config_hash, receipt.rows)
    with pq.ParquetFile(path) as file:
        labels = tuple(manifest.labels)
        if not file.schema_arrow.equals(manifest.face_schema()) or labels_of(file.schema_arrow) != labels:
            yield Finding("schema", location, "is not the schema of this dataset")
            return
        yield from _check_rows(file, location, unit, receipt, owned)


def _check_rows(
    file: pq.ParquetFile, location: str, unit: Unit, receipt: Receipt, owned: set[str]
) -> Iterator[Finding]:
    for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS, columns=["face_id", "image", "image_crc32"]):
        for row in batch.to_pylist():
            if zlib.crc32(row["image"]) != row["image_crc32"]:
                yield Finding("image", f"{location}: {row['face_id']}", "its CRC-32 is not the stored one")
    ids = file.read(columns=["face_id", "video_id", "split"])
    if (duplicates := ids.num_rows - pc.count_distinct(ids["face_id"]).as_py()) > 0:
        yield Finding("duplicate", location, f"{duplicates} rows share a face_id with another")
    if (splits := set(ids["split"].unique().to_pylist())) - {unit.split}:
        yield Finding("split", location, f"holds rows of {', '.join(sorted(splits))}, belongs to {unit.split}")
    counted = {row["values"]: row["counts"] for row in ids["video_id"].value_counts().to_pylist()}
    recorded = {outcome.video_id: outcome.faces for outcome in receipt.inputs if outcome.faces}
    for video_id in sorted(counted.keys() | recorded.keys()):
        if counted.get(video_id, 0) != recorded.get(video_id, 0):
            detail = f"{counted.get(video_id, 0)} rows, the receipt says {recorded.get(video_id, 0)}"
            yield Finding("rows", f"{location}: {video_id}", detail)
        elif video_id not in owned:
            yield Finding("duplicate", f"{location}: {video_id}", "another unit holds this video too")


def _files_of_faces(paths: OutPaths) -> list[Path]:
    """None where the folder is missing: its files have findings of their own."""
    return paths.files.unit_files(paths.faces) if paths.files.is_remote or paths.faces.is_dir() else []


def _files_left_of(replaced: Container[str], run_state: RunState) -> Iterator[Finding]:
    """One finding on the files of replaced units, which the end of a run removes last."""
    paths = run_state.paths
    columns = files_below(paths.columns) if paths.columns.is_dir() else []
    files = (*_files_of_faces(paths), *(path for path in columns if path.suffix == ".parquet"))
    left = [path.relative_to(paths.root).as_posix() for path in files if path.stem in replaced]
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


def _check_index(out: Path, manifest: Manifest, files: Sequence[tuple[Path, str]] | None) -> Iterator[Finding]:
    """Rebuilds the index batch by batch and compares it with the stored one; damaged files are reported elsewhere.

    `files`: the dataset's files as `(path, name relative to OUT)`, None where receipts do not name all of them.
    """
    try:
        index = Index(out)
    except StoppedError:
        raise
    except FacefeedError as error:
        yield Finding("index", "index.arrow", str(error))
        return
    metadata = index.schema.metadata
    is_of_manifest = all(metadata.get(key, text) == text for key, text in manifest.face_schema().metadata.items())
    if not is_of_manifest or index.fingerprint != manifest.fingerprint or index.num_rows != manifest.rows:
        yield Finding("index", "index.arrow", "belongs to another state of the dataset")
        return
    if files is None:
        return
    try:
        added = [column_set for name in index.added if (column_set := ColumnSet.read(out, name)) is not None]
        builder = IndexBuilder(index_schema(manifest.face_schema(), manifest.fingerprint, added), files, added)
        with pa.memory_map(str(current_index_path(out))) as stored:
            same = _same_batches(builder.batches(), pa.ipc.open_file(stored))
    except CorruptDataError:
        return
    if not same:
        yield Finding("index", "index.arrow", "does not say what the files say")


def _same_batches(fresh: Iterator[pa.RecordBatch], stored: pa.RecordBatchFileReader) -> bool:
    number = 0
    for batch in fresh:
        if number == stored.num_record_batches:
            return False
        stored_batch = stored.get_batch(number)
        stored_batch.validate(full=True)  # before its offsets are used
        if not _with_float_bits(stored_batch).equals(_with_float_bits(batch)):
            return False
        number += 1
    return number == int(stored.num_record_batches)


def _with_float_bits(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the bits of floats as integers: a NaN does not equal itself."""
    types = [_with_float_bits_type(column.type) for column in batch.columns]
    columns = [
        column if column.type == type_ else column.view(type_)
        for column, type_ in zip(batch.columns, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _with_float_bits_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(type_):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bit_width]
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_with_float_bits_type(type_.value_type), type_.list_size)
    return pa.list_(_with_float_bits_type(type_.value_type)) if pa.types.is_list(type_) else type_


def _check_manifest(run_state: RunState, manifest: Manifest) -> Iterator[Finding]:
    expected = renewed_manifest(run_state, manifest)
    masks = ("faces_without_mask", "faces_with_own_mask", "own_masks_unused")
    for name in ("fingerprint", "splits", "units", "rows", "bytes", "inputs", "removed", *masks):
        recorded, counted = getattr(manifest, name), getattr(expected, name)
        if recorded != counted:
            yield Finding("account", "manifest.json", f"{name}: says {recorded}, the receipts say {counted}")
