"""One unit of work, start to receipt, in one process: what a slot of the cluster does, and a serial run too."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..commit.publish import attempt_path, check_unit_file, publish, sha256_of, unit_file_metadata, write_receipt
from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.schema import ROW_GROUP_ROWS, parquet_writer_options
from ..errors import CorruptDataError, StoppedError
from ..files import stop_on_disk_error
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..rows.input_rows import InputRows
from .decode_pool import Lanes

_RECEIPT_KEY = "facefeed.receipt"

OnInput = Callable[[InputOutcome], None]


class _RowGroups:
    """Writes batches to Parquet in full row groups, whatever sizes they come in."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._count += batch.num_rows
        self.rows += batch.num_rows
        while self._count >= ROW_GROUP_ROWS:
            self._write(ROW_GROUP_ROWS)

    def flush(self) -> None:
        if self._count:
            self._write(self._count)

    def _write(self, rows: int) -> None:
        joined = pa.Table.from_batches(self._waiting)
        self._writer.write_table(joined.slice(0, rows), row_group_size=rows)
        self._waiting = joined.slice(rows).to_batches()
        self._count -= rows


def _timeless(receipt: Receipt) -> Receipt:
    """But for what differs from one attempt to the next: the same rows are the same file, whenever it is made."""
    return replace(receipt, inputs=[replace(one, seconds=0.0, reused=False) for one in receipt.inputs])


class UnitWorker:
    """Does units of one job, one at a time.

    `decoders`: how many inputs are decoded at once, each in a child of its own, for the one detector; the file of a
    unit does not depend on it.
    """

    def __init__(self, job: JobSpec, *, decoders: int = 1) -> None:
        self.job = job
        self._lanes = Lanes(job, decoders)
        self._closing = False

    @property
    def inputs(self) -> InputRows:
        """What makes the rows of inputs, on the first lane, for whoever would try some while no unit is under way."""
        return self._lanes.first

    def close(self) -> None:
        """Ends the decoders' children; a unit under way ends with `StoppedError` and leaves nothing."""
        self._closing = True
        self._lanes.close()

    def run(self, unit: Unit, on_input: OnInput = lambda _: None) -> Receipt:
        """Makes the unit's file and receipt, or adopts a file that an earlier run published and left behind.

        `on_input` is called for each input that was decoded.
        Raises `StoppedError` where the disk refuses or the slot was closed; whatever is wrong with an input is in
        the receipt. Where another attempt at the unit was faster, its receipt is returned.
        """
        try:
            receipt = self._adopt(unit) or self._make(unit, on_input)
        except Exception:
            self._raise_if_closing()  # whatever a decoder that was ended under way has thrown
            raise
        standing = write_receipt(self.job.paths, receipt)
        if receipt.file and standing.file != receipt.file:  # the driver has split the unit meanwhile
            (self.job.out / receipt.file).unlink(missing_ok=True)
        return standing

    def _adopt(self, unit: Unit) -> Receipt | None:
        path = self.job.paths.unit_file(unit.split, unit.unit_id)
        if not path.exists():
            return None
        with stop_on_disk_error(path):
            try:
                check_unit_file(path, unit.unit_id, self.job.config_hash)
                stored = pq.read_metadata(path).metadata[_RECEIPT_KEY.encode()]
                receipt = Receipt.from_json(stored, where=f"{path.name}: {_RECEIPT_KEY}")
            except (CorruptDataError, KeyError):
                path.replace(self.job.paths.temporary / f"{path.name}.{uuid.uuid4().hex}.quarantined")
                return None
            return self._with_file(receipt, path, sha256_of(path))

    def _make(self, unit: Unit, on_input: OnInput) -> Receipt:
        attempt = attempt_path(self.job.paths, unit.unit_id)
        outcomes: list[InputOutcome] = []
        try:
            with self._writer(attempt) as writer:
                groups = _RowGroups(writer)
                with self._lanes.made(unit) as inputs:
                    for made in inputs:
                        for batch in made.batches:
                            groups.add(batch)
                        outcomes.append(made.outcome)
                        if not made.outcome.reused:
                            on_input(made.outcome)
                groups.flush()
                receipt = Receipt(
                    unit=unit.unit_id, config_hash=self.job.config_hash, outcome="done",
                    supersedes=list(unit.supersedes), rows=groups.rows, inputs=outcomes,
                )  # fmt: skip
                writer.add_key_value_metadata(
                    {
                        **unit_file_metadata(unit.unit_id, self.job.config_hash, groups.rows),
                        _RECEIPT_KEY: _timeless(receipt).to_json(),
                    }
                )
            self._raise_if_closing()
            if not receipt.rows:
                return receipt
            final = self.job.paths.unit_file(unit.split, unit.unit_id)
            digest = publish(attempt, final, unit.unit_id, self.job.config_hash, receipt.rows)
            if digest is not None:
                return self._with_file(receipt, final, digest)
            adopted = self._adopt(unit)
            if adopted is None:
                raise CorruptDataError(f"{final.name}: another attempt published it damaged; it was set aside")
            return adopted
        finally:
            attempt.unlink(missing_ok=True)

    @contextmanager
    def _writer(self, attempt: Path) -> Iterator[pq.ParquetWriter]:
        schema = self.inputs.schema
        with stop_on_disk_error(attempt), pq.ParquetWriter(attempt, schema, **parquet_writer_options(schema)) as writer:
            yield writer

    def _raise_if_closing(self) -> None:
        if self._closing:
            raise StoppedError("this worker was told to stop; run the same command again")

    def _with_file(self, receipt: Receipt, path: Path, digest: str) -> Receipt:
        file = path.relative_to(self.job.out).as_posix()
        return replace(receipt, file=file, bytes=path.stat().st_size, sha256=digest)
