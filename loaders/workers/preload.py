"""Imported by the fork server, so that workers are forked with everything already imported.

A process must not fork once it has other threads: they do not exist in the child, the locks they held do. So libraries
that start threads on import are configured not to, before they are imported.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from multiprocessing import synchronize
from types import TracebackType

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy's copy of it, and OpenCV's
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"  # pyarrow's jemalloc
os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it would ask the network in every worker

from ..batching import batch_dataset as batch_dataset  # noqa: PLC0414


def _print_error_of_child(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Prints the error of a child, but that of a worker whose loader ended as it started: no semaphore is left."""
    last = traceback
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if kind is FileNotFoundError and last is not None and last.tb_frame.f_code.co_filename == synchronize.__file__:
        return
    sys.__excepthook__(kind, error, traceback)


# Blocked for the server itself: a process that others start from it may rely on them, as `Process.terminate()` does.
_SIGNALS_OF_CHILDREN = {signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1}
os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS_OF_CHILDREN))

sys.excepthook = _print_error_of_child
gc.collect()
gc.freeze()  # so that collections in workers do not write to these objects, and pages stay shared
