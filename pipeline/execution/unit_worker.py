"""Processes one unit from its inputs to the published file and receipt, within one process."""

from __future__ import annotations

from collections.abc import Callable, Generator

from ..commit.adoption import adopt_file
from ..commit.publish import write_receipt
from ..commit.unit_file import InputRows, write_unit_file
from ..dataset.manifest import InputOutcome, Receipt
from ..errors import StoppedError
from ..files import stop_on_any_disk_error
from ..planning.options import JobSpec
from ..planning.plan import Unit
from ..rows.input_pipeline import InputPipeline
from .decode_pool import DecodePool

OnInput = Callable[[InputOutcome], None]


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
                self.job.paths.files.remove(self.job.out / receipt.file)
            return valid_receipt

    def _build(self, unit: Unit, on_input: OnInput) -> Receipt:
        return write_unit_file(
            self.job.paths, unit, self.job.config_hash, self.pipeline.schema, self._processed(unit, on_input),
            before_publishing=self._raise_if_closing,
        )  # fmt: skip

    def _processed(self, unit: Unit, on_input: OnInput) -> Generator[InputRows, None, None]:
        with self._pool.process(unit) as processed_inputs:
            for processed in processed_inputs:
                yield processed.outcome, processed.batches
                if not processed.outcome.reused:
                    on_input(processed.outcome)

    def _raise_if_closing(self) -> None:
        if self._closing:
            raise StoppedError("this worker was stopped; run the same command again")
