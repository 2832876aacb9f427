"""Rows of superseded units, for unchanged inputs of the new unit that need not be decoded again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.out import OutPaths
from ..files import sha256_of
from ..planning.plan import Unit
from ..planning.receipts import ReceiptReader
from ..sources import Entry


class SupersededRows:
    """Reads rows and outcomes from superseded units; hashes each file once, before its first rows are used."""

    def __init__(self, paths: OutPaths, config_hash: str, schema: pa.Schema) -> None:
        self._paths, self._config_hash, self._schema = paths, config_hash, schema
        self._outcomes: dict[str, tuple[Receipt, InputOutcome]] = {}
        self._outcomes_for = ""  # id of the unit that replaces theirs
        self._intact: dict[str, bool] = {}
        self._file: _UnitRows | None = None  # that was read last: inputs that follow one another are in one file
        self._copies, self._copied = ExitStack(), ("", Path())  # of a store, that file

    def close(self) -> None:
        """Removes the local copy of a file in a store."""
        self._copies.close()
        self._copied = ("", Path())

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
        path = self._local(receipt)
        if self._file is None or self._file.path != path:
            self._file = _UnitRows(path)
        rows = self._file.rows_of(entry.video_id).select(self._schema.names)  # own columns may have had another order
        return reused, rows.cast(self._schema).to_batches()

    def _newest(self, video_id: str, unit: Unit) -> tuple[Receipt | None, InputOutcome | None]:
        if self._outcomes_for != unit.unit_id:
            self._outcomes, self._outcomes_for = {}, unit.unit_id
            for receipt in ReceiptReader(self._paths, self._config_hash).superseded(unit):
                for outcome in receipt.inputs:
                    self._outcomes.setdefault(outcome.video_id, (receipt, outcome))
        return self._outcomes.get(video_id, (None, None))

    def _local(self, receipt: Receipt) -> Path:
        """The file of a unit, or a copy that is there until another is asked for; raises `FileNotFoundError`."""
        name = str(receipt.file)
        if self._copied[0] != name:
            self.close()
            self._copied = name, self._copies.enter_context(self._paths.files.local(self._paths.root / name))
        return self._copied[1]

    def _is_intact(self, receipt: Receipt) -> bool:
        if receipt.unit not in self._intact:
            try:  # an error of the disk is not caught: rows of an input that is gone from the source have no other copy
                digest = sha256_of(self._local(receipt))
            except (FileNotFoundError, NotADirectoryError):
                digest = ""
            self._intact[receipt.unit] = digest == receipt.sha256
        return self._intact[receipt.unit]


class _UnitRows:
    """The rows of one unit's file, by input. Each row group is read once where inputs are asked for in their order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._groups_of: dict[str, list[int]] = defaultdict(list)
        self._last: tuple[int, pa.Table] | None = None
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for video_id in file.read_row_group(group, columns=["video_id"]).column(0).unique().to_pylist():
                    self._groups_of[video_id].append(group)
            self._schema = file.schema_arrow

    def rows_of(self, video_id: str) -> pa.Table:
        tables = [
            table.filter(pc.equal(table.column("video_id"), video_id))
            for table in map(self._row_group, self._groups_of.get(video_id, ()))
        ]
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    def _row_group(self, group: int) -> pa.Table:
        if self._last is None or self._last[0] != group:
            with pq.ParquetFile(self.path) as file:
                self._last = group, file.read_row_group(group)
        return self._last[1]
