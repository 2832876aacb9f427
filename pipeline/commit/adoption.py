"""Adoption: a unit's file that was published without a receipt, as its process died in between, gets its receipt."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq

from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError
from ..files import sha256_of, stop_on_disk_error
from ..planning.plan import Unit
from ..planning.receipts import lists_inputs_of
from ..planning.run_state import RunState
from .publish import check_unit_file, move_to_quarantine, write_receipt

_RECEIPT_KEY = "facefeed.receipt"


def receipt_metadata(receipt: Receipt) -> dict[str, str]:
    """Key-value metadata of a unit's Parquet file, from which `adopt_file` makes the receipt.

    Without timings and flags that differ between attempts, so that equal rows give equal files.
    """
    inputs = [replace(outcome, seconds=0.0, reused=False) for outcome in receipt.inputs]
    return {_RECEIPT_KEY: replace(receipt, inputs=inputs).to_json()}


def with_file(receipt: Receipt, name: str, size_bytes: int, digest: str) -> Receipt:
    """The receipt of a unit whose file was published: its name relative to OUT, its size and its SHA-256."""
    return replace(receipt, file=name, bytes=size_bytes, sha256=digest)


def adopt_file(paths: OutPaths, unit: Unit, config_hash: str) -> Receipt | None:
    """The receipt for the unit's file, which is not written; None where there is no file.

    Also where it is damaged, or of other inputs: then it is moved to `_tmp`.
    Raises `StoppedError` where the disk fails.
    """
    path = paths.unit_file(unit.split, unit.unit_id)
    if paths.files.size_bytes(path) is None:
        return None
    with stop_on_disk_error(path):
        try:
            with paths.files.local(path) as local:
                check_unit_file(local, unit.unit_id, config_hash)
                stored = pq.read_metadata(local).metadata[_RECEIPT_KEY.encode()]
                receipt = Receipt.from_json(stored, where=f"{path.name}: {_RECEIPT_KEY}")
                if not lists_inputs_of(unit, receipt):
                    raise CorruptDataError(f"{path.name}: its receipt lists other inputs")
                return with_file(receipt, paths.name_of(path), local.stat().st_size, sha256_of(local))
        except (CorruptDataError, KeyError):
            move_to_quarantine(path, paths)
            return None


def adopt_files(run_state: RunState) -> None:
    """Writes the receipts of all unfinished units that have a file.

    Before a run compares the source with the plan: their inputs may have been replaced since, as those of any finished
    unit, and rows of videos that are gone can still be copied.
    """
    for unit in list(run_state.pending_units()):
        if (receipt := adopt_file(run_state.paths, unit, run_state.config_hash)) is not None:
            write_receipt(run_state.paths, unit, receipt)
