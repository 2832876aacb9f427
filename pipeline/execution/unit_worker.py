"""Processes one unit from its inputs to the published file and receipt, within one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..commit.adoption import adopt_file, receipt_metadata, with_file
from ..commit.publish import attempt_path, publish, unit_file_metadata, write_receipt
from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.schema import ROW_GROUP_ROWS, parquet_writer_options
from ..errors import CorruptDataError, StoppedError
from ..files import stop_on_any_disk_error, stop_on_disk_error
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..rows.input_pipeline import InputPipeline
from .decode_pool import DecodePool

OnInput = Callable[[InputOutcome], None]


class _RowGroupWriter:
    """Buffers record batches of any size and writes them to Parquet in full row groups."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._buffered: list[pa.RecordBatch] = []
        self._num_buffered = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._buffered.append(batch)
        self._num_buffered += batch.num_rows
        self.rows += batch.num_rows
        while self._num_buffered >= ROW_GROUP_ROWS:
            self._write(ROW_GROUP_ROWS)

    def flush(self) -> None:
        if self._num_buffered:
            self._write(self._num_buffered)

    def _write(self, rows: int) -> None:
        joined = pa.Table.from_batches(self._buffered)
        self._writer.write_table(joined.slice(0, rows), row_group_size=rows)
        self._buffered = joined.slice(rows).to_batches()
        self._num_buffered -= rows


class UnitWorker:
    """Processes units of one job, one at a time.

    `decoders`: number of inputs that are decoded at once, each in a process of its own; they share one detector. The
    unit's file does not depend on it.
    """

    def __init__(self, job: JobSpec, *, decoders: int = 1) -> None:
        self.job = job
        self._pool = DecodePool(job, decoders)
        self._closing = False

    @property
    def pipeline(self) -> InputPipeline:
        """The first decoder's pipeline, to try single inputs while no unit is in progress."""
        return self._pool.first_pipeline

    def close(self) -> None:
        """Ends the decoder processes; a unit in progress ends with `StoppedError` and leaves no file."""
        self._closing = True
        self._pool.close()

    def run(self, unit: Unit, on_input: OnInput = lambda _: None) -> Receipt:
        """Writes the unit's file and receipt, or adopts a file that an earlier run published without a receipt.

        Calls `on_input` with the outcome of each input that was decoded. Problems of inputs are in the receipt that it
        returns; if another attempt at the unit was faster, that is the other's receipt.
        Raises `StoppedError` where the disk fails or this worker was closed.
        """
        with stop_on_any_disk_error(self.job.out):
            try:
                receipt = adopt_file(self.job.paths, unit, self.job.config_hash) or self._build(unit, on_input)
            except Exception:
                self._raise_if_closing()  # replaces the error of a decoder that was ended in progress
                raise
            valid_receipt = write_receipt(self.job.paths, unit, receipt)
            if receipt.file and valid_receipt.file != receipt.file:  # the driver has split the unit in the meantime
                (self.job.out / receipt.file).unlink(missing_ok=True)
            return valid_receipt

    def _build(self, unit: Unit, on_input: OnInput) -> Receipt:
        attempt = attempt_path(self.job.paths, unit.unit_id)
        outcomes: list[InputOutcome] = []
        try:
            with self._writer(attempt) as writer:
                row_groups = _RowGroupWriter(writer)
                with self._pool.process(unit) as processed_inputs:
                    for processed in processed_inputs:
                        for batch in processed.batches:
                            row_groups.add(batch)
                        outcomes.append(processed.outcome)
                        if not processed.outcome.reused:
                            on_input(processed.outcome)
                row_groups.flush()
                receipt = Receipt(
                    unit=unit.unit_id, config_hash=self.job.config_hash, outcome="done",
                    supersedes=list(unit.supersedes), rows=row_groups.rows, inputs=outcomes,
                )  # fmt: skip
                writer.add_key_value_metadata(
                    {
                        **unit_file_metadata(unit.unit_id, self.job.config_hash, row_groups.rows),
                        **receipt_metadata(receipt),
                    }
                )
            self._raise_if_closing()
            if not receipt.rows:
                return receipt
            final = self.job.paths.unit_file(unit.split, unit.unit_id)
            digest = publish(attempt, final, unit.unit_id, self.job.config_hash, receipt.rows)
            if digest is not None:
                return with_file(receipt, final, self.job.paths, digest)
            adopted = adopt_file(self.job.paths, unit, self.job.config_hash)
            if adopted is None:
                raise CorruptDataError(f"{final.name}: another attempt published it damaged; it was set aside")
            return adopted
        finally:
            attempt.unlink(missing_ok=True)

    @contextmanager
    def _writer(self, attempt: Path) -> Iterator[pq.ParquetWriter]:
        schema = self.pipeline.schema
        with stop_on_disk_error(attempt), pq.ParquetWriter(attempt, schema, **parquet_writer_options(schema)) as writer:
            yield writer

    def _raise_if_closing(self) -> None:
        if self._closing:
            raise StoppedError("this worker was stopped; run the same command again")
