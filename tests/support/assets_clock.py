"""A clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """In place of a module's `clock`; seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
