"""`ReceiptReader`: receipts as they are on disk whenever one is asked for, of which equal bytes are parsed once."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError
from ..sources import Entry
from ..sources.packed_records import PackedRecords
from .plan import Unit

_MAX_KEPT = 10_000_000  # receipts and their inputs in memory: some 80 bytes each


class ReceiptReader:
    """Reads the receipts of one OUT under one config.

    A run asks for each of them about twenty times, and parsing takes ten times as long as reading and hashing. Each
    question still reads the file, since other processes write receipts meanwhile.
    """

    def __init__(self, paths: OutPaths, config_hash: str) -> None:
        self._paths, self._config_hash = paths, config_hash
        self._parsed: dict[bytes, Receipt] = {}
        self._num_kept = 0
        self._checked: dict[str, tuple[Receipt, tuple[Entry, ...]]] = {}

    def read(self, unit_id: str) -> Receipt:
        """The unit's receipt, perhaps of another config.

        Raises `FileNotFoundError` where it has none, `CorruptDataError` where that is damaged, `StoppedError` where the
        disk fails.
        """
        path = self._paths.receipt(unit_id)
        content = self._paths.files.read(path)
        digest = hashlib.sha256(content).digest()
        receipt = self._parsed.get(digest)
        if receipt is None:
            receipt = Receipt.from_json(content, where=str(path))
            if self._num_kept < _MAX_KEPT:
                self._num_kept += 1 + len(receipt.inputs)
                receipt = self._parsed[digest] = replace(receipt, inputs=PackedRecords(InputOutcome, receipt.inputs))
        return receipt

    def trusted(self, unit_id: str) -> Receipt | None:
        """The unit's receipt; None where it is missing, damaged, of another config, or its file is not of its size.

        Raises `StoppedError` where the disk fails: the unit may well be finished.
        """
        try:
            receipt = self.read(unit_id)
        except (CorruptDataError, FileNotFoundError):
            return None
        if receipt.file and self._paths.files.size_bytes(self._paths.root / receipt.file) != receipt.bytes:
            return None
        return receipt if (receipt.unit, receipt.config_hash) == (unit_id, self._config_hash) else None

    def trusted_of(self, unit: Unit) -> Receipt | None:
        """The same; None also where it lists other inputs than the unit's."""
        receipt = self.trusted(unit.unit_id)
        if receipt is None:
            return None
        checked = self._checked.get(unit.unit_id)
        if checked is not None and checked[0] is receipt and checked[1] is unit.inputs:
            return receipt
        if not lists_inputs_of(unit, receipt):
            return None
        if isinstance(receipt.inputs, PackedRecords):  # which is kept
            self._checked[unit.unit_id] = receipt, unit.inputs
        return receipt

    def superseded(self, unit: Unit) -> Iterator[Receipt]:
        """The trusted receipts of the units that `unit` replaces, newest first, and of their halves."""
        names = deque(unit.supersedes)
        while names:
            receipt = self.trusted(names.popleft())
            if receipt is not None:
                names.extendleft(reversed(receipt.children))
                yield receipt


def lists_inputs_of(unit: Unit, receipt: Receipt) -> bool:
    """Whether the receipt has one outcome of each input of the unit, and no other; that of a split unit has none."""
    listed = sorted(outcome.video_id for outcome in receipt.inputs)
    return receipt.outcome == "split" or listed == sorted(entry.video_id for entry in unit.inputs)
