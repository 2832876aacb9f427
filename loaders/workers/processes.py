"""Worker processes: how many there are, how they start, and how their deaths are described."""

from __future__ import annotations

import multiprocessing
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import BaseContext, ForkServerContext, SpawnContext
from typing import Any

import cv2

from ...pipeline.dataset.byte_ranges import MAX_OPEN_FILES
from ...pipeline.errors import FacefeedError, UsageError
from ...pipeline.interrupts import exit_with_parent, start_resource_tracker
from ...pipeline.machine import usable_cores
from ..batching.worker_batch import WorkerBatch
from ..torch_internals import send_errors_of_sending
from .fork_server import SIGNALS_TO_ALL, fork_server_is_ready, start_fork_server
from .local_ranks import share_of_cores
from .worker_process import WorkerContext, WorkerProcess

_PRELOAD_IF_IMPORTED = ("albumentations",)  # takes a second to import; preloaded if the caller has imported it

MAIN_GUARD_HINT = (
    "; can a fresh interpreter import the script, with what it runs below `if __name__ == '__main__':`, and all that "
    "was passed to the loader?"
)
"""Hint for errors where workers end before their first batch."""


class WorkerDiedError(FacefeedError, RuntimeError):
    """A worker process ended during an epoch."""

    exit_code = 1


def default_num_workers(local_ranks: int | None = None) -> int:
    """One worker for each usable core that is this rank's; see `share_of_cores`."""
    return share_of_cores(usable_cores(), local_ranks)


def start_method_name(requested: str | BaseContext | None) -> str:
    """The start method of workers: forkserver by default, or spawn; raises `UsageError` on any other."""
    name: Any = "forkserver" if requested is None else requested
    if isinstance(requested, BaseContext):
        name = requested.get_start_method()
    if name == "fork":
        raise UsageError(
            "multiprocessing_context='fork': copies locks that other threads hold, and may hang; take 'forkserver' "
            "(the default) or 'spawn'"
        )
    if name not in ("forkserver", "spawn"):
        raise UsageError(f"multiprocessing_context={requested!r}: must be 'forkserver' or 'spawn'")
    return str(name)


def worker_context(requested: str | BaseContext | None) -> BaseContext:
    """The multiprocessing context of workers; see `start_method_name`.

    The fork server starts at once and imports torch and the loader a single time, while the caller builds the model;
    workers are then forked from it in milliseconds and share its memory.

    Raises `UsageError` where the path of the temporary folder is too long for its socket.
    """
    name = start_method_name(requested)
    context = requested if isinstance(requested, BaseContext) else multiprocessing.get_context(name)
    if name == "forkserver" and type(context) is ForkServerContext:  # Python's, not one of the user's own
        context = WorkerContext()
    if not _is_imported_by_worker():
        if name == "forkserver":
            start_fork_server(*(name for name in _PRELOAD_IF_IMPORTED if name in sys.modules))
        else:
            start_resource_tracker()
    return context


def workers_import_first(context: BaseContext | None) -> bool:
    """Whether workers that start now would wait until torch is imported: with spawn each; else the first of a process.

    False where they cannot start, since the script is being imported by a worker, and with contexts of the user's own.
    """
    if _is_imported_by_worker():
        return False
    if type(context) is WorkerContext:
        return not fork_server_is_ready()
    return isinstance(context, SpawnContext)


def _is_imported_by_worker() -> bool:
    """Whether this process is a worker that starts and imports the script."""
    return bool(getattr(multiprocessing.current_process(), "_inheriting", False))


class WorkerInit:
    """Initializes a worker: only the loader's process ends it, it uses one thread, and may open many files.

    What is sent to all processes of a run, such as Ctrl-C, does not; but with spawn SIGTERM does, by which torch and
    Python end such workers. The user's own `worker_init_fn` runs last. Torch's workers watch their parent, but that is
    the fork server, which lives as long as they do.
    """

    def __init__(self, user_init: Callable[[int], Any] | None) -> None:
        self.user_init = user_init

    def __call__(self, worker_id: int) -> None:
        """Called by torch in the worker."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in {*SIGNALS_TO_ALL} - {signal.SIGINT}:
            if number != signal.SIGTERM or isinstance(multiprocessing.current_process(), WorkerProcess):
                # A program that a transform starts would inherit SIG_IGN, and could not be ended by `terminate()`.
                signal.signal(number, lambda *_: None)
                signal.siginterrupt(number, False)
        exit_with_parent()
        cv2.setNumThreads(0)
        _raise_open_file_limit()
        send_errors_of_sending(_error_of_sending)
        if self.user_init is not None:
            self.user_init(worker_id)


def _raise_open_file_limit() -> None:
    """Raises the limit of open files of this process as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _error_of_sending(batch: Any, error: Exception) -> WorkerBatch | None:
    """What is sent in place of a batch with an output of collate_fn that cannot be pickled; None for other causes."""
    is_of_user = isinstance(batch, WorkerBatch) and batch.collated is not None
    if not is_of_user or not isinstance(error, (pickle.PicklingError, TypeError, AttributeError)):
        return None
    described = UsageError(
        f"collate_fn: its batch cannot be sent from a worker: {error}; return tensors, arrays, numbers and text, and "
        "lists, tuples and dicts of these, or take num_workers=0"
    )
    return WorkerBatch(batch.epoch, batch.step, 0, batch.slot, error=described)


_LIKELY_CAUSES = {-signal.SIGKILL: " (out of memory?)", -signal.SIGBUS: " (is /dev/shm full?)"}


def describe_deaths(workers: list[Any]) -> str:
    """Which workers ended and how, for an error message."""
    deaths = []
    for worker in workers:
        if not worker.is_alive():
            code = worker.exitcode
            how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
            deaths.append(f"worker {worker.pid} {how}{_LIKELY_CAUSES.get(code, '')}")
    return "; ".join(deaths)
