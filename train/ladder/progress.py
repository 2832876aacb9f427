"""How far a ladder is: one line on a terminal, a line a repeat in a log, or JSON; always on standard error."""

from __future__ import annotations

import json
import time
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from ...pipeline.console import duration_text
from .rungs import Rung


class Progress:
    """Use as a context manager. as_json: where `console` is no terminal, one JSON object a line instead of text."""

    def __init__(self, console: Console, *, as_json: bool = False) -> None:
        self._console, self._as_json = console, as_json
        self._status = console.status("looking what can run here") if console.is_terminal else None
        self._doing = "looking what can run here"
        self._begun = self._done = 0
        self._wanted = 1
        self._seconds = 0.0
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def expects(self, runs: int) -> None:
        """How many processes there will be in all."""
        self._wanted = runs

    def begins(self, rung: Rung, repeat: int) -> None:
        """A process starts."""
        self._since = time.monotonic()
        self._begun += 1
        left = (self._wanted - self._begun + 1) * self._seconds / self._done if self._done else None
        then = "" if left is None else f", about {duration_text(left)} left"
        self._doing = f"{self._begun} of {self._wanted}: {rung.name}, round {repeat + 1}{then}"
        self.step(0, 0)

    def step(self, done: int, wanted: int) -> None:
        """It made a step."""
        if self._status is not None:
            self._status.update(Text(f"{self._doing}: step {done} of {wanted}" if wanted else self._doing))

    def ended(self, rung: Rung, repeat: int, **figures: Any) -> None:
        """A process is over; figures: what came of it."""
        self._done += 1
        self._seconds += time.monotonic() - self._since
        if self._status is None:
            event = {"event": "repeat", "rung": rung.name, "round": repeat, "done": self._done, "of": self._wanted}
            came = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figures.items())
            text = f"{self._done} of {self._wanted}: {rung.name}, round {repeat + 1}: {came}"
            self._console.print(json.dumps({**event, **figures}) if self._as_json else text, markup=False)
