"""What a person sees of a dry run, on standard error; and its figures for `--json`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich import filesize
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..errors import TooManyFailedError
from ..schema import SPLITS
from ..terminal import duration_text, standard_error, visible
from .forecast import Forecast, Range
from .run import DryRun
from .survey import Survey

_NAMED = 10
_MOST_CLASSES = 6


def figures(made: DryRun, allowed: int) -> dict[str, Any]:
    """All of it, for programs; `allowed`: how many inputs may fail."""
    return {
        "survey": vars(made.survey),  # `asdict` makes other things of a Counter
        "pending": made.pending,
        "failed_of_tried": made.failed,
        "partial_of_tried": made.partial,
        "forecast": made.forecast.to_json() if made.forecast else None,
        "seconds": round(made.seconds, 2),
        "exit": exit_code(made, allowed),
    }


def exit_code(made: DryRun, allowed: int) -> int:
    """1 where the run would be refused; 3 where more inputs than `allowed`, or all, cannot even be listed."""
    if made.survey.leak is not None:
        return 1
    failed = made.survey.refused.total()
    return TooManyFailedError.exit_code if failed > allowed or failed == made.survey.inputs else 0


def show(made: DryRun, src: Path, allowed: int) -> None:
    """What was found, then what it will take; `allowed`: how many inputs may fail."""
    console = standard_error()
    survey = made.survey
    console.print(escape(visible(f"{src}: layout {survey.layout}")))
    length = duration_text(3600 * survey.hours)
    hours = "" if not survey.hours else f", {length} of video (by {survey.headers_read:,} headers)"
    todo = "" if survey.new == survey.inputs else f"; {survey.new:,} of them to do"
    console.print(f"{survey.inputs:,} inputs, {filesize.decimal(survey.size_bytes)}{hours}{todo}")
    console.print(_splits(survey))
    for line in _remarks(survey):
        console.print(escape(visible(line)))
    for line in survey.caveats:
        console.print(f"[yellow]warning: {escape(visible(line))}[/]")
    if survey.leak:
        console.print(f"[bold red]would be refused:[/] {escape(visible(survey.leak))}")
    code = exit_code(made, allowed)
    if code == TooManyFailedError.exit_code:
        console.print(
            f"[bold red]would end with exit 3:[/] {survey.refused.total():,} of {survey.inputs:,} inputs fail before "
            f"they are read; at most {allowed:,} may fail (--max-failed)"
        )
    if not made.pending:
        console.print("nothing to do")
    elif made.forecast is None:
        console.print("no forecast: none of the inputs could be tried")
    else:
        _forecast(made, made.forecast, console)
    if made.pending and not code:
        console.print("next: the same command without --dry-run")


def _forecast(made: DryRun, found: Forecast, console: Console) -> None:
    console.print(
        f"\n[bold]forecast[/] for {found.slots} workers, from {found.probed} inputs tried in "
        f"{duration_text(made.seconds)}"
    )
    console.print(f"  time   {_range(found.seconds, duration_text)}")
    console.print(f"  disk   {_range(found.size_bytes, lambda value: filesize.decimal(round(value)))}")
    console.print(f"  faces  {_range(found.faces, lambda value: f'{value:,.0f}')}")
    if made.failed:
        reasons = ", ".join(f"{count} {reason}" for reason, count in made.failed.most_common())
        console.print(f"  [red]failed[/] {made.failed.total()} of those that were tried: {reasons}")
    if made.partial:
        console.print(f"  [yellow]partial[/] {made.partial} of those that were tried: some of their frames are damaged")


def _splits(survey: Survey) -> Table:
    names = Counter[str]()
    for counts in survey.by_split.values():
        names.update(counts)
    classes = [name for name, _ in names.most_common(_MOST_CLASSES)]
    table = Table(title="inputs", title_justify="left", title_style="bold")
    table.add_column("split")
    for name in (*classes, *(["others"] if len(names) > len(classes) else []), "all"):
        table.add_column(escape(visible(name)), justify="right")
    for split in SPLITS:
        counts = survey.by_split.get(split, Counter())
        shown = [counts[name] for name in classes]
        others = [counts.total() - sum(shown)] if len(names) > len(classes) else []
        table.add_row(split, *(f"{count:,}" for count in (*shown, *others, counts.total())))
    return table


def _remarks(survey: Survey) -> list[str]:
    lines = [
        f"{survey.groups:,} groups; each stays within one split; the largest holds {survey.largest_group:,} inputs"
    ]
    if survey.dropped_identities:
        names = ", ".join(survey.dropped_identities[:_NAMED])
        lines.append(f"identities that link over 30 % of all videos are dropped from the split: {names}")
    if survey.fakes:
        lines.append(
            f"{survey.fakes - survey.without_original:,} of {survey.fakes:,} inputs that name an original have it "
            "here, and will be compared with it"
        )
    if survey.missing:
        named = ", ".join(survey.missing_files[:_NAMED]) + (", ..." if survey.missing > _NAMED else "")
        lines.append(f"{survey.missing:,} listed in metadata, but absent on disk: {named}")
    if survey.refused:
        reasons = ", ".join(f"{count} {reason}" for reason, count in survey.refused.most_common())
        lines.append(f"{survey.refused.total():,} will fail: {reasons}")
    if survey.ignored:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in survey.ignored.most_common(_NAMED))
        lines.append(f"ignored: {kinds}")
    return lines


def _range(figure: Range, text: Any) -> str:
    return f"[bold]{text(figure.likely)}[/]  ({text(figure.low)} to {text(figure.high)}, nine times out of ten)"
