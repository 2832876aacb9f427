"""Reports an inspection on the terminal (one screen) and as JSON (one object)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich import filesize
from rich.markup import escape
from rich.table import Table

from ..console import first_names, plural, printable, stderr_console
from ..planning.content_hash import equal_inputs_json
from ..planning.failure_limit import failure_lines
from ..verify.unfinished import UnfinishedRun
from .findings.finding import Finding
from .formatting import compact_number
from .inspection import Inspection
from .statistics.columns import CROP_SIZE, FACE_SIZE, MANIPULATED, SCORE, SHARPNESS, Measure
from .statistics.groups import Group, Statistics
from .statistics.outcomes import Outcomes
from .statistics.quantiles import Quantiles
from .statistics.videos import varying_columns

SCHEMA_VERSION: Final = 1
_TABLE_MEASURES: Final = (FACE_SIZE, CROP_SIZE, SCORE, SHARPNESS, MANIPULATED)  # what fits 80 columns
_MAX_TABLE_ROWS: Final = 24  # more would scroll the rest off the screen
_MAX_JSON_ITEMS: Final = 100
_COLOURS: Final = {"error": "red", "warning": "yellow", "ok": "green"}

_COUNT_COLUMNS: Final = ("faces", "videos", "tracks", "frames", "faces a video")
_FEWER_COUNT_COLUMNS: Final = ("faces", "videos", "faces a video")
_NAME_COLUMN_LIMIT: Final = 2  # with fewer columns of names than this, all counts fit into 80 columns


def print_report(inspection: Inspection, page: Path, page_bytes: int) -> None:
    """Prints one screen of 80 columns for a small dataset, with the findings at the end."""
    console = stderr_console()
    outcomes, statistics = inspection.outcomes, inspection.statistics
    amount = f"{plural(statistics.total.rows, 'face')} of {plural(statistics.total.videos, 'video')}"
    console.print(f"[bold]{_escape(outcomes.paths.place)}[/]: {amount}, {filesize.decimal(outcomes.size_bytes)}")
    if statistics.total.rows:
        console.print(_groups_table(statistics))
        console.print(_classes_table(statistics))
    if outcomes.num_failed or outcomes.manifest.removed:
        console.print(_failures_table(outcomes))
    console.print(_findings_table(inspection.findings))
    console.print(f"page: {_escape(str(page))} ({filesize.decimal(page_bytes)})")


def _table(*columns: str, num_names: int) -> Table:
    """A table without lines; the first `num_names` columns are names, truncated where there is no room."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim underline")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < num_names else "right", no_wrap=True, overflow="ellipsis")
    return table


def _groups_table(statistics: Statistics) -> Table:
    names = varying_columns(statistics.groups)
    counts = _COUNT_COLUMNS if len(names) < _NAME_COLUMN_LIMIT else _FEWER_COUNT_COLUMNS
    table = _table("split", "class", *names, *counts, num_names=2 + len(names))
    for key, group in list(statistics.groups.items())[:_MAX_TABLE_ROWS]:
        name_cells = (_escape(getattr(key, name) or "-") for name in names)
        table.add_row(key.split, _escape(key.label), *name_cells, *_format_counts(group, counts))
    if (num_more := len(statistics.groups) - _MAX_TABLE_ROWS) > 0:
        table.add_row("and", f"{num_more:,} more")
    table.add_row("all", "", *("" for _ in names), *_format_counts(statistics.total, counts), style="bold")
    return table


def _format_counts(group: Group, columns: Sequence[str]) -> Iterator[str]:
    counts = {"faces": group.rows, "videos": group.videos, "tracks": group.tracks, "frames": group.frames}
    yield from (f"{counts[name]:,}" for name in columns if name in counts)
    if faces := group.faces_a_video:
        yield f"{compact_number(faces.median)} ({compact_number(faces.least)}-{compact_number(faces.most)})"
    else:
        yield "-"


def _classes_table(statistics: Statistics) -> Table:
    measures = [measure for measure in _TABLE_MEASURES if statistics.total.measures[measure.key]]
    table = _table("5%-50%-95%", *(_heading(measure) for measure in measures), num_names=1)
    for label, group in list(statistics.classes.items())[:_MAX_TABLE_ROWS]:
        table.add_row(
            _escape(label), *(_format_quantiles(measure, group.measures[measure.key]) for measure in measures)
        )
    if (num_more := len(statistics.classes) - _MAX_TABLE_ROWS) > 0:
        table.add_row(f"and {num_more:,} more")
    return table


def _heading(measure: Measure) -> str:
    return f"{measure.key.removesuffix('_px')} {measure.unit}".rstrip()


def _format_quantiles(measure: Measure, quantiles: Quantiles | None) -> str:
    if quantiles is None:
        return "-"
    return " ".join(map(measure.format_value, (quantiles.p05, quantiles.median, quantiles.p95)))


def _failures_table(outcomes: Outcomes) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)  # names take the remaining width
    for reason, count in outcomes.input_counts["failed"].items():
        names = [failure.video_id for failure in outcomes.failures if failure.reason == reason]
        table.add_row(f"failed: {_escape(reason)}", f"{count:,}", _escape(first_names(names)))
    if removed := outcomes.manifest.removed:
        table.add_row("without rows, removed from SRC", f"{len(removed):,}", _escape(first_names(removed)))
    return table


def _findings_table(findings: list[Finding]) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for finding in findings:
        remedy = f" {finding.remedy}" if finding.level == "error" else ""
        table.add_row(f"[{_COLOURS[finding.level]}]{finding.level}[/]", _escape(f"{finding.what}{remedy}"))
    return table


def print_unfinished(unfinished: UnfinishedRun) -> None:
    """Prints the outcomes of the inputs so far; an unfinished dataset has no index for further statistics."""
    console, manifest = stderr_console(), unfinished.manifest
    inputs = manifest.inputs
    counts = ", ".join(f"{inputs[name]:,} {name.replace('_', ' ')}" for name in ("ok", "partial", "no_faces"))
    console.print(f"[bold]{_escape(unfinished.run_state.paths.place)}[/]: [yellow]{_escape(unfinished.state)}[/]")
    console.print(
        f"{plural(manifest.rows, 'face')} of {plural(inputs['total'], 'input')} so far ({counts}, "
        f"{len(unfinished.failures):,} failed); all other figures and the page come with the end of the run"
    )
    for line in (*failure_lines(unfinished.failures), *unfinished.remarks):
        console.print(_escape(line))


def unfinished_json_report(unfinished: UnfinishedRun) -> dict[str, Any]:
    """The content of `print_unfinished` for `--json`, with all failures."""
    return {
        "schema": SCHEMA_VERSION,
        "out": unfinished.run_state.paths.place,
        "finished": False,
        "pending": unfinished.pending,
        "config": unfinished.manifest.config,
        "inputs": unfinished.manifest.inputs,
        "rows": unfinished.manifest.rows,
        "failures": [failure._asdict() for failure in unfinished.failures],
        "exit": 0,
    }


def _escape(text: str) -> str:
    """Text without terminal control characters or rich markup."""
    return escape(printable(text))


def json_report(inspection: Inspection, page: Path, page_bytes: int) -> dict[str, Any]:
    """The content of the terminal report in more detail, as plain values. `schema` increases when a name changes.

    Sizes are px; `manipulated`, `small` and `unchanged` are fractions from 0 to 1. Names the first hundred failures,
    partial inputs, split crossings and equal contents.
    """
    outcomes, statistics = inspection.outcomes, inspection.statistics
    crossings, sheets = outcomes.crossings, inspection.sheets
    return {
        "schema": SCHEMA_VERSION,
        "out": outcomes.paths.place,
        "fingerprint": outcomes.manifest.fingerprint,
        "config": outcomes.manifest.config,
        "bytes": outcomes.size_bytes,
        "findings": [asdict(finding) for finding in inspection.findings],
        "whole": asdict(statistics.total),
        "classes": {label: asdict(group) for label, group in statistics.classes.items()},
        "groups": [{**key._asdict(), **asdict(group)} for key, group in statistics.groups.items()],
        "crossing": {
            "count": len(crossings),
            "first": [crossing._asdict() for crossing in crossings[:_MAX_JSON_ITEMS]],
        },
        "equal_content": {
            "count": len(outcomes.equal_content.conflicting),
            "first": equal_inputs_json(outcomes.equal_content.conflicting, _MAX_JSON_ITEMS),
        },
        "repeated_content": {
            "count": len(outcomes.equal_content.repeated),
            "first": equal_inputs_json(outcomes.equal_content.repeated, _MAX_JSON_ITEMS),
        },
        "inputs": outcomes.input_counts,
        "removed": len(outcomes.manifest.removed),
        "failures": [failure._asdict() for failure in outcomes.failures[:_MAX_JSON_ITEMS]],
        "partial": [
            {
                "video_id": outcome.video_id,
                "frames_wanted": outcome.frames_wanted,
                "frames_decoded": outcome.frames_decoded,
                "detail": outcome.detail,
            }
            for outcome in outcomes.partial[:_MAX_JSON_ITEMS]
        ],
        "pictures": {"shown": len(sheets.rows_read), "unreadable": len(sheets.unreadable)},
        "page": str(page),
        "page_bytes": page_bytes,
        "exit": 0,
    }
