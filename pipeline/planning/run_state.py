"""What plan and receipts say together: which units are done, which are left, and what became of every input."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from ..dataset.manifest import InputOutcome, OutPaths, Receipt, trusted_receipt
from ..errors import CorruptDataError
from .plan import Plan, Unit


class RunState:
    """A view of OUT as it stands on disk; receipts are read one at a time and never kept."""

    def __init__(self, paths: OutPaths, plan: Plan, config_hash: str) -> None:
        self.paths, self.plan, self.config_hash = paths, plan, config_hash

    def receipt(self, unit: Unit) -> Receipt | None:
        """The unit's receipt, or None where it has none; raises `CorruptDataError` where it is damaged."""
        path = self.paths.receipt(unit.unit_id)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        receipt = Receipt.from_json(text, where=str(path))
        if receipt.unit != unit.unit_id or receipt.config_hash != self.config_hash:
            raise CorruptDataError(f"{path}: is a receipt of unit {receipt.unit} under config {receipt.config_hash}")
        return receipt

    def trusted_receipt(self, unit: Unit) -> Receipt | None:
        """A receipt whose file is there at its full size; a damaged or lonely receipt counts as none."""
        return trusted_receipt(self.paths, unit.unit_id, self.config_hash)

    def leaves(self, unit: Unit) -> Iterator[tuple[Unit, Receipt | None]]:
        """The unit with its receipt or, where it was split, what became of its halves."""
        receipt = self.trusted_receipt(unit)
        if receipt is not None and receipt.outcome == "split":
            for half in unit.halves(self.config_hash):
                yield from self.leaves(half)
        else:
            yield unit, receipt

    def pending(self) -> Iterator[Unit]:
        """Units still to be done."""
        for planned in self.plan.units():
            yield from (unit for unit, receipt in self.leaves(planned) if receipt is None)

    def done(self) -> Iterator[tuple[Unit, Unit, Receipt]]:
        """Every unit that is done, as `(planned unit, the unit itself or a part of it, its receipt)`."""
        for planned in self.plan.units():
            for unit, receipt in self.leaves(planned):
                if receipt is not None:
                    yield planned, unit, receipt

    @cached_property
    def owner(self) -> dict[str, str]:
        """The planned unit that speaks for each video: the last one that holds it."""
        return {entry.video_id: unit.unit_id for unit in self.plan.units() for entry in unit.inputs}

    def outcomes(self) -> Iterator[tuple[Unit, InputOutcome]]:
        """The outcome of every input whose unit is done, each input once, with the planned unit it belongs to."""
        for planned, _, receipt in self.done():
            for outcome in receipt.inputs:
                if self.owner[outcome.video_id] == planned.unit_id:
                    yield planned, outcome

    def tables(self) -> list[tuple[Path, str]]:
        """The files that make up the dataset, as (path, name relative to OUT), in a stable order."""
        names = sorted(receipt.file for _, _, receipt in self.done() if receipt.file)
        return [(self.paths.root / name, name) for name in names]

    def fingerprint(self) -> str:
        """Changes whenever any row could have: a hash over the config and all files' hashes."""
        digest = hashlib.sha256(self.config_hash.encode())
        for line in sorted(f"{receipt.file} {receipt.sha256}" for _, _, receipt in self.done() if receipt.file):
            digest.update(line.encode())
        return digest.hexdigest()


class RecordedRunState(RunState):
    """The same by the receipts alone, whether or not their files are there: what a finished dataset was."""

    def trusted_receipt(self, unit: Unit) -> Receipt | None:
        """A receipt that can be read; a damaged one counts as none."""
        try:
            return self.receipt(unit)
        except CorruptDataError:
            return None
