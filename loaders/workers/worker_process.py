"""`WorkerContext`: starts workers as `WorkerProcess`es of the fork server, which may ignore SIGTERM."""

from __future__ import annotations

import os
import threading
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.popen_forkserver import Popen
from multiprocessing.process import BaseProcess

from .fork_server import note_fork_server_is_ready


class _WorkerPopen(Popen):
    """The handle of a worker, which two threads may ask at once how it ended.

    Of Python's own, one would read that from the fork server, and the other take its absence for an exit code of 255.
    """

    def __init__(self, process: BaseProcess) -> None:
        self._polling = threading.RLock()
        super().__init__(process)
        note_fork_server_is_ready()

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        with self._polling:
            return super().poll(flag)

    def terminate(self) -> None:
        self.kill()


class WorkerProcess(ForkServerProcess):
    """A process that `terminate` kills, by which torch ends workers that hang, and Python those that are left."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Popen:  # noqa: N802 (multiprocessing's name)
        return _WorkerPopen(process_obj)


class WorkerContext(ForkServerContext):
    """The multiprocessing context "forkserver", with workers as its processes."""

    Process = WorkerProcess
