"""Merged units: the file and receipt of each from those of the units that it replaces; several at once, on threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from queue import SimpleQueue

import pyarrow as pa

from ..commit.adoption import adopt_file
from ..commit.publish import write_receipt
from ..commit.unit_file import InputRows, write_unit_file
from ..dataset.manifest import Receipt
from ..dataset.out import OutPaths
from ..errors import CorruptDataError, StoppedError
from ..planning.plan import Unit
from ..planning.run_state import RunState
from ..rows.reuse import SupersededRows


def merge_units(
    run_state: RunState, units: Sequence[Unit], schema: pa.Schema, num_workers: int
) -> Generator[Receipt, None, None]:
    """Merges units on threads, since nearly all of the work releases the interpreter; yields each unit's receipt.

    Of a store, the files that a unit replaces are fetched before it is merged, and their copies removed after it. One
    worker works on this thread. Where the generator is closed, units in progress end after the input at hand and leave
    no file. Raises `CorruptDataError` where rows are damaged, `StoppedError` where the disk fails.
    """
    if num_workers == 1 or len(units) < 2:
        for unit in units:
            yield _merge_unit(run_state, unit, schema)
        return
    yield from _Threads(run_state, units, schema).receipts(min(num_workers, len(units)))


class _Threads:
    """Threads that merge `units`; `receipts` yields what they have done."""

    def __init__(self, run_state: RunState, units: Sequence[Unit], schema: pa.Schema) -> None:
        self._run_state, self._units, self._schema = run_state, units, schema
        self._waiting = deque(units)
        self._results: SimpleQueue[Receipt | Exception] = SimpleQueue()
        self._stop = threading.Event()

    def receipts(self, count: int) -> Generator[Receipt, None, None]:
        """Starts `count` threads; yields each merged unit's receipt, and raises what ends one. Closing it ends them."""
        threads = [threading.Thread(target=self._work, name="facefeed-merge", daemon=True) for _ in range(count)]
        try:
            for thread in threads:
                thread.start()
            for _ in self._units:
                result = self._results.get()
                if isinstance(result, Exception):
                    raise result
                yield result
        finally:
            self._stop.set()
            for thread in threads:
                if thread.ident is not None:  # an interrupt may have come before it was started
                    thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                unit = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._results.put(_merge_unit(self._run_state, unit, self._schema, self._stop.is_set))
            except Exception as error:
                self._results.put(error)
                return


def _merge_unit(
    run_state: RunState, unit: Unit, schema: pa.Schema, is_stopped: Callable[[], bool] = lambda: False
) -> Receipt:
    paths, config_hash = run_state.paths, run_state.config_hash
    receipt = adopt_file(paths, unit, config_hash)
    if receipt is None:
        names = [each.file for each in run_state.receipts.superseded(unit) if each.file]
        with (
            paths.files.fetched([paths.root / name for name in names]),
            closing(SupersededRows(paths, config_hash, schema)) as rows,
        ):
            receipt = write_unit_file(paths, unit, config_hash, schema, _copied(paths, unit, rows, is_stopped))
    return write_receipt(paths, unit, receipt)


def _copied(
    paths: OutPaths, unit: Unit, rows: SupersededRows, is_stopped: Callable[[], bool]
) -> Generator[InputRows, None, None]:
    for entry in unit.inputs:
        if is_stopped():
            raise StoppedError("stopped; run the same command again")
        found = rows.lookup(entry, unit)
        if found is None:
            raise CorruptDataError(
                f"{paths.root}: rows of {entry.video_id} are missing or damaged; run `facefeed precompute SRC "
                f"{paths.root}`, which computes them again and finishes the compaction"
            )
        yield found
