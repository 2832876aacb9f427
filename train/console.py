"""Standard error as people read it: names are shown, not acted on, and a reader may leave."""

from __future__ import annotations

import os
import sys

from rich.console import Console


class _StandardError(Console):
    """Rich's console, but one whose reader may leave (`2>&1 | head`): training goes on, unseen."""

    def on_broken_pipe(self) -> None:
        """Called by rich, whose own answer would be to end the process."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def standard_error() -> Console:
    """A console on standard error; ``:boom:`` may be a method's name, and no picture."""
    return _StandardError(file=sys.stderr, highlight=False, soft_wrap=True, emoji=False)


def duration_text(seconds: float) -> str:
    """Seconds for people.

    >>> duration_text(18.94), duration_text(3725)
    ('18.9 s', '1:02:05')
    """
    if round(seconds) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
