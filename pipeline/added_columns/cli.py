"""The commands `facefeed add` and `facefeed remove`. Heavy imports happen when they run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..dataset.stores.argument import DatasetArgument


@click.command()
@click.argument("out", type=DatasetArgument())
@click.argument("columns")
@click.option(
    "--workers",
    type=int,
    metavar="N",
    help="Processes on this machine.  [default: one per GPU (landmarks use none), else per core and 2 GB]",
)
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def add(out: str | Path, columns: str, *, workers: int | None, as_json: bool) -> int:
    """Compute columns for the finished dataset OUT from its stored crops, without its videos.

    OUT may lie in a store: s3://bucket/faces.

    COLUMNS: landmarks, for what `precompute --landmarks mesh` gives (facefeed models fetch face-mesh), or
    FILE.py:Class, columns of your own: an embedding, a quality score. Run the same command again to resume, and after
    `precompute` has added videos: only what is missing is computed.
    """
    from ..interrupts import handle_interrupts  # noqa: PLC0415 (all of these are heavy)
    from ..row_progress import RowProgress  # noqa: PLC0415
    from .report import print_added  # noqa: PLC0415
    from .run import add_columns  # noqa: PLC0415

    with RowProgress() as progress, handle_interrupts(progress.on_stopping):
        summary = add_columns(out, columns, workers=workers, on_progress=progress.on_progress, on_wait=progress.on_wait)
    print_added(summary, str(out))
    if as_json:
        click.echo(json.dumps(summary.figures()))
    return 0


@click.command()
@click.argument("out", type=DatasetArgument())
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def remove(out: str | Path, name: str, *, as_json: bool) -> int:
    """Remove the columns NAME, which `facefeed add` has added to the dataset OUT.

    Run the same command again if it was interrupted. Columns that `precompute` has stored cannot be removed.
    """
    from ..row_progress import RowProgress  # noqa: PLC0415 (all of these are heavy)
    from .report import print_removed  # noqa: PLC0415
    from .run import remove_columns  # noqa: PLC0415

    files = remove_columns(out, name, on_wait=RowProgress().on_wait)
    print_removed(str(out), name, files)
    if as_json:
        click.echo(json.dumps({"name": name, "files": files, "exit": 0}))
    return 0
