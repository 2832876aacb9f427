"""The check behind `verify`: everything that the manifest promises is there, whole, and once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..commit.finalize import account, put_index, write_index
from ..commit.publish import check_file, sha256_of
from ..console import plural
from ..dataset.index import Index, IndexBuilder, index_file, index_schema
from ..dataset.manifest import Manifest, OutPaths, Receipt
from ..dataset.schema import ROW_GROUP_ROWS, face_schema, labels_of
from ..errors import CorruptDataError, FacefeedError, Reason, StoppedError, UsageError
from ..planning.options import hash_config
from ..planning.plan import Plan, Unit
from ..planning.run_state import RecordedRunState, RunState
from ..sources import Entry
from .findings import Finding, Verdict, guarded
from .unfinished import Unfinished


def rebuild(out: Path) -> bool:
    """Makes ``OUT/index.arrow`` anew from the files, if they are those of the manifest; says whether it did.

    Otherwise the index stays as it is, and `verify` says what is wrong: an index of fewer rows must not pass for
    that of the whole dataset. Raises `UsageError` where OUT holds no dataset, or one that is not finished.
    """
    try:
        if unfinished := Unfinished.of(out):
            raise UsageError(
                "\n".join([f"{out}: {unfinished.state}", "the index is made at its end", *unfinished.remarks])
            )
        manifest = Manifest.read(out)
        paths = OutPaths(out)
        run_state = RunState(paths, Plan.load(paths), hash_config(manifest.config))
        if run_state.fingerprint() != manifest.fingerprint:
            return False
        write_index(paths, run_state.tables(), manifest.labels, manifest.fingerprint)
        put_index(paths)
    except (UsageError, StoppedError):
        raise
    except Exception:  # as in `guarded`
        return False
    return True


def verify(out: Path, *, on_file: Callable[[str], None] = lambda _: None) -> Verdict:
    """Reads every byte of the dataset; raises `UsageError` where OUT holds none, and reports all else.

    Of one that is not finished, the files of all finished units.

    A page that is damaged, a file that is missing or too many, a row that appears twice, an index or a manifest
    that does not say what the files say: each is one `Finding`, and what only follows from one is none.
    """
    what, paths = "manifest", OutPaths(out)
    try:
        if unfinished := Unfinished.of(out):
            return _check_unfinished(unfinished, on_file)
        manifest = Manifest.read(out)
        what = "plan"
        plan = Plan.load(paths)
        run_state = RecordedRunState(paths, plan, hash_config(manifest.config))
    except UsageError:
        raise
    except Exception as error:
        return Verdict(findings=[Finding(what, str(out), str(error))])
    verdict = Verdict()
    found = verdict.findings
    if (manifest.plan_parts or 0) > len(plan.parts):
        detail = f"holds {plural(len(plan.parts), 'part')}, the manifest accounts for {manifest.plan_parts}"
        found.append(Finding("plan", "plan", detail))
    tables: list[tuple[Path, str]] = []
    for planned in run_state.plan.units():
        owned = {entry.video_id for entry in planned.inputs if run_state.owner[entry.video_id] == planned.unit_id}
        for unit, receipt in _receipts(run_state, planned, found):
            if receipt.file:
                on_file(receipt.file)
                verdict.add(receipt, _check_unit(out / receipt.file, unit, receipt, owned, manifest))
                tables.append((out / receipt.file, receipt.file))
    tables.sort(key=lambda one: one[1])
    unaccounted = {Path(one.where).stem for one in found if one.what == "receipt"}
    found += _strangers(paths, {name for _, name in tables}, unaccounted)
    found += guarded("index", "index.arrow", lambda: _check_index(out, manifest, None if unaccounted else tables))
    if not unaccounted:
        found += guarded("account", "manifest.json", lambda: _check_account(run_state, manifest))
    return verdict


def _check_unfinished(unfinished: Unfinished, on_file: Callable[[str], None]) -> Verdict:
    """Units whose receipt is missing or damaged are left to do: no finding."""
    run_state = unfinished.run_state
    verdict = Verdict(unfinished=unfinished)
    for planned, unit, receipt in run_state.done():
        if receipt.file:
            on_file(receipt.file)
            owned = {entry.video_id for entry in planned.inputs if run_state.owner[entry.video_id] == planned.unit_id}
            path = run_state.paths.root / receipt.file
            verdict.add(receipt, _check_unit(path, unit, receipt, owned, unfinished.manifest))
    return verdict


def _receipts(run_state: RunState, unit: Unit, findings: list[Finding]) -> Iterator[tuple[Unit, Receipt]]:
    """The unit's receipt or, where it was split, those of its halves; none that names a file other than its own."""
    where = f"receipts/{unit.unit_id}.json"
    try:
        receipt = run_state.receipt(unit)
        halves = unit.halves(run_state.config_hash)
        file = run_state.paths.unit_file(unit.split, unit.unit_id).relative_to(run_state.paths.root).as_posix()
        complaints = [] if receipt is None else list(_check_receipt(receipt, unit, halves, file))
    except Exception as error:
        findings.append(Finding("receipt", where, str(error)))
        return
    findings += [Finding("receipt", where, complaint) for complaint in complaints]
    if receipt is None:
        findings.append(Finding("receipt", where, f"missing; the unit has {len(unit.inputs)} inputs"))
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
    if sorted(one.video_id for one in receipt.inputs) != sorted(entry.video_id for entry in unit.inputs):
        yield "its inputs are not those of the plan"


def _check_unit(path: Path, unit: Unit, receipt: Receipt, owned: set[str], manifest: Manifest) -> Iterator[Finding]:
    where = str(receipt.file)
    if not path.is_file():
        yield Finding("file", where, "missing")
        return
    if (size_bytes := path.stat().st_size) != receipt.bytes:
        yield Finding("size", where, f"is {size_bytes} bytes, the receipt says {receipt.bytes}")
    if sha256_of(path) != receipt.sha256:
        yield Finding("hash", where, "its SHA-256 is not the receipt's")
    check_file(path, unit.unit_id, receipt.config_hash, receipt.rows)
    with pq.ParquetFile(path) as file:
        labels = tuple(manifest.labels)
        if not file.schema_arrow.equals(face_schema(labels)) or labels_of(file.schema_arrow) != labels:
            yield Finding("schema", where, "is not the schema of this dataset")
            return
        yield from _check_rows(file, where, unit, receipt, owned)


def _check_rows(file: pq.ParquetFile, where: str, unit: Unit, receipt: Receipt, owned: set[str]) -> Iterator[Finding]:
    for batch in file.iter_batches(batch_size=ROW_GROUP_ROWS, columns=["face_id", "image", "image_crc32"]):
        for row in batch.to_pylist():
            if zlib.crc32(row["image"]) != row["image_crc32"]:
                yield Finding("image", f"{where}: {row['face_id']}", "its CRC-32 is not the stored one")
    ids = file.read(columns=["face_id", "video_id", "split"])
    if (twice := ids.num_rows - pc.count_distinct(ids["face_id"]).as_py()) > 0:
        yield Finding("duplicate", where, f"{twice} rows share a face_id with another")
    if (found := set(ids["split"].unique().to_pylist())) - {unit.split}:
        yield Finding("split", where, f"holds rows of {', '.join(sorted(found))}, belongs to {unit.split}")
    counted = {row["values"]: row["counts"] for row in ids["video_id"].value_counts().to_pylist()}
    said = {one.video_id: one.faces for one in receipt.inputs if one.faces}
    for video_id in sorted(counted.keys() | said.keys()):
        if counted.get(video_id, 0) != said.get(video_id, 0):
            detail = f"{counted.get(video_id, 0)} rows, the receipt says {said.get(video_id, 0)}"
            yield Finding("rows", f"{where}: {video_id}", detail)
        elif video_id not in owned:
            yield Finding("duplicate", f"{where}: {video_id}", "another unit holds this video too")


def _strangers(paths: OutPaths, names: set[str], unaccounted: set[str]) -> Iterator[Finding]:
    """Files that are not among `names`, nor of a unit whose receipt has a finding of its own."""
    for path in sorted(paths.faces.rglob("*")):
        name = path.relative_to(paths.root).as_posix()
        if path.is_file() and name not in names and path.stem not in unaccounted:
            yield Finding("stranger", name, "no receipt accounts for it; readers would see its rows")


def _check_index(out: Path, manifest: Manifest, tables: Sequence[tuple[Path, str]] | None) -> Iterator[Finding]:
    """Makes the index anew, batch by batch, and compares all of it; a damaged file has a finding of its own.

    `tables`: the dataset's files, None where receipts do not say all of them.
    """
    try:
        index = Index(out)
    except FacefeedError as error:
        yield Finding("index", "index.arrow", str(error))
        return
    if index.fingerprint != manifest.fingerprint or index.num_rows != manifest.rows:
        yield Finding("index", "index.arrow", "belongs to another state of the dataset")
        return
    if tables is None:
        return
    try:
        builder = IndexBuilder(index_schema(manifest.labels, manifest.fingerprint), tables)
        with pa.memory_map(str(index_file(out))) as stored:
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
        held = stored.get_batch(number)
        held.validate(full=True)  # before anything follows its offsets
        if not held.equals(batch):
            return False
        number += 1
    return number == int(stored.num_record_batches)


def _check_account(run_state: RunState, manifest: Manifest) -> Iterator[Finding]:
    refused = [
        Entry(video_id=str(one["video_id"]), problem=cast("Reason", one["reason"]), detail=one["detail"])
        for one in manifest.refused
    ]
    again = account(run_state, manifest.config, refused, manifest.inputs["missing"])
    for name in ("fingerprint", "splits", "units", "rows", "bytes", "inputs"):
        said, counted = getattr(manifest, name), getattr(again, name)
        if said != counted:
            yield Finding("account", "manifest.json", f"{name}: says {said}, the receipts say {counted}")
