"""A unit's Parquet file and receipt, from the outcomes and rows of its inputs, whoever made those."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq

from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.out import OutPaths
from ..dataset.schema import ROW_GROUP_ROWS, parquet_writer_options
from ..errors import CorruptDataError
from ..files import sha256_of, stop_on_disk_error
from ..planning.plan import Unit
from .adoption import adopt_file, receipt_metadata, with_file
from .index_parts import publish_index_part
from .publish import attempt_path, publish, unit_file_metadata

InputRows = tuple[InputOutcome, Iterable[pa.RecordBatch]]
"""The outcome of an input, and its rows."""


class RowGroupWriter:
    """Buffers record batches of any size and writes them to Parquet in full row groups. `rows`: how many were added."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._buffered: list[pa.RecordBatch] = []
        self._num_buffered = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows, and writes the row groups that are full."""
        self._buffered.append(batch)
        self._num_buffered += batch.num_rows
        self.rows += batch.num_rows
        while self._num_buffered >= ROW_GROUP_ROWS:
            self._write(ROW_GROUP_ROWS)

    def flush(self) -> None:
        """Writes what is left, as the last row group."""
        if self._num_buffered:
            self._write(self._num_buffered)

    def _write(self, rows: int) -> None:
        joined = pa.Table.from_batches(self._buffered)
        self._writer.write_table(joined.slice(0, rows), row_group_size=rows)
        self._buffered = joined.slice(rows).to_batches()
        self._num_buffered -= rows


def write_unit_file(
    paths: OutPaths,
    unit: Unit,
    config_hash: str,
    schema: pa.Schema,
    inputs: Generator[InputRows, None, None],
    *,
    before_publishing: Callable[[], None] = lambda: None,
) -> Receipt:
    """Writes the unit's file and publishes it; returns its receipt, which is not written yet.

    Where another attempt was faster, that is the receipt of its file; where there are no rows, there is no file.

    Args:
        paths: of OUT.
        unit: the unit.
        config_hash: hash of the job's config.
        schema: of the rows.
        inputs: outcome and rows of each of the unit's inputs, in their order; closed at its end and after an error.
        before_publishing: called once the file is complete; what it raises leaves no file.

    Raises:
        StoppedError: the disk failed.
        CorruptDataError: another attempt has published a damaged file, which was set aside.

    """
    attempt = attempt_path(paths, unit.unit_id)
    outcomes: list[InputOutcome] = []
    try:
        options = parquet_writer_options(schema)
        with stop_on_disk_error(attempt), pq.ParquetWriter(attempt, schema, **options) as writer:
            row_groups = RowGroupWriter(writer)
            with closing(inputs):
                for outcome, batches in inputs:
                    for batch in batches:
                        row_groups.add(batch)
                    outcomes.append(outcome)
            row_groups.flush()
            receipt = Receipt(
                unit=unit.unit_id, config_hash=config_hash, outcome="done", supersedes=list(unit.supersedes),
                rows=row_groups.rows, inputs=outcomes,
            )  # fmt: skip
            writer.add_key_value_metadata(
                {**unit_file_metadata(unit.unit_id, config_hash, row_groups.rows), **receipt_metadata(receipt)}
            )
        before_publishing()
        if not receipt.rows:
            return receipt
        final, size_bytes = paths.unit_file(unit.split, unit.unit_id), attempt.stat().st_size
        if paths.files.is_remote:
            publish_index_part(paths, unit.unit_id, attempt, sha256_of(attempt))
        digest = publish(attempt, final, unit.unit_id, config_hash, receipt.rows, files=paths.files)
        if digest is not None:
            return with_file(receipt, paths.name_of(final), size_bytes, digest)
        adopted = adopt_file(paths, unit, config_hash)
        if adopted is None:
            raise CorruptDataError(f"{final.name}: another attempt published it damaged; it was set aside")
        return adopted
    finally:
        attempt.unlink(missing_ok=True)
