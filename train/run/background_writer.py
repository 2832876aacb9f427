"""One write at a time in a thread, whose error is raised in the thread that started it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event


class BackgroundWriter:
    """Runs writes in a thread, one after the other, while training goes on.

    An `OSError` or any other error of a write is raised by the next call of `wait` or `start`. A write is a function of
    an event; once that is set, it should raise `AbandonedError`.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="facefeed-checkpoint")
        self._abandoned = Event()
        self._pending: Future[None] | None = None

    def start(self, write: Callable[[Event], None]) -> None:
        """Starts a write, after the one that is in flight, if any."""
        self.wait()
        self._pending = self._executor.submit(write, self._abandoned)

    @property
    def has_failed(self) -> bool:
        """Whether a write has ended with an error that was not raised yet; does not wait for one in flight."""
        return self._pending is not None and self._pending.done() and self._pending.exception() is not None

    def wait(self) -> None:
        """Waits for the write in flight, and raises its error."""
        if self._pending is None:
            return
        try:
            self._pending.result()
        finally:
            if self._pending.done():  # not where Ctrl-C ended the wait
                self._pending = None

    def abandon(self) -> None:
        """Gives up the write in flight."""
        self._abandoned.set()
