"""Adoption: a unit's file that was published without a receipt, as its process died in between, gets its receipt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from ..dataset.manifest import OutPaths, Receipt
from ..errors import CorruptDataError
from ..files import sha256_of, stop_on_disk_error
from ..planning.plan import Unit
from ..planning.run_state import RunState, lists_inputs_of
from .publish import check_unit_file, move_to_quarantine, write_receipt

_RECEIPT_KEY = "facefeed.receipt"


def receipt_metadata(receipt: Receipt) -> dict[str, str]:
    """Key-value metadata of a unit's Parquet file, from which `adopt_file` makes the receipt.

    Without timings and flags that differ between attempts, so that equal rows give equal files.
    """
    inputs = [replace(outcome, seconds=0.0, reused=False) for outcome in receipt.inputs]
    return {_RECEIPT_KEY: replace(receipt, inputs=inputs).to_json()}


def with_file(receipt: Receipt, path: Path, paths: OutPaths, digest: str) -> Receipt:
    """The receipt of a unit whose file was published at `path`; `digest`: its SHA-256."""
    file = path.relative_to(paths.root).as_posix()
    return replace(receipt, file=file, bytes=path.stat().st_size, sha256=digest)


def adopt_file(paths: OutPaths, unit: Unit, config_hash: str) -> Receipt | None:
    """The receipt for the unit's file, which is not written; None where there is no file.

    Also where it is damaged, or of other inputs: then it is moved to `_tmp`.
    Raises `StoppedError` where the disk fails.
    """
    path = paths.unit_file(unit.split, unit.unit_id)
    if not path.exists():
        return None
    with stop_on_disk_error(path):
        try:
            check_unit_file(path, unit.unit_id, config_hash)
            stored = pq.read_metadata(path).metadata[_RECEIPT_KEY.encode()]
            receipt = Receipt.from_json(stored, where=f"{path.name}: {_RECEIPT_KEY}")
            if not lists_inputs_of(unit, receipt):
                raise CorruptDataError(f"{path.name}: its receipt lists other inputs")
        except (CorruptDataError, KeyError):
            move_to_quarantine(path, paths)
            return None
        return with_file(receipt, path, paths, sha256_of(path))


def adopt_files(run_state: RunState) -> None:
    """Writes the receipts of all unfinished units that have a file.

    Before a run compares the source with the plan: their inputs may have been replaced since, as those of any finished
    unit, and rows of videos that are gone can still be copied.
    """
    for unit in list(run_state.pending_units()):
        if (receipt := adopt_file(run_state.paths, unit, run_state.config_hash)) is not None:
            write_receipt(run_state.paths, unit, receipt)
