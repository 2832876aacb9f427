"""Standard error as people and programs read it: what a name holds is shown, not acted on; a reader may leave."""

from __future__ import annotations

import os
import sys

from rich.console import Console


class _StandardError(Console):
    """Rich's console, but one whose reader may leave (`2>&1 | head`): the work goes on, unseen."""

    def on_broken_pipe(self) -> None:
        """Called by rich, whose own answer would be to end the process."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def standard_error() -> Console:
    """A console on standard error; ``:boom:`` may be a file's name, and no picture."""
    return _StandardError(file=sys.stderr, highlight=False, soft_wrap=True, emoji=False)


def visible(text: str) -> str:
    r"""Control characters, as a file's name may hold them, in a form that a terminal does not act on.

    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def duration_text(seconds: float) -> str:
    """Seconds for people.

    >>> duration_text(18.94), duration_text(3725)
    ('18.9 s', '1:02:05')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def many(count: int, one: str, more: str | None = None) -> str:
    """A count with its noun.

    >>> many(1, "face"), many(12345, "face"), many(2, "identity", "identities")
    ('1 face', '12,345 faces', '2 identities')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"
