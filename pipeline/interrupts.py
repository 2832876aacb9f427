"""Ctrl-C in a command: the first stops it in order, the second kills the process and all its children.

But in an import the first ends the process at once: what is imported may swallow an exception.
A child ends with the process that started it, also where that is killed and can stop nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from .errors import INTERRUPTED

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED_MESSAGE = "interrupted; run the same command again"


def end_when_interrupted() -> None:
    """SIGINT, SIGTERM and SIGHUP end the process at once, with a line and `INTERRUPTED`: before a command begins."""
    _handle_with(_end)


def raise_when_interrupted() -> None:
    """SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt`; in an import they end the process as it begins.

    What is imported may swallow the exception, turn it into another one, or stay in `sys.modules` without its names.
    """
    _handle_with(_raise)


def exit_when_interrupted(code: int) -> None:
    """SIGINT, SIGTERM and SIGHUP end the process with the code of its command, which is done.

    Python takes tenths of a second to end, and waits for threads that run.
    """
    with suppress(OSError, ValueError):  # closed, or nobody reads it
        if sys.stdout is not None:  # as where the process began without it
            sys.stdout.flush()
    _handle_with(lambda *_: os._exit(code))


def ignore_interrupts() -> None:
    """Ignores SIGINT, SIGTERM and SIGHUP from now on, at the end of a process: its exit code stays what it is.

    As the interpreter shuts down, it resets handlers, and a signal would then kill the process.
    """
    _handle_with(signal.SIG_IGN)


def _handle_with(handler: Any) -> None:
    for number in _STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # by nohup, or by the shell of a job in the background
            signal.signal(number, handler)


def _raise(signum: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        _end(signum, frame)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _end(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 (signal's signature)
    try:
        _show_cursor()
        os.write(2, f"facefeed: {INTERRUPTED_MESSAGE}\n".encode())
        if "--json" in sys.argv:
            os.write(1, f'{{"error": "{INTERRUPTED_MESSAGE}", "exit": {INTERRUPTED}}}\n'.encode())
    finally:  # also where the terminal is lost
        os._exit(INTERRUPTED)


@contextmanager
def signals_blocked_in_children(*numbers: signal.Signals) -> Iterator[None]:
    """Blocks signals in processes that this thread starts meanwhile; SIGINT, which a terminal sends to all, for one.

    Else each would print the traceback of whatever it was importing, or end. Who starts them ends them.
    """
    start_resource_tracker()  # which would unblock some of them
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_resource_tracker() -> None:
    """Starts the process by which Python frees what processes share, so that no signal to all processes ends it.

    The next one would print a traceback for each resource that it does not know. SIGINT and SIGTERM it ignores itself;
    a lost terminal sends SIGHUP, a batch system SIGUSR1.
    """
    from multiprocessing import resource_tracker  # noqa: PLC0415 (handlers are set before it is imported)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGUSR1])
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def exit_with_parent() -> None:
    """Ends this process as soon as the one that started it by `multiprocessing` has ended, also where that was killed.

    Else it would wait for work for ever, and its shared memory would not be freed.
    """
    from multiprocessing import parent_process  # noqa: PLC0415 (handlers are set before it is imported)
    from multiprocessing.connection import wait  # noqa: PLC0415

    if (parent := parent_process()) is None:
        return

    def exit_after_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=exit_after_parent, name="facefeed-parent", daemon=True).start()


@contextmanager
def sigint_handler_kept() -> Iterator[None]:
    """Keeps the handler of SIGINT where code that runs in the block sets another, as an import of dask-jobqueue does.

    Its handler would end the process with exit code 0.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            signal.signal(signal.SIGINT, before)


@contextmanager
def stop_signals_deferred() -> Iterator[None]:
    """Gives SIGINT, SIGTERM and SIGHUP to the handlers that were set before only when the block has ended.

    Blocking them does not suffice, since any thread may receive them. Where no handler was set, `KeyboardInterrupt` is
    raised. Ignored signals stay ignored. For the main thread; elsewhere, where Python allows no handlers, it does
    nothing.
    """
    received: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in _STOP_SIGNALS:
            if signal.getsignal(name) not in (signal.SIG_IGN, None):
                handlers[name] = signal.signal(name, lambda number, _: received.append(number))
    try:
        yield
    finally:  # a block that failed may have done so because its processes received the signal too
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in received:
            if not callable(handlers[number]):
                raise KeyboardInterrupt
            handlers[number](number, None)


@contextmanager
def handle_interrupts(on_first: Callable[[], None]) -> Iterator[None]:
    """Calls `on_first` at the first SIGINT, SIGTERM or SIGHUP and kills everything at the second; for the main thread.

    The signal handlers that are set still decide what the first one does, but Python runs them only between bytecodes,
    which a call into a library may delay. `on_first` is not delayed: a thread reads signals from the wakeup descriptor.
    """
    import psutil  # noqa: F401, PLC0415 (that the thread need not wait for it; not before a command's handlers are set)

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=_watch_signals, args=(reader, on_first), name="facefeed-interrupts", daemon=True)
    try:
        thread.start()
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        if thread.ident is not None:  # the system may refuse a thread
            thread.join()
        os.close(reader)


def _watch_signals(reader: int, on_first: Callable[[], None]) -> None:
    was_requested = False
    while number := os.read(reader, 1):
        if number[0] not in _STOP_SIGNALS:
            continue
        if was_requested:
            _kill_children()
            _end(number[0], None)
        was_requested = True
        on_first()


def _kill_children() -> None:
    import psutil  # noqa: PLC0415 (imported already, by `handle_interrupts`)

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            process.kill()


def _show_cursor() -> None:
    """Shows the cursor again, which a progress bar has hidden."""
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\n")
