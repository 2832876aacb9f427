"""`ReceiptReader`: receipts as they are on disk whenever one is asked for, of which equal bytes are parsed once."""

from __future__ import annotations

import hashlib
import marshal
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import overload

from ..dataset.manifest import InputOutcome, Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError
from ..sources import Entry
from .plan import Unit

_MAX_KEPT = 10_000_000  # receipts and their inputs in memory: some 80 bytes each
_NAMES = tuple(each.name for each in fields(InputOutcome))
_values = attrgetter(*_NAMES)
# What `InputOutcome(...)` calls for each field, at half its time: a run makes several for each input.
_setters = tuple(getattr(InputOutcome, name).__set__ for name in _NAMES)


class PackedOutcomes(Sequence[InputOutcome]):
    """Outcomes in a sixth of the memory: their columns, compressed, from which each iteration makes them anew."""

    __slots__ = ("_columns", "_count")

    def __init__(self, outcomes: Sequence[InputOutcome]) -> None:
        self._count = len(outcomes)
        self._columns = zlib.compress(marshal.dumps(tuple(zip(*map(_values, outcomes), strict=True))), level=1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[InputOutcome]:
        for values in zip(*marshal.loads(zlib.decompress(self._columns)), strict=True):  # noqa: S302 (our own bytes)
            outcome: InputOutcome = object.__new__(InputOutcome)
            for set_value, value in zip(_setters, values, strict=True):
                set_value(outcome, value)
            yield outcome

    @overload
    def __getitem__(self, index: int) -> InputOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[InputOutcome]: ...
    def __getitem__(self, index: int | slice) -> InputOutcome | list[InputOutcome]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


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
                receipt = self._parsed[digest] = replace(receipt, inputs=PackedOutcomes(receipt.inputs))
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
        if isinstance(receipt.inputs, PackedOutcomes):  # which is kept
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
