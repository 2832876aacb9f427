"""Rows of superseded units, for unchanged inputs of the new unit that need not be decoded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..commit.publish import sha256_of
from ..dataset.manifest import InputOutcome, Receipt
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..planning.run_state import superseded_receipts
from ..sources import Entry


class SupersededRows:
    """Reads rows and outcomes from superseded units; hashes each file once, before its first rows are used."""

    def __init__(self, job: JobSpec, schema: pa.Schema) -> None:
        self._job, self._schema = job, schema
        self._intact: dict[str, bool] = {}

    def lookup(self, entry: Entry, unit: Unit) -> tuple[InputOutcome, Sequence[pa.RecordBatch]] | None:
        """The outcome and all rows of `entry` in the units that `unit` supersedes; None where missing or damaged."""
        receipt, outcome = self._newest(entry.video_id, unit)
        if receipt is None or outcome is None:
            return None
        reused = replace(outcome, size_bytes=entry.size_bytes, mtime_ns=entry.mtime_ns, reused=True)
        if not outcome.faces:
            return reused, ()
        if not self._is_intact(receipt):
            return None
        path = self._job.out / str(receipt.file)
        rows = pq.read_table(path, filters=pc.field("video_id") == entry.video_id, partitioning=None)
        return reused, rows.cast(self._schema).to_batches()

    def _newest(self, video_id: str, unit: Unit) -> tuple[Receipt | None, InputOutcome | None]:
        for receipt in superseded_receipts(unit, self._job.paths, self._job.config_hash):
            for outcome in receipt.inputs:
                if outcome.video_id == video_id:
                    return receipt, outcome
        return None, None

    def _is_intact(self, receipt: Receipt) -> bool:
        if receipt.unit not in self._intact:
            try:  # an error of the disk is not caught: rows of an input that is gone from the source have no other copy
                digest = sha256_of(self._job.out / str(receipt.file))
            except (FileNotFoundError, NotADirectoryError):
                digest = ""
            self._intact[receipt.unit] = digest == receipt.sha256
        return self._intact[receipt.unit]
