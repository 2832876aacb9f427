"""Progress of a ladder on standard error: one line on a terminal, a line per repeat in a log, or JSON lines."""

from __future__ import annotations

import json
import time
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from ...pipeline.console import duration_text
from .rungs import Rung


class Progress:
    """Context manager that shows progress. as_json: JSON lines instead of text, unless `console` is a terminal."""

    def __init__(self, console: Console, *, as_json: bool = False) -> None:
        self._console, self._as_json = console, as_json
        self._status = console.status("looking what can run here") if console.is_terminal else None
        self._description = "looking what can run here"
        self._num_started = self._num_done = 0
        self._num_total = 1
        self._seconds = 0.0
        self._repeat_started_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def set_total(self, runs: int) -> None:
        """Sets the total number of repeats."""
        self._num_total = runs

    def repeat_started(self, rung: Rung, repeat: int) -> None:
        """Shows that a repeat starts."""
        self._repeat_started_at = time.monotonic()
        self._num_started += 1
        remaining_text = ""
        if self._num_done:
            seconds = (self._num_total - self._num_started + 1) * self._seconds / self._num_done
            remaining_text = f", about {duration_text(seconds)} left"
        self._description = f"{self._num_started} of {self._num_total}: {rung.name}, round {repeat + 1}{remaining_text}"
        self.step(0, 0)

    def step(self, done: int, total: int) -> None:
        """Shows the step of the current repeat."""
        if self._status is not None:
            self._status.update(Text(f"{self._description}: step {done} of {total}" if total else self._description))

    def repeat_ended(self, rung: Rung, repeat: int, **metrics: Any) -> None:
        """Reports a finished repeat with its metrics."""
        self._num_done += 1
        self._seconds += time.monotonic() - self._repeat_started_at
        if self._status is None:
            event = {
                "event": "repeat",
                "rung": rung.name,
                "round": repeat,
                "done": self._num_done,
                "of": self._num_total,
            }
            summary = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in metrics.items())
            text = f"{self._num_done} of {self._num_total}: {rung.name}, round {repeat + 1}: {summary}"
            self._console.print(json.dumps({**event, **metrics}) if self._as_json else text, markup=False)
