"""Console reports of `facefeed add` and `facefeed remove`, on standard error."""

from __future__ import annotations

from rich import filesize
from rich.markup import escape

from ..console import duration_text, plural, printable, stderr_console
from .run import AddSummary


def print_added(summary: AddSummary, out: str) -> None:
    """Prints what was added, and where it can be read."""
    console = stderr_console()
    if summary.units_before:
        console.print(f"{plural(summary.rows_before, 'row')} of {plural(summary.units_before, 'unit')} had them before")
    rate = f" at {summary.rows / max(summary.seconds, 1e-9):,.0f} a second" if summary.rows else ""
    amount = f"{plural(summary.rows, 'row')}{rate}, {filesize.decimal(summary.size_bytes)} in all"
    text = f"{out}: {summary.name}: {', '.join(summary.columns)}; {amount}; {duration_text(summary.seconds)}"
    console.print(escape(printable(text)), style="bold green")
    if unindexed := [name for name in summary.columns if name not in summary.indexed]:
        console.print(escape(f"not in the index, only in {out}/columns/{summary.name}: {', '.join(unindexed)}"))


def print_removed(out: str, name: str, files: int) -> None:
    """Prints what was removed."""
    stderr_console().print(escape(printable(f"{out}: removed {name}: {plural(files, 'file')}")), style="bold green")
