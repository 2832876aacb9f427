"""Deferred handling of SIGTERM, SIGUSR1, SIGINT and SIGHUP; light, so that it starts with the command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from ...pipeline.errors import INTERRUPTED, StoppedError

_HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
"""Preemption or `kill`; Slurm before the time limit; Ctrl-C; a lost terminal."""
_INTERACTIVE = (signal.SIGINT, signal.SIGHUP)


class StoppedTrainingError(StoppedError):
    """A signal ended the run between two steps, with a checkpoint; the same command resumes at the next batch.

    step: that of the checkpoint, 0 before the first; None where the run has one that was not loaded yet. `exit_code` is
    75, or 130 for Ctrl-C and a lost terminal.
    """

    def __init__(self, signum: int, run: Path, step: int | None) -> None:
        name = signal.Signals(signum).name
        when = "before its first checkpoint; run the same command again"
        if step is None:
            when = f"before it had loaded its checkpoint, which stays in {run}; run the same command again to resume"
        elif step:
            when = (
                f"after step {step:,}, which is saved in {run}; run the same command again to resume at the next batch"
            )
        super().__init__(
            f"stopped by {name} {when}",
            details={"signal": name, "step": step, "run": str(run)},
        )
        if signum in _INTERACTIVE:
            self.exit_code = INTERRUPTED


class Signals:
    """Context manager that records the first termination signal instead of dying; a second Ctrl-C ends at once.

    Restores the previous handlers at its end. Signals that are ignored, as nohup does SIGHUP, stay so. Does nothing in
    other threads than the main one, where Python allows no handlers.
    """

    def __init__(self) -> None:
        self.received = 0
        self.on_received: Callable[[int], None] = lambda _: None
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in _HANDLED}
            self._previous_handlers = {n: handler for n, handler in handlers.items() if handler is not signal.SIG_IGN}
            self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        self._previous_handlers = {}

    def install(self) -> None:
        """Sets the handlers. Call it again after a Trainer has set its own, which interrupts collective calls."""
        for number in self._previous_handlers:
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.received:
            self.received = number
            self.on_received(number)
