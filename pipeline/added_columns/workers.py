"""Units on several processes: each loads the maker once, and ends with the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from queue import SimpleQueue
from typing import Final

import cv2

from ..dataset.added_columns import ColumnSet
from ..dataset.manifest import Receipt
from ..errors import StoppedError, UsageError
from ..execution.capacity import visible_gpus
from ..interrupts import exit_with_parent, signals_blocked_in_children
from .maker import ColumnMaker
from .unit_columns import add_to_unit

LoadMaker = Callable[[], ColumnMaker]
_UNITS_AHEAD: Final = 2
"""Submitted units a worker: so none waits for the driver, and few are lost in an interrupt."""


def add_to_units(
    column_set: ColumnSet, load: LoadMaker, units: Sequence[Receipt], num_workers: int
) -> Generator[Receipt, None, None]:
    """Adds the columns of `units` on `num_workers` processes; yields each unit as it is finished.

    One worker works in this process. Where the generator is closed, units in progress end after the faces at hand.
    Raises `StoppedError` where a process dies, and what `add_to_unit` raises.
    """
    if num_workers == 1 or len(units) < 2:
        maker = _load_same(column_set, load)
        for unit in units:
            add_to_unit(column_set, maker, unit)
            yield unit
        return
    yield from _PoolThread(column_set, load, units, num_workers).finished()


def _load_same(column_set: ColumnSet, load: LoadMaker) -> ColumnMaker:
    """The maker that the command began with; raises `StoppedError` where its file has changed since."""
    maker = load()
    if maker.fingerprint != column_set.fingerprint or not maker.columns.equals(column_set.schema):
        raise StoppedError(
            f"{column_set.source}: has changed since the command began: its fingerprint was "
            f"{column_set.fingerprint!r} and is {maker.fingerprint!r}; columns of two are never mixed: restore the "
            f"file and run the same command again, or run `{column_set.remove_command}` first"
        )
    return maker


class _PoolThread:
    """The pool of processes, on a thread of its own.

    An interrupt raises in the main thread wherever that is. In the midst of a pool's own locks it would leave one of
    them acquired, and the pool could never be shut down. Here the main thread waits on one queue and nothing else.
    """

    def __init__(self, column_set: ColumnSet, load: LoadMaker, units: Sequence[Receipt], num_workers: int) -> None:
        self._units, self._num_workers = units, min(num_workers, len(units))
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._worker_state = (column_set, load, self._stop, self._context.Value("i", 0), visible_gpus())
        self._results: SimpleQueue[Receipt | Exception | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="facefeed-pool", daemon=True)

    def finished(self) -> Generator[Receipt, None, None]:
        """Starts the thread; yields each finished unit, and raises what ended the pool. Closing it ends the pool."""
        try:
            self._thread.start()
            while (result := self._results.get()) is not None:
                if isinstance(result, Exception):
                    raise result
                yield result
        finally:
            self._stop.set()
            if self._thread.is_alive():
                self._thread.join()

    def _run(self) -> None:
        with signals_blocked_in_children(signal.SIGINT):  # the driver handles Ctrl-C
            self._run_units()

    def _run_units(self) -> None:
        others = {*multiprocessing.active_children()}
        executor = ProcessPoolExecutor(
            self._num_workers, self._context, initializer=_start_worker, initargs=self._worker_state
        )
        waiting = list(reversed(self._units))
        running: dict[Future[None], Receipt] = {}
        try:
            while waiting or running:
                while waiting and len(running) < _UNITS_AHEAD * self._num_workers:
                    unit = waiting.pop()
                    running[executor.submit(_run_unit, unit)] = unit
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    future.result()
                    self._results.put(running.pop(future))
        except Exception as error:
            self._results.put(_explained(error))
        finally:
            self._stop.set()
            try:
                executor.shutdown(cancel_futures=True)
            except RuntimeError:  # the system refused its thread: nobody would ever end its processes
                for process in {*multiprocessing.active_children()} - others:
                    process.kill()
                    process.join()
            self._results.put(None)


def _explained(error: Exception) -> Exception:
    """What an error of the pool means to the user, caused by it; any other error is itself."""
    if isinstance(error, BrokenProcessPool):
        explained: Exception = StoppedError(
            "a worker process ended unexpectedly (out of memory? a script without `if __name__ == '__main__'`?); files "
            "of finished units are kept; run the same command again, perhaps with fewer --workers"
        )
    elif isinstance(error, (pickle.PicklingError, AttributeError, TypeError)):
        explained = UsageError(
            f"the maker cannot be sent to worker processes ({error}); define it in a module, or take workers=1"
        )
    else:
        return error
    explained.__cause__ = error
    return explained


class _Worker:
    """State of a worker process."""

    column_set: ColumnSet
    load: LoadMaker
    stop: Event
    maker: ColumnMaker | None = None


def _start_worker(column_set: ColumnSet, load: LoadMaker, stop: Event, ordinal: object, gpus: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a maker imports may unblock it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    exit_with_parent()
    with ordinal.get_lock():  # type: ignore[attr-defined]  # a synchronized integer
        number = ordinal.value  # type: ignore[attr-defined]
        ordinal.value += 1  # type: ignore[attr-defined]
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
    cv2.setNumThreads(1)
    _Worker.column_set, _Worker.load, _Worker.stop = column_set, staticmethod(load), stop


def _run_unit(unit: Receipt) -> None:
    if _Worker.maker is None:
        _Worker.maker = _load_same(_Worker.column_set, _Worker.load)
    add_to_unit(_Worker.column_set, _Worker.maker, unit, _stop_if_asked)


def _stop_if_asked(num_faces: int) -> None:  # noqa: ARG001 (of those that were computed)
    if _Worker.stop.is_set():
        raise StoppedError("stopped")
