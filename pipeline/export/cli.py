"""The command `facefeed export`. Heavy imports happen when it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..dataset.stores.argument import DatasetArgument

if TYPE_CHECKING:
    from .request import FormName


@click.command()
@click.argument("out", type=DatasetArgument())
@click.argument("dest", type=click.Path(path_type=Path))
@click.option(
    "--as",
    "form",
    required=True,
    type=click.Choice(["deepfakebench", "folders", "webdataset", "hf"]),
    help="The form of DEST.",
)
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Only this split.  [default: all]")
@click.option("--shard-mb", type=int, metavar="MB", help="Size of a shard of webdataset and hf, about.  [default: 512]")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def export(
    out: str | Path, dest: Path, *, form: FormName, split: str | None, shard_mb: int | None, as_json: bool
) -> int:
    """Write the faces of OUT to DEST, in the form that other training code reads. OUT may lie in a store:
    s3://bucket/faces.

    deepfakebench: aligned frames, landmarks, masks and dataset JSONs of DeepfakeBench. folders: images as stored, for
    ImageFolder, and a CSV table. webdataset: tar shards. hf: a Hugging Face dataset. DEST must be new or empty. Run the
    same command again to resume, and of a finished export to read it back and compare it with its checksums. Exit 1 if
    rows of OUT are damaged, which are left out and named, or if DEST is not what was exported.
    """
    from . import report  # noqa: PLC0415 (all of these are heavy)
    from .request import ExportRequest  # noqa: PLC0415
    from .run import export  # noqa: PLC0415

    request = ExportRequest(form=form, split=split, shard_mb=shard_mb)
    with report.progress_bar() as on_progress:
        result = export(out, dest, request, on_progress=on_progress, on_wait=report.print_waiting)
    report.print_result(result, out)
    if as_json:
        click.echo(json.dumps(report.result_json(result)))
    return result.exit_code
