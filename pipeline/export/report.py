"""Console report of an export, on standard error, its progress, and `--json`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich import filesize
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..console import duration_text, plural, printable, stderr_console
from ..dataset.crops import black_parts
from ..dataset.stores.address import without_credentials
from .destination import RECEIPT, SUMS
from .run import ExportResult

_MAX_NAMED: Final = 10
_MOST_IN_JSON: Final = 100
_REASONS: Final = {
    "smaller_face": "not the largest face of their frame",
    "unlabelled": "of unknown label",
}
_NOTES: Final[dict[str, Callable[[int, int], str]]] = {"beyond_stored_crop": black_parts}


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a callback that shows what is done, how many of how many, on a terminal only."""
    console = stderr_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("export", total=None)
        yield lambda what, done, total: progress.update(bar, description=what, completed=done, total=total)


def print_waiting(text: str) -> None:
    """Prints why the command waits."""
    stderr_console().print(escape(printable(text)))


def print_result(result: ExportResult, out: str | Path) -> None:
    """Prints what DEST holds, which rows it does not hold and why, and findings."""
    console, receipt = stderr_console(), result.receipt
    lines = [f"{plural(count, 'row')} left out: {_REASONS[reason]}" for reason, count in receipt.skipped.items()]
    lines += [_NOTES[note](count, receipt.rows) for note, count in receipt.notes.items()]
    lines += map(str, result.incomplete_columns)
    if result.parts_before:
        lines.append(f"resumed: {result.parts_before:,} of {plural(len(receipt.parts) - 1, 'part')} were there")
    for line in lines:
        console.print(escape(printable(line)))
    _print_damaged(console, result, out)
    for finding in result.check.findings:
        console.print(f"[red]check[/]  {escape(printable(finding))}")
    content = f"{plural(receipt.rows, 'row')} as {receipt.request['form']}, {plural(receipt.files, 'file')}"
    content += f", {filesize.decimal(receipt.size_bytes)}"
    name, style = escape(printable(str(result.root))), "bold yellow" if receipt.damaged else "bold green"
    if result.check.findings:
        console.print(f"{name}: is not what was exported; delete it and export again", style="bold red")
    elif result.was_finished:
        console.print(f"{name}: was exported before; {content}; all files match {SUMS}", style=style)
    else:
        console.print(f"{name}: {content}, in {duration_text(result.seconds)}", style=style)


def _print_damaged(console: Console, result: ExportResult, out: str | Path) -> None:
    """Prints the first damaged rows, a line each, and what to do about them."""
    if not (damaged := result.receipt.damaged):
        return
    console.print(f"[red]damaged[/]  {plural(len(damaged), 'row')} of OUT left out:")
    for face_id in damaged[:_MAX_NAMED]:
        console.print(f"  {escape(printable(face_id))}")
    if len(damaged) > _MAX_NAMED:
        console.print(f"  and {len(damaged) - _MAX_NAMED:,} more: {escape(printable(str(result.root / RECEIPT)))}")
    place = shlex.quote(without_credentials(out))
    remedy = f"run `facefeed verify {place}`, repair OUT as it says, then export to a new folder"
    console.print(escape(printable(remedy)))


def result_json(result: ExportResult) -> dict[str, Any]:
    """The values for `--json`."""
    receipt = result.receipt
    return {
        "form": receipt.request["form"],
        "fingerprint": receipt.fingerprint,
        "added_columns": receipt.added_columns,
        "incomplete_columns": [str(columns) for columns in result.incomplete_columns],
        "rows": receipt.rows,
        "skipped": receipt.skipped,
        "notes": receipt.notes,
        "damaged": len(receipt.damaged),
        "damaged_rows": receipt.damaged[:_MOST_IN_JSON],
        "parts": len(receipt.parts),
        "parts_before": result.parts_before,
        "files": receipt.files,
        "bytes": receipt.size_bytes,
        "was_finished": result.was_finished,
        "findings": result.check.findings,
        "seconds": round(result.seconds, 2),
        "exit": result.exit_code,
    }
