"""A dataset's numbers for people (one screen) and for programs (one JSON object)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich import filesize
from rich.markup import escape
from rich.table import Table

from ..console import plural, printable, stderr_console
from ..planning.failure_limit import named_failures
from ..verify.unfinished import Unfinished
from .findings import Finding
from .formatting import named, short
from .statistics.columns import MEASURES, Measure
from .statistics.groups import Census, Group
from .statistics.outcomes import Account
from .statistics.quantiles import Spread
from .statistics.videos import telling
from .survey import Content

SCHEMA_VERSION: Final = 1
_LINES: Final = 24  # of a table; more would push all else off the screen
_NAMED: Final = 100
_COLOURS: Final = {"error": "red", "warning": "yellow", "ok": "green"}


def show(content: Content, page: Path, page_bytes: int) -> None:
    """One screen of 80 columns for a small dataset; what it says of it stands at the end."""
    console = stderr_console()
    account, census = content.account, content.census
    amount = f"{plural(census.whole.rows, 'face')} of {plural(census.whole.videos, 'video')}"
    console.print(f"[bold]{_safe(str(account.out))}[/]: {amount}, {filesize.decimal(account.size_bytes)}")
    if census.whole.rows:
        console.print(_groups(census))
        console.print(_classes(census))
    if account.failed:
        console.print(_failures(account))
    console.print(_findings(content.findings))
    console.print(f"page: {_safe(str(page))} ({filesize.decimal(page_bytes)})")


_COUNTS = ("faces", "videos", "tracks", "frames", "faces a video")
_FEWER_COUNTS = ("faces", "videos", "faces a video")
_MOST_NAMES = 2  # beside split and class, as dataset, method and compression: then all counts find room on 80 columns


def _table(*columns: str, texts: int) -> Table:
    """Without lines; the first `texts` columns are names, which are cut where there is no room."""
    made = Table(box=None, padding=(0, 1, 0, 0), header_style="dim underline")
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < texts else "right", no_wrap=True, overflow="ellipsis")
    return made


def _groups(census: Census) -> Table:
    names = telling(census.groups)
    numbers = _COUNTS if len(names) < _MOST_NAMES else _FEWER_COUNTS
    made = _table("split", "class", *names, *numbers, texts=2 + len(names))
    for kind, group in list(census.groups.items())[:_LINES]:
        made.add_row(
            kind.split, _safe(kind.label), *(_safe(getattr(kind, one) or "-") for one in names),
            *_counts(group, numbers),
        )  # fmt: skip
    if (left := len(census.groups) - _LINES) > 0:
        made.add_row("and", f"{left:,} more")
    made.add_row("all", "", *("" for _ in names), *_counts(census.whole, numbers), style="bold")
    return made


def _counts(group: Group, columns: Sequence[str]) -> Iterator[str]:
    told = {"faces": group.rows, "videos": group.videos, "tracks": group.tracks, "frames": group.frames}
    yield from (f"{told[name]:,}" for name in columns if name in told)
    faces = group.faces_a_video
    yield f"{short(faces.median)} ({short(faces.least)}-{short(faces.most)})" if faces else "-"


def _classes(census: Census) -> Table:
    measures = [measure for measure in MEASURES if census.whole.measures[measure.key]]
    made = _table("5%-50%-95%", *(_heading(measure) for measure in measures), texts=1)
    for label, group in list(census.classes.items())[:_LINES]:
        made.add_row(_safe(label), *(_quantiles(measure, group.measures[measure.key]) for measure in measures))
    if (left := len(census.classes) - _LINES) > 0:
        made.add_row(f"and {left:,} more")
    return made


def _heading(measure: Measure) -> str:
    return f"{measure.key.removesuffix('_px')} {measure.unit}".rstrip()


def _quantiles(measure: Measure, spread: Spread | None) -> str:
    return " ".join(measure.told(one) for one in (spread.p05, spread.median, spread.p95)) if spread else "-"


def _failures(account: Account) -> Table:
    made = Table.grid(padding=(0, 1, 0, 0), expand=True)
    made.add_column(no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    made.add_column(no_wrap=True, overflow="ellipsis", ratio=1)  # names get what room is left
    for reason, count in account.inputs["failed"].items():
        names = [one.video_id for one in account.failures if one.reason == reason]
        made.add_row(f"failed: {_safe(reason)}", f"{count:,}", _safe(named(names)))
    return made


def _findings(found: list[Finding]) -> Table:
    made = Table.grid(padding=(0, 1, 0, 0))
    for one in found:
        remedy = f" {one.remedy}" if one.level == "error" else ""
        made.add_row(f"[{_COLOURS[one.level]}]{one.level}[/]", _safe(f"{one.what}{remedy}"))
    return made


def show_unfinished(unfinished: Unfinished) -> None:
    """What became of the inputs so far; there is no index yet to say more."""
    console, manifest = stderr_console(), unfinished.manifest
    inputs = manifest.inputs
    counts = ", ".join(f"{inputs[name]:,} {name.replace('_', ' ')}" for name in ("ok", "partial", "no_faces"))
    console.print(f"[bold]{_safe(str(unfinished.run_state.paths.root))}[/]: [yellow]{_safe(unfinished.state)}[/]")
    console.print(
        f"{plural(manifest.rows, 'face')} of {plural(inputs['total'], 'input')} so far ({counts}, "
        f"{len(unfinished.failures):,} failed); all other figures and the page come with the end of the run"
    )
    for line in (*named_failures(unfinished.failures), *unfinished.remarks):
        console.print(escape(line))


def figures_of_unfinished(unfinished: Unfinished) -> dict[str, Any]:
    """The same for `--json`, with all failures."""
    return {
        "schema": SCHEMA_VERSION,
        "out": str(unfinished.run_state.paths.root),
        "finished": False,
        "pending": unfinished.pending,
        "config": unfinished.manifest.config,
        "inputs": unfinished.manifest.inputs,
        "rows": unfinished.manifest.rows,
        "failures": [one._asdict() for one in unfinished.failures],
        "exit": 0,
    }


def _safe(text: str) -> str:
    return escape(printable(text))


def figures(content: Content, page: Path, page_bytes: int) -> dict[str, Any]:
    """Everything the terminal shows, and more of it, as plain values. `schema` rises when a name changes.

    Sizes are px, `manipulated`, `small` and `unchanged` shares from 0 to 1. The first hundred failures and
    the first hundred partial inputs are named.
    """
    account, census = content.account, content.census
    crossing = account.crossing
    return {
        "schema": SCHEMA_VERSION,
        "out": str(account.out),
        "fingerprint": account.manifest.fingerprint,
        "config": account.manifest.config,
        "bytes": account.size_bytes,
        "findings": [asdict(one) for one in content.findings],
        "whole": asdict(census.whole),
        "classes": {label: asdict(group) for label, group in census.classes.items()},
        "groups": [{**kind._asdict(), **asdict(group)} for kind, group in census.groups.items()],
        "crossing": {"count": len(crossing), "first": [one._asdict() for one in crossing[:_NAMED]]},
        "inputs": account.inputs,
        "failures": [one._asdict() for one in account.failures[:_NAMED]],
        "partial": [
            {
                "video_id": one.video_id,
                "frames_wanted": one.frames_wanted,
                "frames_decoded": one.frames_decoded,
                "detail": one.detail,
            }
            for one in account.partial[:_NAMED]
        ],
        "pictures": {"shown": content.sheets.shown, "unreadable": len(content.sheets.unreadable)},
        "page": str(page),
        "page_bytes": page_bytes,
        "exit": 0,
    }
