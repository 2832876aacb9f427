"""`verify`: is everything that the manifest promises there, whole, and once?"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .commit import check_file, sha256_of
from .errors import CorruptDataError, FacefeedError, Reason
from .finish import account, write_index
from .index import Index, IndexWriter, index_schema
from .job import config_hash
from .ledger import Ledger
from .manifest import Manifest, OutPaths, Receipt
from .plan import Plan, Unit
from .schema import ROW_GROUP_ROWS, face_schema, labels_of
from .sources import Entry


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: what kind, where, and what was seen."""

    what: str
    where: str
    detail: str


@dataclass(kw_only=True)
class Verdict:
    """What was checked and what was found; an empty list of findings means whole."""

    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "files": self.files,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "findings": [{"what": one.what, "where": one.where, "detail": one.detail} for one in self.findings],
            "exit": 1 if self.findings else 0,
        }


def _open(out: Path) -> tuple[Manifest, Ledger]:
    manifest = Manifest.read(out)
    paths = OutPaths(out)
    return manifest, Ledger(paths, Plan.load(paths), config_hash(manifest.config))


def rebuild(out: Path) -> int:
    """Makes ``OUT/index.arrow`` anew from the files; returns its number of rows."""
    manifest, ledger = _open(out)
    return write_index(ledger.paths, ledger.tables(), manifest.labels, manifest.fingerprint)


def verify(out: Path, *, on_file: Callable[[str], None] = lambda _: None) -> Verdict:
    """Reads every byte of the dataset; raises `UsageError` where OUT holds none, and reports all else.

    A page that is damaged, a file that is missing or too many, a row that appears twice, an index or a manifest
    that does not say what the files say: each is one `Finding`.
    """
    try:
        manifest, ledger = _open(out)
    except CorruptDataError as error:
        return Verdict(findings=[Finding("manifest", str(out), str(error))])
    verdict = Verdict()
    tables: list[tuple[Path, str]] = []
    for planned in ledger.plan.units():
        owned = {entry.video_id for entry in planned.inputs if ledger.owner[entry.video_id] == planned.unit}
        for unit, receipt in _receipts(ledger, planned, verdict):
            if receipt.file:
                on_file(receipt.file)
                path = out / receipt.file
                tables.append((path, receipt.file))
                verdict.findings += _check_unit(path, unit, receipt, owned, manifest)
                verdict.files, verdict.rows = verdict.files + 1, verdict.rows + receipt.rows
                verdict.size_bytes += receipt.bytes
    verdict.findings += _strangers(ledger.paths, {name for _, name in tables})
    verdict.findings += _check_index(out, manifest, sorted(tables, key=lambda one: one[1]))
    verdict.findings += _check_account(ledger, manifest)
    return verdict


def _receipts(ledger: Ledger, unit: Unit, verdict: Verdict) -> Iterator[tuple[Unit, Receipt]]:
    where = f"receipts/{unit.unit}.json"
    try:
        receipt = ledger.receipt(unit)
    except CorruptDataError as error:
        verdict.findings.append(Finding("receipt", where, str(error)))
        return
    if receipt is None:
        verdict.findings.append(Finding("receipt", where, f"missing; the unit has {len(unit.inputs)} inputs"))
    elif receipt.outcome == "split":
        for half in unit.halves(ledger.config):
            yield from _receipts(ledger, half, verdict)
    else:
        named = {one.video_id for one in receipt.inputs}
        if named != {entry.video_id for entry in unit.inputs}:
            verdict.findings.append(Finding("receipt", where, "its inputs are not those of the plan"))
        yield unit, receipt


def _check_unit(path: Path, unit: Unit, receipt: Receipt, owned: set[str], manifest: Manifest) -> Iterator[Finding]:
    where = str(receipt.file)
    if not path.is_file():
        yield Finding("file", where, "missing")
        return
    if sha256_of(path) != receipt.sha256:
        yield Finding("hash", where, "its SHA-256 is not the receipt's")
    try:
        check_file(path, unit.unit, receipt.config, receipt.rows)
        file = pq.ParquetFile(path)
        labels = tuple(manifest.labels)
        if not file.schema_arrow.equals(face_schema(labels)) or labels_of(file.schema_arrow) != labels:
            yield Finding("schema", where, "is not the schema of this dataset")
            return
        yield from _check_rows(file, where, unit, receipt, owned)
    except (CorruptDataError, OSError, ValueError) as error:
        yield Finding("page", where, str(error))


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


def _strangers(paths: OutPaths, names: set[str]) -> Iterator[Finding]:
    for path in sorted(paths.faces.rglob("*")):
        name = path.relative_to(paths.root).as_posix()
        if path.is_file() and name not in names:
            yield Finding("stranger", name, "no receipt accounts for it; readers would see its rows")


def _check_index(out: Path, manifest: Manifest, tables: Sequence[tuple[Path, str]]) -> Iterator[Finding]:
    """Builds the index anew, beside, and compares all of it."""
    remedy = f"run `facefeed verify {out} --rebuild-index`"
    try:
        index = Index(out)
    except FacefeedError as error:
        yield Finding("index", "index.arrow", str(error))
        return
    if index.fingerprint != manifest.fingerprint or index.num_rows != manifest.rows:
        yield Finding("index", "index.arrow", f"belongs to another state of the dataset; {remedy}")
        return
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "index.arrow"
        try:
            IndexWriter(fresh, index_schema(manifest.labels, manifest.fingerprint), tables).write()
        except (CorruptDataError, OSError, ValueError):
            return  # the damaged file has its own finding
        with pa.memory_map(str(fresh)) as new, pa.memory_map(str(OutPaths(out).index)) as old:
            if not _same_batches(pa.ipc.open_file(new), pa.ipc.open_file(old)):
                yield Finding("index", "index.arrow", f"does not say what the files say; {remedy}")


def _same_batches(new: pa.RecordBatchFileReader, old: pa.RecordBatchFileReader) -> bool:
    if new.num_record_batches != old.num_record_batches or not new.schema.equals(old.schema):
        return False
    return all(new.get_batch(number).equals(old.get_batch(number)) for number in range(new.num_record_batches))


def _check_account(ledger: Ledger, manifest: Manifest) -> Iterator[Finding]:
    refused = [
        Entry(video_id=str(one["video_id"]), problem=cast(Reason, one["reason"]), detail=one["detail"])
        for one in manifest.refused
    ]
    again = account(ledger, manifest.config, refused, manifest.inputs["missing"])
    for name in ("fingerprint", "splits", "units", "rows", "bytes", "inputs"):
        said, counted = getattr(manifest, name), getattr(again, name)
        if said != counted:
            yield Finding("account", "manifest.json", f"{name}: says {said}, the receipts say {counted}")
