"""Console reports at the end of `precompute` and `verify`, on standard error, and the summary as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import filesize
from rich.control import Control
from rich.markup import escape
from rich.segment import ControlType
from rich.table import Table

from .console import duration_text, first_names, plural, printable, stderr_console
from .dataset.out import OutPaths
from .dataset.stores.address import without_credentials
from .planning.content_hash import conflicting_content_text, equal_inputs_json, repeated_content_text

if TYPE_CHECKING:
    from .dataset.manifest import Manifest
    from .dryrun.forecast import Forecast
    from .execution.progress import Totals
    from .precompute import Summary
    from .verify.findings import VerifyResult

_NAMED = 10
_MOST_IN_JSON = 100


def summary_json(summary: Summary) -> dict[str, Any]:
    """The manifest's figures, which are of OUT, and what this run itself did, as JSON values for `--json`."""
    manifest, totals, changes = summary.manifest, summary.totals, summary.changes
    return {
        "fingerprint": manifest.fingerprint,
        "layout": summary.listing.layout,
        "splits": manifest.splits,
        "units": manifest.units,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "inputs": manifest.inputs,
        "removed": len(manifest.removed),
        "faces_without_mask": manifest.faces_without_mask,
        "faces_with_own_mask": manifest.faces_with_own_mask,
        "own_masks_unused": manifest.own_masks_unused,
        "failures": [failure._asdict() for failure in summary.failures],
        "missing_files": summary.listing.missing[:_MOST_IN_JSON],
        "ignored_files": dict(summary.listing.ignored),
        "equal_content": equal_inputs_json(summary.equal_content.conflicting, _MOST_IN_JSON),
        "repeated_content": equal_inputs_json(summary.equal_content.repeated, _MOST_IN_JSON),
        "part": str(summary.part) if summary.part else None,
        "this_run": {
            "units": totals.units,
            "units_done_elsewhere": totals.units_done_elsewhere,
            "units_in_vain": totals.units_in_vain,
            "inputs": totals.inputs,
            "frames": totals.frames,
            "faces": totals.faces,
            "lost_units": totals.lost_units,
        },
        "units_left": summary.units_left,
        "parts_at_work": summary.parts_at_work,
        "incomplete_columns": [str(columns) for columns in summary.incomplete_columns],
        "changes": {
            "added": len(changes.added),
            "changed": len(changes.changed),
            "rejudged": len(changes.rejudged),
            "same_content": len(changes.touched),
            "gone": len(summary.kept),
            "unreadable": len(summary.unreadable),
            "renamed": len(changes.renamed),
        },
        "forecast": summary.forecast.to_json() if summary.forecast else None,
        "seconds": round(summary.seconds, 2),
        "frames_per_second": round(totals.frames_per_second, 2),
        "exit": 0,
    }


def print_summary(summary: Summary, src: str | Path, out: str | Path) -> None:
    """Prints the tables of rows by split and inputs by outcome, remarks and what is next.

    Of a part of a job, its own figures come first, apart from those of OUT.
    """
    console = stderr_console()
    manifest, place = summary.manifest, without_credentials(out)
    amount = f"{filesize.decimal(manifest.bytes)} in {plural(manifest.units, 'unit')}"
    own = f"{_pace(summary)}; {duration_text(summary.seconds)} in all"
    if summary.part:
        console.print(f"[bold]part {summary.part}[/]: {_share(summary.totals)}; {own}")
        console.print(f"[bold]{escape(printable(place))}, of all parts{' so far' * bool(summary.units_left)}:[/]")
    console.print(_rows(manifest))
    console.print(_inputs(manifest))
    for line in _remarks(summary):
        console.print(escape(printable(line)))
    console.print(amount if summary.part else f"{amount}; {own}")
    if summary.forecast:
        console.print(_forecast(summary.forecast, summary))
    if summary.units_left:
        others = f"of which {summary.parts_at_work or 'none'} {'are' if summary.parts_at_work > 1 else 'is'} at work"
        console.print(
            f"{plural(summary.units_left, 'unit')} left to other parts, {others}; the last part to end finishes the "
            "dataset, or the same command without --part, also if SRC has changed since parts ended"
        )
        return
    account = f"(account: {place}/{OutPaths(Path()).manifest})"
    console.print(escape(printable(f"{without_credentials(src)} -> {place}/faces   {account}")))
    console.print(escape(printable(f"next: facefeed verify {shlex.quote(place)}")))


def _pace(summary: Summary) -> str:
    totals = summary.totals
    if not totals.inputs:
        return "nothing to do"
    return f"{plural(totals.frames, 'frame')} at {totals.frames_per_second:.1f} a second"


def _share(totals: Totals) -> str:
    """What a part of a job did of its share of the units, and what others did of it meanwhile."""
    done = f"{plural(totals.units, 'unit')} of {plural(totals.inputs, 'input')} done, {plural(totals.faces, 'face')}"
    if totals.units_done_elsewhere:
        done += f"; {plural(totals.units_done_elsewhere, 'unit')} skipped, which another process had finished by then"
    if totals.units_in_vain:
        done += f"; {plural(totals.units_in_vain, 'unit')} discarded, which another process published first"
    return done


def _rows(manifest: Manifest) -> Table:
    table = Table(title="rows", title_justify="left", title_style="bold")
    for column in ("split", "faces", "videos"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for name in ("train", "val", "test"):
        counts = manifest.splits.get(name, {})
        table.add_row(name, f"{counts.get('rows', 0):,}", f"{counts.get('videos', 0):,}")
    table.add_section()
    videos = sum(counts["videos"] for counts in manifest.splits.values())
    table.add_row("all", f"{manifest.rows:,}", f"{videos:,}")
    return table


def _forecast(expected: Forecast, summary: Summary) -> str:
    """Compares the dry run's forecast with this run."""
    seconds, size_bytes = expected.seconds, expected.size_bytes
    time_off = 100 * (summary.seconds / max(seconds.likely, 1e-9) - 1)
    size_off = 100 * (summary.totals.size_bytes / max(size_bytes.likely, 1e-9) - 1)
    forecast_text = f"{duration_text(seconds.likely)} ({duration_text(seconds.low)} to {duration_text(seconds.high)})"
    return (
        f"the dry run, with {plural(expected.workers, 'worker')}, predicted {forecast_text} "
        f"and {filesize.decimal(round(size_bytes.likely))} of faces; "
        f"it took {duration_text(summary.seconds)} ({time_off:+.0f} %) "
        f"and made {filesize.decimal(summary.totals.size_bytes)} ({size_off:+.0f} %)"
    )


def _inputs(manifest: Manifest) -> Table:
    inputs = manifest.inputs
    table = Table(title="inputs", title_justify="left", title_style="bold")
    table.add_column("outcome")
    table.add_column("count", justify="right")
    table.add_row("ok", f"{inputs['ok']:,}")
    if inputs["partial"]:
        table.add_row("[yellow]partial[/]", f"{inputs['partial']:,}")
    table.add_row("no faces", f"{inputs['no_faces']:,}")
    for reason, count in inputs["failed"].items():
        table.add_row(f"[red]failed: {escape(reason)}[/]", f"{count:,}")
    table.add_section()
    table.add_row("total", f"{inputs['total']:,}")
    if inputs["missing"]:
        table.add_row("[dim]listed, not on disk[/]", f"[dim]{inputs['missing']:,}[/]")
    if manifest.removed:
        table.add_row("[dim]without rows, removed from SRC[/]", f"[dim]{len(manifest.removed):,}[/]")
    return table


def _remarks(summary: Summary) -> list[str]:
    listing = summary.listing
    lines = [f"layout {listing.layout}: {listing.format_class_counts()}"]
    lines += [f"  {failure.video_id}: {failure.description}" for failure in summary.failures[:_NAMED]]
    if len(summary.failures) > _NAMED:
        lines.append(f"  and {len(summary.failures) - _NAMED:,} more: `facefeed inspect` names all of them on its page")
    if summary.partial:
        count = plural(len(summary.partial), "partial input")
        lines.append(f"{count}, without the damaged frames: {first_names(summary.partial, _NAMED)}")
    if listing.missing:
        lines.append(f"listed in metadata, but absent on disk: {first_names(listing.missing, _NAMED)}")
    lines += _masks(summary.manifest)
    lines += _changes(summary)
    if conflicting := summary.equal_content.conflicting:
        lines.append(f"{conflicting_content_text(conflicting)}; keep one file of each in SRC, and use a new OUT")
    if repeated := summary.equal_content.repeated:
        lines.append(f"{repeated_content_text(repeated)}; a new OUT of one file of each in SRC has it once")
    lines += map(str, summary.incomplete_columns)
    if summary.orphans:
        lines.append(f"moved to _tmp, since no unit accounts for them: {plural(len(summary.orphans), 'file')}")
    if summary.dropped_identities:
        names = first_names(summary.dropped_identities, _NAMED)
        lines.append(f"identities that linked over 30 % of all videos were dropped from the split: {names}")
    if listing.ignored:
        kinds = ", ".join(f"{count} {suffix}" for suffix, count in listing.ignored.most_common(_NAMED))
        lines.append(f"files that are no inputs: {kinds}")
    return lines


def _changes(summary: Summary) -> list[str]:
    """Remarks on how the source has changed."""
    changes = summary.changes
    remarks: tuple[tuple[Collection[object], str], ...] = (
        (changes.changed, "done again, where rows could differ, since they or their originals had changed"),
        (changes.rejudged, "done again, since more of them was damaged than --max-damaged allows"),
        (changes.touched, "not done again, with new times but the same content"),
        (summary.kept, "no longer in the source, rows were kept"),
        (summary.unreadable, "not readable in the source, rows were kept as they were; the same command looks again"),
    )
    lines = [f"{text}: {plural(len(inputs), 'input')}" for inputs, text in remarks if inputs]
    if changes.renamed:
        names = first_names([f"{old} is now {new}" for new, old in sorted(changes.renamed.items())], _NAMED)
        lines.append(
            f"renamed or moved, with rows under both names: {plural(len(changes.renamed), 'input')} ({names}); drawn "
            "splits are the same for both; a new OUT has each once"
        )
    return lines


def _masks(manifest: Manifest) -> list[str]:
    lines = []
    if manifest.faces_with_own_mask:
        lines.append(f"masks of the set's own: {plural(manifest.faces_with_own_mask, 'face')}")
    if unused := manifest.own_masks_unused:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in unused.items())
        lines.append(
            f"masks of the set's own that could not be used, or not for all frames: {reasons}; fakes without any were "
            "compared with their originals, where these are there; own_mask_problem in the receipts names them"
        )
    if count := manifest.faces_without_mask:
        lines.append(
            f"{plural(count, 'face')} of fakes without a mask, although there is an original or an own mask: it has no "
            "frame of the same moment, cannot be read, or differs also around the faces; faces_without_mask in the "
            "receipts counts them by video"
        )
    return lines


class FileProgress:
    """Shows the name of the file being checked, on a terminal only. A context manager, at whose end it is erased."""

    def __init__(self) -> None:
        self._console = stderr_console()

    def __enter__(self) -> FileProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.erase()

    def on_file(self, name: str) -> None:
        """Shows this name in place of the last one."""
        self.erase()
        if self._console.is_terminal:
            text = f"[dim]{escape(printable(name))}[/]"
            self._console.print(text, end="\r", overflow="ellipsis", no_wrap=True)

    def erase(self) -> None:
        """Clears the line for another message."""
        if self._console.is_terminal:
            self._console.control(Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2)))


def print_verdict(verdict: VerifyResult, out: str | Path) -> None:
    """Prints each finding on a line, then one sentence."""
    console = stderr_console()
    for finding in verdict.findings:
        console.print(f"[red]{escape(finding.kind)}[/]  {escape(printable(f'{finding.location}: {finding.detail}'))}")
    checked = f"{plural(verdict.files, 'file')}, {plural(verdict.rows, 'row')}, {filesize.decimal(verdict.size_bytes)}"
    name = escape(printable(without_credentials(out)))
    if verdict.findings:
        console.print(f"{name}: {plural(len(verdict.findings), 'finding')} in {checked}", style="bold red")
        kinds: dict[str, list[str]] = {}
        for finding in verdict.findings:
            remedy = finding.own_remedy or finding.remedy.replace("OUT", shlex.quote(without_credentials(out)))
            if finding.kind not in (named := kinds.setdefault(remedy, [])):
                named.append(finding.kind)
        for remedy, named in kinds.items():
            console.print(escape(printable(f"{', '.join(named)}: {remedy}")))
    elif verdict.is_finished:
        console.print(f"{name}: whole; {checked} checked", style="bold green")
    if verdict.unfinished:
        console.print(f"{name}: {verdict.unfinished.state}; {checked} checked", style="bold yellow")
        for line in verdict.unfinished.remarks:
            console.print(escape(printable(line)))
