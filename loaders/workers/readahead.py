"""Reads a window's images from storage in long sequential runs, before workers request them in shuffled order."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from ...pipeline.dataset.index_like import IndexLike
from ...pipeline.dataset.stores.counts import StoreCounts
from ...pipeline.errors import CorruptDataError, FacefeedError
from ..dataset.selection import Rows
from ..dataset.store_datasets import StoreDataset, StoreDatasets

_MAX_GAP_BYTES = 64 << 10  # smaller gaps are read, not skipped
_READ_BYTES = 1 << 20
_RUNS_AT_A_TIME = 32


def byte_runs(index: IndexLike, rows: Rows) -> Iterator[tuple[str, int, int]]:
    """Yields the byte ranges `(file, start, end)` of these rows' images in storage order, merged across small gaps."""
    ordered = np.sort(rows)
    files, starts = index.codes("file", ordered), index.numbers("image_offset", ordered)
    ends = starts + index.numbers("image_bytes", ordered)
    breaks = np.flatnonzero((files[1:] != files[:-1]) | (starts[1:] - ends[:-1] > _MAX_GAP_BYTES)) + 1
    bounds = [0, *breaks.tolist(), len(ordered)]
    names = index.categories("file")
    for first, after in pairwise(bounds):
        if after > first:
            yield names[int(files[first])], int(starts[first]), int(ends[after - 1])


class ReadAhead:
    """Reads windows into the system's page cache on a thread, one after another; keeps no data itself.

    What is in `stores` is fetched into their cache instead. The thread ends when this object is deleted.
    """

    def __init__(self, out: Path, index: IndexLike, stores: StoreDatasets = StoreDatasets()) -> None:  # noqa: B008 (frozen)
        self._windows: queue.SimpleQueue[Rows | None] = queue.SimpleQueue()
        self._stores, self._is_over = stores.for_another_thread(), threading.Event()
        arguments = out, index, self._stores, self._windows, self._is_over
        threading.Thread(target=_run, args=arguments, name="facefeed-readahead", daemon=True).start()

    def __del__(self) -> None:
        self._is_over.set()
        self._windows.put(None)

    def take_counts(self) -> StoreCounts | None:
        """What reading from stores took since the last call; None without stores."""
        return self._stores.take_counts()

    def submit(self, rows: Rows) -> None:
        """Queues these rows' images to be read."""
        self._windows.put(rows)


def _run(
    out: Path,
    index: IndexLike,
    stores: StoreDatasets,
    windows: queue.SimpleQueue[Rows | None],
    is_over: threading.Event,
) -> None:
    while (rows := windows.get()) is not None:
        for name, start, end in _undamaged_runs(index, stores.local(rows)):
            with suppress(OSError):  # the worker that needs the images reports the error
                _read(out / name, start, end)
        for dataset in stores.datasets:
            _fetch(dataset, rows, is_over)


def _undamaged_runs(index: IndexLike, rows: Rows) -> Iterator[tuple[str, int, int]]:
    """Their `byte_runs`; none where the index is damaged, which the worker that needs the images reports."""
    with suppress(CorruptDataError):
        yield from byte_runs(index, rows)


def _fetch(dataset: StoreDataset, rows: Rows, is_over: threading.Event) -> None:
    """Fetches the blocks of a window, a few runs at a time, until the loader no longer needs them."""
    runs = _undamaged_runs(dataset.index, dataset.own_rows(rows))
    while (some := [*islice(runs, _RUNS_AT_A_TIME)]) and not is_over.is_set():
        with suppress(FacefeedError):  # the worker that needs the images reports the error
            dataset.reader.read_ahead(some)


def _read(path: Path, start: int, end: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # does not wait for a pipe's writer
    try:
        for offset in range(start, end, _READ_BYTES):
            os.pread(descriptor, min(_READ_BYTES, end - offset), offset)
    finally:
        os.close(descriptor)
