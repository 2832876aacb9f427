"""`Batches`: the batches of an index file, each read where it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...errors import CorruptDataError
from ...files import raise_unless_damage
from . import layout

_MAX_KEPT = 4096
"""Batches that are kept, of some 20 kB each: what a billion rows have would be 300 MB in each process."""


class Batches(Sequence[pa.RecordBatch]):
    """The batches of an open index file; all but the last have the same length, by which rows are found.

    Reading one reads its description alone, some kB; the columns are mapped. Thread-safe.

    Raises `CorruptDataError` with `remedy` where a batch of the file at `path` cannot be read or has another length.
    """

    def __init__(self, reader: pa.ipc.RecordBatchFileReader, path: Path, remedy: str) -> None:
        self._reader, self._path, self._remedy = reader, path, remedy
        self._kept: dict[int, pa.RecordBatch] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)

    def __getitem__(self, number: Any) -> Any:
        batch = self._kept.get(number)
        return self._read(range(len(self))[number]) if batch is None else batch

    def _read(self, number: int) -> pa.RecordBatch:
        with self._lock:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            try:
                batch = self._reader.get_batch(number)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise_unless_damage(self._path, error)
                raise CorruptDataError(f"{self._path}: cannot be read ({error}); {self._remedy}") from error
            if number < len(self) - 1 and batch.num_rows != layout.BATCH_ROWS:
                raise self.other_layout()
            self._kept[number] = batch
        return batch

    @property
    def num_rows(self) -> int:
        """Rows of all batches: reads the first one and the last one."""
        if not len(self):
            return 0
        first, last = self[0], self[-1]
        return int(last.num_rows) if len(self) == 1 else (len(self) - 1) * int(first.num_rows) + int(last.num_rows)

    def other_layout(self) -> CorruptDataError:
        """The error where rows cannot be found."""
        return CorruptDataError(f"{self._path}: is not laid out as this facefeed lays it out; {self._remedy}")
