"""The command `facefeed compact`. Heavy imports happen when it runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..dataset.stores.argument import DatasetArgument


@click.command()
@click.argument("out", type=DatasetArgument())
@click.option(
    "--target-mb",
    type=int,
    metavar="MB",
    help="Size that files are merged up to; those of half of it and more stay.  [default: 256]",
)
@click.option("--workers", type=int, metavar="N", help="Threads that copy.  [default: one per core and 2 GB]")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def compact(out: str | Path, *, target_mb: int | None, workers: int | None, as_json: bool) -> int:
    """Merge the small files of the finished dataset OUT into few large ones.

    For network file systems and stores, which are slow with many files. OUT may lie in a store: s3://bucket/faces. Rows
    stay as they are, with their added columns; no video is read. It needs room for a copy of the small files; in a
    store, on the local disk, for twice MB a thread. Run the same command again to resume.
    """
    from ..interrupts import handle_interrupts  # noqa: PLC0415 (all of these are heavy)
    from ..row_progress import RowProgress  # noqa: PLC0415
    from .report import print_compacted  # noqa: PLC0415
    from .run import compact  # noqa: PLC0415

    with RowProgress() as progress, handle_interrupts(progress.on_stopping):
        summary = compact(
            out, target_mb=target_mb, workers=workers, on_progress=progress.on_progress, on_wait=progress.on_wait
        )
    print_compacted(summary, str(out))
    if as_json:
        click.echo(json.dumps(summary.figures()))
    return 0
