"""`WorkerWatchdog`: notices the end of a worker at once, whatever it was doing."""

from __future__ import annotations

import os
import threading
import weakref
from multiprocessing.connection import wait
from typing import Any

from ..torch_internals import is_shut_down, kill_workers, workers_of
from .processes import describe_deaths

_JOIN_TIMEOUT_SECONDS = 5.0


class WorkerWatchdog:
    """Waits on a thread for the end of any worker of torch's iterator; then kills the others and describes the death.

    A worker that is killed while it sends leaves half a message in the queue, and the reader blocks for as long as any
    process could still write the rest. Once no such process exists, the reader gets an end-of-file error.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator, self._deaths = weakref.ref(iterator), ""
        self.exited_normally = False
        """Whether all workers that ended exited with code 0, as they do on Ctrl-C."""
        sentinels = [os.dup(worker.sentinel) for worker in workers_of(iterator)]
        self._thread = threading.Thread(target=self._run, args=(sentinels,), name="facefeed-watch", daemon=True)
        self._thread.start()

    def is_watching(self, iterator: Any) -> bool:
        """Whether it watches the workers of this iterator."""
        return self._iterator() is iterator

    def deaths(self, *, has_seen_one: bool = False) -> str:
        """Which workers ended and how, for an error message; empty where all are alive.

        `has_seen_one`: the caller knows that one has ended, which shows here a moment later.
        """
        if has_seen_one:
            self._thread.join(_JOIN_TIMEOUT_SECONDS)
        iterator = self._iterator()
        deaths = "" if self._deaths or iterator is None else describe_deaths(workers_of(iterator))
        if deaths:
            self._thread.join(_JOIN_TIMEOUT_SECONDS)
        return self._deaths or deaths

    def _run(self, sentinels: list[int]) -> None:
        ended: Any = wait(sentinels)[0]
        for sentinel in sentinels:
            os.close(sentinel)
        iterator: Any = self._iterator()
        if iterator is not None and not is_shut_down(iterator):
            workers = workers_of(iterator)
            workers[sentinels.index(ended)].join(_JOIN_TIMEOUT_SECONDS)  # it may not be reaped yet
            self.exited_normally = all(worker.exitcode in (None, 0) for worker in workers)
            self._deaths = describe_deaths(workers)
            kill_workers(iterator)
