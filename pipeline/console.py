"""Console output on standard error: escapes control characters, survives a closed pipe, formats figures and names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text


class _StderrConsole(Console):
    """A rich console that goes quiet, instead of ending the process, when its pipe is closed (`2>&1 | head`).

    In a terminal lines wrap at words, unless a path is longer than a line: it stays one, so that it can be copied. In a
    file or a pipe nothing wraps.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich's, with its options."""
        words = (word for item in objects if isinstance(item, str) for word in item.split())
        if self.is_terminal and all(len(word) <= self.width for word in words):
            options = {"soft_wrap": False, "crop": False, **options}
        super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Called by rich, whose default is to end the process."""
        self.quiet = True
        null_fd = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_fd, sys.stderr.fileno())
        os.close(null_fd)


class StatusBar(Progress):
    """A progress bar with a status line below it, in rich's markup, which would not fit beside it in 80 columns.

    unit: of what the bar counts, such as "inputs". refresh_per_second: how often both are drawn.
    """

    status_line = ""

    def __init__(self, console: Console | None, unit: str, *, refresh_per_second: float = 10) -> None:
        columns = SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn()
        super().__init__(*columns, console=console, refresh_per_second=refresh_per_second)

    def get_renderables(self) -> Iterable[RenderableType]:
        """What rich draws at each refresh."""
        yield from super().get_renderables()
        yield Text.from_markup(f"  {self.status_line}")


def stderr_console() -> Console:
    """Returns a console on standard error without emoji codes: ``:boom:`` may be part of a file's name."""
    return _StderrConsole(file=sys.stderr, highlight=False, soft_wrap=True, emoji=False)


def printable(text: str) -> str:
    r"""Escapes control characters, which file names may contain, so that a terminal does not interpret them.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def duration_text(seconds: float) -> str:
    """Formats a duration: seconds with one decimal below a minute, else ``h:mm:ss``.

    >>> duration_text(18.94), duration_text(3725)
    ('18.9 s', '1:02:05')
    """
    rounded = round(seconds)
    if rounded < 60:
        return f"{seconds:.1f} s"
    return f"{rounded // 3600}:{rounded // 60 % 60:02}:{rounded % 60:02}"


def percent(share: float) -> str:
    """Formats a share as a percentage; one that is nearly nothing or nearly all is neither 0 % nor 100 %.

    >>> [percent(share) for share in (0.314, 0.0234, 0.05, 0.0001, 0.0, -0.0001)]
    ['31 %', '2.3 %', '5 %', 'under 0.1 %', '0 %', '0 %']
    >>> [percent(share) for share in (0.99, 0.9949, 0.9996, 1.0, 1.234)]
    ['99 %', '99.5 %', 'over 99.9 %', '100 %', '123 %']
    """
    if 0 < share < 0.0005:
        return "under 0.1 %"
    if 0.9995 <= share < 1:
        return "over 99.9 %"
    digits = int(share < 0.1 or 0.99 < share < 1)
    return f"{round(share * 100, digits) + 0.0:.{digits}f}".removesuffix(".0") + " %"  # + 0.0: no "-0"


def first_names(names: Sequence[str], at_most: int = 3) -> str:
    """Lists the first few names, and how many more there are.

    >>> first_names(["a", "b"]), first_names(["a", "b", "c", "d", "e"])
    ('a, b', 'a, b, c and 2 more')
    """
    num_more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {num_more:,} more" if num_more > 0 else "")


def plural(count: int, noun: str, plural_noun: str | None = None) -> str:
    """Formats a count with its noun, in the singular or the plural.

    >>> plural(1, "face"), plural(12345, "face"), plural(2, "identity", "identities")
    ('1 face', '12,345 faces', '2 identities')
    """
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"
