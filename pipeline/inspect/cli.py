"""The command `facefeed inspect`. Heavy imports happen when it runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..dataset.stores.argument import DatasetArgument


@click.command()
@click.argument("out", type=DatasetArgument())
@click.option("--page", "page", type=click.Path(path_type=Path), default=Path("inspect.html"), show_default=True,
              help="Where the page is written.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def inspect(out: str | Path, *, page: Path, as_json: bool) -> None:
    """Report what OUT holds, and what is wrong with it. It may lie in a store: s3://bucket/faces.

    Statistics by split, class and method in the terminal; on the page random faces and the worst, fakes beside their
    sources, tracks over time, and failures. For an unfinished OUT: the outcomes of its inputs so far. Findings do not
    change the exit code; --json lists them.
    """
    from ..dataset.stores.writing import open_out  # noqa: PLC0415
    from ..verify.unfinished import UnfinishedRun  # noqa: PLC0415
    from . import report  # noqa: PLC0415 (all of these are heavy)
    from .inspection import inspect_dataset  # noqa: PLC0415
    from .page import write_page  # noqa: PLC0415

    with open_out(out) as paths:
        if unfinished := UnfinishedRun.find(paths):
            report.print_unfinished(unfinished)
            if as_json:
                click.echo(json.dumps(report.unfinished_json_report(unfinished)))
            return
        inspection = inspect_dataset(paths)
    page_bytes = write_page(inspection, page)
    report.print_report(inspection, page, page_bytes)
    if as_json:
        click.echo(json.dumps(report.json_report(inspection, page, page_bytes)))
