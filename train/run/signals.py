"""Signals that ask for a run's end, noted instead of died of; light, so that they can be from the command's start."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

from ...pipeline.errors import StoppedError

_GENTLY = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
"""Preemption or `kill`; Slurm, before the walltime ends; Ctrl-C; the terminal is gone."""
_BY_PERSON = (signal.SIGINT, signal.SIGHUP)
_INTERRUPTED = 130


class StoppedTrainingError(StoppedError):
    """A signal ended the run between two steps, with a checkpoint; the same command goes on at the next batch.

    `exit_code` is 75, or 130 where a person ended it.
    """

    def __init__(self, signum: int, run: Path, step: int) -> None:
        name = signal.Signals(signum).name
        then = f"after step {step:,}, which is saved in {run}; run the same command again to go on at the next batch"
        super().__init__(
            f"stopped by {name} {then if step else 'before its first step; run the same command again'}",
            figures={"signal": name, "step": step, "run": str(run)},
        )
        if signum in _BY_PERSON:
            self.exit_code = _INTERRUPTED


class Signals:
    """Takes note of the first signal that asks for an end, instead of dying of it; a second Ctrl-C ends at once.

    A context manager; what was set before is set again at its end. In other threads than the main one, where Python
    allows no handlers, signals do as they did.
    """

    def __init__(self) -> None:
        self.received = 0
        self.on_received: Callable[[int], None] = lambda _: None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _GENTLY}
            self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def install(self) -> None:
        """Sets the handlers; again where a Trainer has set its own for SIGTERM, which breaks into ranks' exchanges."""
        for number in _GENTLY if threading.current_thread() is threading.main_thread() else ():
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.received:
            self.received = number
            self.on_received(number)
