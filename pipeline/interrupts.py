"""Ctrl-C, answered at once: the first stops in order, the second ends this process and all below it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from .errors import INTERRUPTED

_REQUESTS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextmanager
def answered_at_once(on_first: Callable[[], None]) -> Iterator[None]:
    """For a command's main thread: calls `on_first` at the first request to stop, and ends everything at the second.

    What the first one does is left to the handlers that are set, which may have to wait for a call into a library; what
    is done here does not, since it is the arrival that a thread of ours reads, from Python's wakeup descriptor.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=_answer, args=(reader, on_first), name="facefeed-interrupts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()
        os.close(reader)


def _answer(reader: int, on_first: Callable[[], None]) -> None:
    asked = False
    while number := os.read(reader, 1):
        if number[0] not in _REQUESTS:
            continue
        if asked:
            _end_all()
        asked = True
        on_first()


def _end_all() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h\n")  # a progress bar had hidden the cursor
    os._exit(INTERRUPTED)
