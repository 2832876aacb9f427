"""The processes that make batches: how many, how they start, how their end is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from typing import Any

import cv2

from ...pipeline.errors import FacefeedError, UsageError
from ...pipeline.machine import usable_cores
from ..dataset.byte_ranges import allow_many_files
from .local_ranks import count_local_ranks

_PRELOADED = "facefeed.loaders.workers.preload"
_WITH_TRANSFORMS = ("albumentations",)  # a second in each worker; preloaded too if the caller has it


UNGUARDED = (
    "; can a fresh interpreter import the script, with what it runs below `if __name__ == '__main__':`, and all that "
    "was handed to the loader?"
)
"""What to ask where workers end before their first batch."""


class WorkerDiedError(FacefeedError, RuntimeError):
    """A worker process ended in the middle of an epoch."""

    exit_code = 1


def default_workers(local_ranks: int | None = None) -> int:
    """One worker a usable core, shared among the ranks of this host; None: as many as their launcher says."""
    return max(usable_cores() // (count_local_ranks() if local_ranks is None else local_ranks), 1)


def start_method(wanted: str | BaseContext | None) -> str:
    """The name of the way workers start: forkserver by default, spawn on demand; raises `UsageError` on any other."""
    name = "forkserver" if wanted is None else wanted if isinstance(wanted, str) else _name_of(wanted)
    if name == "fork":
        raise UsageError(
            "multiprocessing_context='fork': copies locks that other threads hold, and may hang; take 'forkserver' "
            "(the default) or 'spawn'"
        )
    if name not in ("forkserver", "spawn"):
        raise UsageError(f"multiprocessing_context={wanted!r}: must be 'forkserver' or 'spawn'")
    return name


def _name_of(context: Any) -> str | None:
    return context.get_start_method() if isinstance(context, BaseContext) else None


def start_context(wanted: str | BaseContext | None) -> BaseContext:
    """What workers start with; see `start_method`.

    The fork server starts at once and imports torch and the loader a single time, while the caller builds the model;
    workers are then copies of it that are ready in milliseconds and share its memory.
    """
    name = start_method(wanted)
    context = multiprocessing.get_context(name) if wanted is None or isinstance(wanted, str) else wanted
    if name == "forkserver":
        ours = [_PRELOADED, *(name for name in _WITH_TRANSFORMS if name in sys.modules)]
        context.set_forkserver_preload(list(dict.fromkeys([*ours, *_wanted_by_others()])))
        if not getattr(multiprocessing.current_process(), "_inheriting", False):  # a worker that imports the script
            with _without_interrupts():
                forkserver.ensure_running()
    return context


def _wanted_by_others() -> list[str]:
    """What the script, or a library, has set the fork server to import; not Python's own choice, the script itself."""
    wanted: list[str] = getattr(forkserver, "_forkserver")._preload_modules  # noqa: B009, SLF001 (typeshed lacks it)
    return [] if wanted == ["__main__"] else wanted


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What starts here never sees Ctrl-C, which a terminal sends to all: the loader's process alone ends its workers.

    Else each would print a trace of its own, of whatever it was importing.
    """
    resource_tracker.ensure_running()  # here, since it lets the signal through again once it has started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerInit:
    """Runs first in every worker: it ends with its loader alone, has one thread, may open many files; then the user's.

    It never sees Ctrl-C from here on, whoever started it: a fork server that others had started before does.
    Torch's workers look after their parent: that is the fork server, which lives as long as they do.
    """

    def __init__(self, then: Callable[[int], Any] | None) -> None:
        self.then = then

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # in all threads, also those that imports have started
        end_with_parent()
        cv2.setNumThreads(0)
        allow_many_files()
        if self.then is not None:
            self.then(worker_id)


def end_with_parent() -> None:
    """Ends this process at once, and with it all that it shares, as soon as the process is gone that wanted it."""
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), name="facefeed-end", daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


_LIKELY = {-signal.SIGKILL: " (out of memory?)", -signal.SIGBUS: " (is /dev/shm full?)"}


def death_of(workers: list[Any]) -> str:
    """Which workers ended and how, for a message."""
    ends = []
    for worker in workers:
        if not worker.is_alive():
            code = worker.exitcode
            how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
            ends.append(f"worker {worker.pid} {how}{_LIKELY.get(code, '')}")
    return "; ".join(ends)
