"""`Batches`: the batches of an index file, each read where it is first needed."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...errors import CorruptDataError
from ...files import map_file, raise_unless_damage
from . import checksums, layout

_MAX_KEPT = 4096
"""Batches that are kept, of some 20 kB each: what a billion rows have would be 300 MB in each process."""

_ADVISED_BYTES = 1 << 17
"""The kernel reads no more at a time than its read-ahead, by default that much."""


class MappedFile:
    """An Arrow file, mapped into memory, of which storage is asked for what is used alone.

    By itself the kernel reads up to some MB around each place that is touched, so of a large index all of it for one
    column. `pyarrow.memory_map` would ask it to read ahead whole batches.

    Raises what `map_file` does, and `ValueError` on what is no Arrow file.
    """

    def __init__(self, path: Path) -> None:
        self._mapped = map_file(path)
        self._mapped.madvise(mmap.MADV_RANDOM)
        content = pa.py_buffer(self._mapped)
        self._address = content.address
        self.reader: pa.ipc.RecordBatchFileReader = pa.ipc.open_file(pa.BufferReader(content))

    def read_ahead(self, column: pa.Array) -> None:
        """Asks the kernel to read a column of a batch of this file."""
        for buffer in filter(None, column.buffers()):
            start, stop = buffer.address - self._address, buffer.address - self._address + buffer.size
            if not 0 <= start < stop <= len(self._mapped):
                continue  # a copy
            for first in range(start // mmap.PAGESIZE * mmap.PAGESIZE, stop, _ADVISED_BYTES):
                with suppress(OSError):  # it is advice, and reading the column shows what is wrong
                    self._mapped.madvise(mmap.MADV_WILLNEED, first, min(_ADVISED_BYTES, stop - first))


class Batches(Sequence[pa.RecordBatch]):
    """The batches of an open index file; all but the last have the same length, by which rows are found.

    Reading one reads its description alone, some kB; the columns are mapped, and checked where they are asked for.
    Thread-safe.

    Raises `CorruptDataError` with `remedy` where a batch of the file at `path` cannot be read or has another length.
    """

    def __init__(self, reader: pa.ipc.RecordBatchFileReader, path: Path, remedy: str) -> None:
        self._reader, self._path, self._remedy = reader, path, remedy
        self._kept: dict[int, tuple[pa.RecordBatch, dict[str, Any]]] = {}  # with its checksums
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._reader.num_record_batches)

    def __getitem__(self, number: Any) -> Any:
        return self._with_checksums(number)[0]

    def check_column(self, number: int, name: str) -> None:
        """Raises `ValueError` where the bytes of a column of a batch are not those that were written."""
        batch, known = self._with_checksums(number)
        checksums.check_column(known, name, batch.column(name))

    def dictionary(self, name: str) -> pa.Array:
        """The strings of a dictionary-encoded column; raises `ValueError` where they are not those written."""
        batch, known = self._with_checksums(0)
        dictionary = batch.column(name).dictionary
        checksums.check_dictionary(known, name, dictionary)
        return dictionary

    def _with_checksums(self, number: int) -> tuple[pa.RecordBatch, dict[str, Any]]:
        kept = self._kept.get(number)
        return self._read(range(len(self))[number]) if kept is None else kept

    def _read(self, number: int) -> tuple[pa.RecordBatch, dict[str, Any]]:
        with self._lock:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            try:
                batch, metadata = self._reader.get_batch_with_custom_metadata(number)
                kept = batch, checksums.read_checksums(metadata)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise_unless_damage(self._path, error)
                raise CorruptDataError(f"{self._path}: cannot be read ({error}); {self._remedy}") from error
            if number < len(self) - 1 and batch.num_rows != layout.BATCH_ROWS:
                raise self.other_layout()
            self._kept[number] = kept
        return kept

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
