"""The console on standard error, and how durations, counts and untrusted text are formatted for it."""

from __future__ import annotations

import os
import sys

from rich.console import Console


class _StandardError(Console):
    """A rich console that survives a closed pipe (`2>&1 | head`): the work continues without output."""

    def on_broken_pipe(self) -> None:
        """Drops further output; rich by default ends the process."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def standard_error() -> Console:
    """Returns a console on standard error, without emoji: ``:boom:`` may be part of a file's name."""
    return _StandardError(file=sys.stderr, highlight=False, soft_wrap=True, emoji=False)


def visible(text: str) -> str:
    r"""Escapes control characters, such as a file's name may hold, so that the terminal does not act on them.

    >>> print(visible("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def duration_text(seconds: float) -> str:
    """Formats a duration: seconds below a minute, else hours:minutes:seconds.

    >>> duration_text(18.94), duration_text(3725)
    ('18.9 s', '1:02:05')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def many(count: int, one: str, more: str | None = None) -> str:
    """Formats a count with its noun, singular or plural.

    >>> many(1, "face"), many(12345, "face"), many(2, "identity", "identities")
    ('1 face', '12,345 faces', '2 identities')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"
