"""Console report of a dry run, and its result as JSON for `--json`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich import filesize
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..console import duration_text, plural, printable, stderr_console
from ..dataset.schema import SPLITS
from ..dataset.stores.address import without_credentials
from .forecast import Forecast, Range
from .machine_load import is_busy
from .run import DryRunResult
from .survey import Survey
from .verdict import exit_code, expected_failure, failure_remedy

_MAX_NAMED = 10
_MAX_CLASSES = 6


def dry_run_json(result: DryRunResult, allowed: int) -> dict[str, Any]:
    """The result as JSON values; `allowed`: number of inputs that may fail."""
    return {
        "survey": vars(result.survey),  # `asdict` makes other things of a Counter
        "pending": result.pending,
        "copied": result.copied,
        "tried": result.tried,
        "failed_of_tried": Counter(failure.reason for failure in result.failures),
        "failures": [failure._asdict() for failure in result.failures],
        "partial_of_tried": result.partial,
        "forecast": result.forecast.to_json() if result.forecast else None,
        "seconds": round(result.seconds, 2),
        "exit": exit_code(result, allowed),
    }


def print_dry_run(result: DryRunResult, src: str | Path, allowed: int) -> None:
    """Prints the survey, the forecast and the trials; `allowed`: number of inputs that may fail."""
    console = stderr_console()
    survey = result.survey
    evidence = f" (found: {survey.recognised_by})" if survey.recognised_by else ""
    console.print(escape(printable(f"{without_credentials(src)}: layout {survey.layout}{evidence}")))
    hours = ""
    if survey.hours and survey.headers_read:
        hours = f", {duration_text(3600 * survey.hours)} of video (by {survey.headers_read:,} headers)"
    todo = "" if result.pending == survey.inputs else f"; {result.pending:,} of them to do"
    console.print(f"{survey.inputs:,} inputs, {filesize.decimal(survey.size_bytes)}{hours}{todo}")
    if survey.clips:
        console.print(f"of these, {plural(survey.clips, 'clip')} of {plural(survey.images, 'image')}")
    console.print(_splits(survey))
    for line in _remarks(survey):
        console.print(escape(printable(line)))
    for line in survey.caveats:
        console.print(f"[yellow]warning: {escape(printable(line))}[/]")
    if survey.leak:
        console.print(f"[bold red]would be refused:[/] {escape(printable(survey.leak))}")
    if result.forecast is None:
        console.print(_why_no_forecast(result))
    else:
        _forecast(result, result.forecast, console)
    _trials(result, console)
    if why := expected_failure(result, allowed):
        console.print(f"[bold red]would end with exit {exit_code(result, allowed)}:[/] {escape(printable(why))}")
        console.print(escape(printable(failure_remedy(result, allowed))))
    elif (result.pending or result.copied) and not exit_code(result, allowed):
        console.print("next: the same command without --dry-run")


def _why_no_forecast(result: DryRunResult) -> str:
    if result.pending:
        return "no forecast: none of the inputs could be tried"
    if result.copied:
        return f"nothing to decode: the run copies the rows of {plural(result.copied, 'input')}"
    return "nothing to do"


def _forecast(result: DryRunResult, forecast: Forecast, console: Console) -> None:
    console.print(
        f"\n[bold]forecast[/] for {plural(forecast.workers, 'worker')}, from {plural(forecast.probed, 'input')} "
        f"tried in {duration_text(result.seconds)}"
    )
    console.print(f"  time            {_range(forecast.seconds, duration_text)}")
    console.print(f"  files of faces  {_range(forecast.size_bytes, lambda value: filesize.decimal(round(value)))}")
    console.print(f"  faces           {_range(forecast.faces, lambda value: f'{value:,.0f}')}")
    for line in uncertainty_notes(forecast):
        console.print(f"  [yellow]{line}[/]")


def uncertainty_notes(forecast: Forecast) -> list[str]:
    """Reasons for wide ranges other than the inputs themselves."""
    lines = []
    if forecast.is_from_few:
        tried = f"{plural(forecast.probed, 'input')} tried, about {1 - forecast.untried:.0%} of the work"
        lines.append(f"the ranges are wide: {tried}")
    if is_busy(forecast.others_per_core):
        lines.append(
            "the range of time is wide: the machine is busy, or was in the last 15 minutes "
            f"({forecast.others_per_core:.1f} other processes a core)"
        )
    return lines


def _trials(result: DryRunResult, console: Console) -> None:
    """Prints the tried inputs that failed or are partial."""
    if result.failures:
        reasons = _counts_text(Counter(failure.reason for failure in result.failures))
        console.print(f"  [red]failed[/] {len(result.failures)} of the {result.tried} that were tried: {reasons}")
        for failure in result.failures[:_MAX_NAMED]:
            console.print(f"    {escape(printable(f'{failure.video_id}: {failure.description}'))}")
        if len(result.failures) > _MAX_NAMED:
            console.print(f"    and {len(result.failures) - _MAX_NAMED} more: --json names all of them")
    if result.partial:
        console.print(
            f"  [yellow]partial[/] {result.partial} of those that were tried: some of their frames are damaged"
        )


def _splits(survey: Survey) -> Table:
    names = sum(survey.by_split.values(), Counter[str]())
    largest = {name for name, _ in names.most_common(_MAX_CLASSES)}
    classes = [name for name in survey.classes if name in largest]
    others = ["others"] if len(names) > len(classes) else []
    table = Table(title="inputs", title_justify="left", title_style="bold")
    table.add_column("split")
    for name in (*classes, *others, "all"):
        table.add_column(escape(printable(name)), justify="right")
    for split in SPLITS:
        counts = survey.by_split.get(split, Counter())
        shown = [counts[name] for name in classes]
        shown += [counts.total() - sum(shown) for _ in others]
        table.add_row(split, *(f"{count:,}" for count in (*shown, counts.total())))
    return table


def _remarks(survey: Survey) -> list[str]:
    lines = [
        _given_splits(survey),
        f"{plural(survey.groups, 'group')}; each stays within one split; the largest holds "
        f"{plural(survey.largest_group, 'input')}",
    ]
    if survey.dropped_identities:
        names = ", ".join(survey.dropped_identities[:_MAX_NAMED])
        lines.append(f"identities that link over 30 % of all videos are dropped from the split: {names}")
    if survey.whole_frames:
        lines.append(
            f"{plural(survey.whole_frames, 'input')} cropped already: each frame is one face, none is searched"
        )
    if survey.own_masks:
        lines.append(f"masks of the set's own are here for {plural(survey.own_masks, 'input')}")
    if survey.fakes:
        compared = "will be compared with it" + (", unless they have a mask of their own" if survey.own_masks else "")
        lines.append(
            f"{survey.fakes - survey.without_original:,} of {survey.fakes:,} inputs that name an original have it "
            f"here, and {compared}"
        )
    if survey.missing:
        named = ", ".join(survey.missing_files[:_MAX_NAMED]) + (", ..." if survey.missing > _MAX_NAMED else "")
        lines.append(f"{survey.missing:,} listed in metadata, but absent on disk: {named}")
    if survey.refused:
        lines.append(f"{survey.refused.total():,} will fail: {_counts_text(survey.refused)}")
    if survey.ignored:
        lines.append(f"files that are no inputs: {_counts_text(survey.ignored, _MAX_NAMED)}")
    return lines


def _given_splits(survey: Survey) -> str:
    if not survey.split_given:
        return "no split is given: all are drawn"
    if survey.split_given == survey.inputs:
        return "the splits of all inputs are given"
    return f"the splits of {survey.split_given:,} of {survey.inputs:,} inputs are given, the others are drawn"


def _range(figure: Range, text: Any) -> str:
    return f"[bold]{text(figure.likely)}[/]  ({text(figure.low)} to {text(figure.high)}, nine times out of ten)"


def _counts_text(counts: Counter[str], most: int | None = None) -> str:
    """`2 empty, 1 truncated`: the `most` frequent, all by default."""
    return ", ".join(f"{count} {name}" for name, count in counts.most_common(most))
