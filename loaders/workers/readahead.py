"""Reading a window's images from storage in long runs before they are asked for in a mixed order."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...pipeline.dataset.index import Index
from ..dataset.selection import Rows

_GAP_BYTES = 64 << 10  # smaller than this is read through, not jumped over
_PIECE_BYTES = 1 << 20


def runs(index: Index, rows: Rows) -> Iterator[tuple[str, int, int]]:
    """The byte ranges `(file, start, end)` that hold these rows' images, in the order of storage, small gaps closed."""
    ordered = np.sort(rows)
    files, starts = index.codes("file", ordered), index.numbers("image_offset", ordered)
    ends = starts + index.numbers("image_bytes", ordered)
    jumps = np.flatnonzero((files[1:] != files[:-1]) | (starts[1:] - ends[:-1] > _GAP_BYTES)) + 1
    bounds = [0, *jumps.tolist(), len(ordered)]
    names = index.names("file")
    for first, after in pairwise(bounds):
        if after > first:
            yield names[int(files[first])], int(starts[first]), int(ends[after - 1])


class ReadAhead:
    """A thread that reads windows into the system's page cache, one after another; it holds nothing itself.

    It ends when this object goes.
    """

    def __init__(self, out: Path, index: Index) -> None:
        self._windows: queue.SimpleQueue[Rows | None] = queue.SimpleQueue()
        threading.Thread(target=_run, args=(out, index, self._windows), name="facefeed-readahead", daemon=True).start()

    def __del__(self) -> None:
        self._windows.put(None)

    def ask(self, rows: Rows) -> None:
        """Reads these rows' images next."""
        self._windows.put(rows)


def _run(out: Path, index: Index, windows: queue.SimpleQueue[Rows | None]) -> None:
    while (rows := windows.get()) is not None:
        for name, start, end in runs(index, rows):
            with suppress(OSError):  # whoever needs the images will say what is wrong
                _read(out / name, start, end)


def _read(path: Path, start: int, end: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for offset in range(start, end, _PIECE_BYTES):
            os.pread(descriptor, min(_PIECE_BYTES, end - offset), offset)
    finally:
        os.close(descriptor)
