"""The check of one unit: a function of its file and its receipt alone, so that it may run anywhere, in any order."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..commit.publish import read_unit_file
from ..dataset.index.part import part_of
from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
from ..dataset.schema import labels_of
from ..errors import CorruptDataError
from ..files import sha256_of
from ..planning.plan import Unit
from .findings import CheckedUnit, Finding, digest_of, errors_as_findings


@dataclass(frozen=True, kw_only=True)
class UnitToCheck:
    """What is known of a unit with rows.

    `receipt`: without its inputs. `faces`: rows of each video that has some, by video id. `owned`: ids of the videos
    that no later unit contains.
    """

    split: str
    receipt: Receipt
    faces: Mapping[str, int]
    owned: frozenset[str]

    @classmethod
    def of(cls, unit: Unit, receipt: Receipt, owned: set[str]) -> UnitToCheck:
        """From the unit of the plan and its receipt, which names a file."""
        return cls(
            split=unit.split,
            receipt=replace(receipt, inputs=[]),
            faces={outcome.video_id: outcome.faces for outcome in receipt.inputs if outcome.faces},
            owned=frozenset(owned),
        )

    @property
    def location(self) -> str:
        """Name of its file, relative to OUT."""
        return str(self.receipt.file)


Step = Finding | UnitToCheck
"""In the plan's order: a unit to check, or a finding on one that has none to check, which is passed on."""


def check_steps(schema: pa.Schema, paths: OutPaths, steps: Sequence[Step]) -> list[Finding | CheckedUnit]:
    """Checks some units; `schema`: of the dataset's files.

    Raises `StoppedError` where the disk fails or the store does not answer.
    """
    return [step if isinstance(step, Finding) else _check_unit(paths, schema, step) for step in steps]


def _check_unit(paths: OutPaths, schema: pa.Schema, unit: UnitToCheck) -> CheckedUnit:
    path = paths.root / unit.location
    if paths.files.size_bytes(path) is None:
        return CheckedUnit(receipt=unit.receipt, has_file=False, findings=[Finding("file", unit.location, "missing")])
    parts: list[bytes] = []
    rows = _Rows(unit)

    def check() -> Iterator[Finding]:
        with paths.files.local(path) as local:
            try:
                yield from _check_file(local, schema, rows)
                if paths.files.is_remote:
                    parts.append(part_of(local, str(unit.receipt.sha256)))
            except CorruptDataError as error:
                raise CorruptDataError(str(error).replace(local.name, path.name)) from error  # of a copy, at random

    findings = list(errors_as_findings("content", paths.root, unit.location, check))
    has_file = paths.files.size_bytes(path) is not None
    return CheckedUnit(
        receipt=unit.receipt, has_file=has_file, findings=findings, faces=None if findings else rows.digest,
        index_part=parts[0] if parts else None,
    )  # fmt: skip


def _check_file(path: Path, schema: pa.Schema, rows: _Rows) -> Iterator[Finding]:
    unit, receipt = rows.unit, rows.unit.receipt
    if (size_bytes := path.stat().st_size) != receipt.bytes:
        yield Finding("size", unit.location, f"is {size_bytes} bytes, the receipt says {receipt.bytes}")
    if sha256_of(path) != receipt.sha256:
        yield Finding("hash", unit.location, "its SHA-256 is not the receipt's")
    for table in read_unit_file(path, receipt.unit, receipt.config_hash, receipt.rows):
        if table.schema.equals(schema):
            rows.add(table)
    stored_schema = pq.read_schema(path)  # with its labels, which row groups lack
    if stored_schema.equals(schema) and labels_of(stored_schema) == labels_of(schema):
        yield from rows.findings()
    else:
        yield Finding("schema", unit.location, "is not the schema of this dataset")


@dataclass
class _Rows:
    """What the rows of a unit's file say, gathered from one row group after the other."""

    unit: UnitToCheck
    changed_images: list[str] = field(default_factory=list)
    ids: list[pa.Table] = field(default_factory=list)

    def add(self, table: pa.Table) -> None:
        """The next rows, of the dataset's schema."""
        is_stored_crc = _crcs(table["image"]) == table["image_crc32"].to_numpy()
        self.changed_images += table["face_id"].filter(pa.array(~is_stored_crc)).to_pylist()
        self.ids.append(table.select(["face_id", "video_id", "split"]))

    @property
    def digest(self) -> str:
        """`digest_of` the ids of all rows."""
        return digest_of(pa.chunked_array([chunk for ids in self.ids for chunk in ids["face_id"].chunks], pa.string()))

    def findings(self) -> Iterator[Finding]:
        """Once all rows were added."""
        location, unit = self.unit.location, self.unit
        for face_id in self.changed_images:
            yield Finding("image", f"{location}: {face_id}", "its CRC-32 is not the stored one")
        if not self.ids:
            return
        ids = pa.concat_tables(self.ids)
        if (duplicates := ids.num_rows - pc.count_distinct(ids["face_id"]).as_py()) > 0:
            yield Finding("duplicate", location, f"{duplicates} rows share a face_id with another")
        if (splits := set(ids["split"].unique().to_pylist())) - {unit.split}:
            yield Finding("split", location, f"holds rows of {', '.join(sorted(splits))}, belongs to {unit.split}")
        counted = {row["values"]: row["counts"] for row in ids["video_id"].value_counts().to_pylist()}
        for video_id in sorted(counted.keys() | unit.faces.keys()):
            if counted.get(video_id, 0) != unit.faces.get(video_id, 0):
                detail = f"{counted.get(video_id, 0)} rows, the receipt says {unit.faces.get(video_id, 0)}"
                yield Finding("rows", f"{location}: {video_id}", detail)
            elif video_id not in unit.owned:
                yield Finding("duplicate", f"{location}: {video_id}", "another unit holds this video too")


def _crcs(images: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """CRC-32 of each image, uint32 (rows,)."""
    crcs: list[int] = []
    for chunk in images.chunks:
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1].tolist()
        content = memoryview(b"" if data is None else data)
        crcs += [zlib.crc32(content[start:end]) for start, end in pairwise(ends)]
    return np.array(crcs, np.uint32)
