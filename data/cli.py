"""The command `facefeed sample`. Heavy imports happen when the command runs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from .sample import SampleReport


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Which sample: the same seed gives the same bytes.")  # fmt: skip
@click.option("--groups", type=click.IntRange(min=15), metavar="N", default=15, show_default=True,
              help="Originals, with their fakes; those beyond 15 are short and plain.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def sample(directory: Path, seed: int, groups: int, as_json: bool) -> None:
    """Make a small real/fake set of face videos in DIR, to try facefeed on.

    About 30 short videos in the layout of DFDC, made in seconds from two public-domain portraits; with --groups 240
    about 480, from which a small classifier learns to find the fakes. DIR must be new or empty.
    """
    from rich.console import Console  # noqa: PLC0415 (a quarter of a second, only where work is done)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    from .sample import make_sample  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    columns = (TextColumn("making videos"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("")
        report = make_sample(
            directory,
            seed=seed,
            groups=groups,
            on_progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    click.echo(_summary(report, directory), err=True)
    if as_json:
        click.echo(json.dumps(_as_json(report)))


def _summary(report: SampleReport, directory: Path) -> str:
    videos = f"{report.videos} videos ({report.real} real, {report.fake} fake), {report.size_bytes / 1e6:.1f} MB"
    head = (
        f"{directory}: already there, with seed {report.seed}: {videos}; nothing was done"
        if report.already_there
        else f"{directory}: made {videos}, in {report.seconds:.1f} s"
    )
    return f"{head}\nnext: facefeed precompute {shlex.quote(str(directory))} OUT"


def _as_json(report: SampleReport) -> dict[str, str | int | float | bool]:
    return {
        "videos": report.videos,
        "real": report.real,
        "fake": report.fake,
        "bytes": report.size_bytes,
        "seconds": round(report.seconds, 3),
        "path": str(report.path),
        "seed": report.seed,
        "already_there": report.already_there,
    }
