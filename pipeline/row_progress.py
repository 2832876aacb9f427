"""Progress of commands that go through the rows of a dataset, on standard error."""

from __future__ import annotations

import json
import time
from typing import Any, Final

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from .console import printable, stderr_console

_LINE_SECONDS: Final = 5.0


class RowProgress:
    """How many rows are done: a bar on a terminal, JSON lines in a pipe. A context manager."""

    def __init__(self) -> None:
        self._console = stderr_console()
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("rows"), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Bar(*columns, console=self._console, disable=not self._console.is_terminal)
        self._started = self._line_at = time.monotonic()
        self._before = 0
        self._is_stopping = False

    def __enter__(self) -> RowProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def on_progress(self, done: int, total: int) -> None:
        """Called with the rows that are done and all rows, each time some more are done.

        Raises `KeyboardInterrupt` after `on_stopping`: code of the user's may have caught the first.
        """
        if self._is_stopping:
            raise KeyboardInterrupt
        if not self._bar.task_ids:
            self._bar.add_task("rows", total=total, completed=done)
            self._started, self._before = time.monotonic(), done
        self._bar.update(self._bar.task_ids[0], completed=done)
        now = time.monotonic()
        if not self._console.is_terminal and (now - self._line_at >= _LINE_SECONDS or done == total):
            self._line_at = now
            seconds = now - self._started
            pace = (done - self._before) / max(seconds, 1e-9)
            self._event(
                "progress", rows=done, rows_total=total, rows_per_second=round(pace, 1),
                eta_seconds=round((total - done) / pace) if pace else None, seconds=round(seconds, 1),
            )  # fmt: skip

    def on_wait(self, reason: str) -> None:
        """Reports why the command waits."""
        self._report(reason, "waiting", why=reason)

    def on_stopping(self) -> None:
        """Reports that the command is stopping; from any thread."""
        self._is_stopping = True
        self._report("stopping, files of finished units are kept; once more ends at once", "stopping")

    def _report(self, text: str, event: str, **values: Any) -> None:
        if self._console.is_terminal:
            self._console.print(escape(printable(text)))
        else:
            self._event(event, **values)

    def _event(self, event: str, **values: Any) -> None:
        self._console.print(json.dumps({"event": event, **values}), markup=False)
