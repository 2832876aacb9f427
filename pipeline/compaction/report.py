"""Console report of `facefeed compact`, on standard error."""

from __future__ import annotations

from rich import filesize
from rich.markup import escape

from ..console import duration_text, plural, printable, stderr_console
from .run import CompactSummary


def print_compacted(summary: CompactSummary, out: str) -> None:
    """Prints how many files were merged into how many, and what to do about added columns that lack rows."""
    console = stderr_console()
    size = filesize.decimal(summary.size_bytes)
    if summary.files == summary.files_before and summary.removed_files:
        text = (
            f"{out}: {plural(summary.removed_files, 'file')} removed that an interrupted run had left; "
            f"{plural(summary.files, 'file')}, {size}"
        )
    elif summary.files == summary.files_before:
        text = f"{out}: nothing to merge: {plural(summary.files, 'file')}, {size}"
    else:
        rate = summary.merged_rows / max(summary.seconds, 1e-9)
        text = (
            f"{out}: {plural(summary.files_before, 'file')} before, {summary.files:,} now, {size}; "
            f"{plural(summary.merged_rows, 'row')} copied at {rate:,.0f} a second; {duration_text(summary.seconds)}"
        )
        if summary.is_resumed:
            text += "; with the --target-mb of the run that began it"
    console.print(escape(printable(text)), style="bold green")
    for columns in summary.incomplete_columns:
        console.print(escape(printable(str(columns))), style="yellow")
