"""Ctrl-C in a command: the first stops it in order, the second kills the process and all its children."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from .errors import INTERRUPTED

_STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextmanager
def handle_interrupts(on_first: Callable[[], None]) -> Iterator[None]:
    """Calls `on_first` at the first SIGINT, SIGTERM or SIGHUP and kills everything at the second; for the main thread.

    The signal handlers that are set still decide what the first one does, but Python runs them only between bytecodes,
    which a call into a library may delay. `on_first` is not delayed: a thread reads signals from the wakeup descriptor.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=_watch_signals, args=(reader, on_first), name="facefeed-interrupts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        thread.join()
        os.close(reader)


def _watch_signals(reader: int, on_first: Callable[[], None]) -> None:
    was_requested = False
    while number := os.read(reader, 1):
        if number[0] not in _STOP_SIGNALS:
            continue
        if was_requested:
            _kill_process_tree()
        was_requested = True
        on_first()


def _kill_process_tree() -> None:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h\n")  # show the cursor again: a progress bar has hidden it
    os._exit(INTERRUPTED)
