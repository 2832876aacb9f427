"""The command `facefeed augment`. Heavy imports happen when it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from ...pipeline.dataset.stores.argument import DatasetArgument


@click.command()
@click.argument("out", type=DatasetArgument())
@click.argument("file", metavar="FILE.yaml", type=click.Path(path_type=Path))
@click.option("--split", type=click.Choice(["train", "val", "test"]), default="train", show_default=True)
@click.option(
    "--faces", type=click.IntRange(min=1), default=8, show_default=True, metavar="N", help="Rows of the page."
)
@click.option("--variants", type=click.IntRange(min=1), default=6, show_default=True, metavar="N",
              help="How often each face is transformed.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="The same seed gives the same variants.")  # fmt: skip
@click.option("--page", type=click.Path(path_type=Path), default=Path("augment.html"), show_default=True,
              help="Where the page is written.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def augment(
    out: str | Path, file: Path, *, split: str, faces: int, variants: int, seed: int, page: Path, as_json: bool
) -> None:
    """Look at what an augmentation pipeline does to the faces of OUT.

    FILE.yaml is a pipeline as Albumentations saves it (a FaceCompose, or any Compose). Faces are taken evenly from the
    split, its labels and its videos; landmarks, hull and regions are drawn where they followed.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # its import would access the network

    from ...pipeline.console import plural  # noqa: PLC0415
    from .gallery import Gallery, write_page  # noqa: PLC0415

    gallery = Gallery.of(out, file, split=split, faces=faces, variants=variants, seed=seed)
    size_bytes = write_page(gallery, page)
    click.echo(
        f"{page}: {plural(len(gallery.rows), 'face')}, each in {plural(variants, 'variant')}, "
        f"{size_bytes / 1e6:.1f} MB; "
        f"the transform takes {gallery.microseconds_per_image:,.0f} us an image (median)",
        err=True,
    )
    if as_json:
        figures = {
            "page": str(page),
            "bytes": size_bytes,
            "split": split,
            "faces": len(gallery.rows),
            "variants": variants,
            "seed": seed,
            "microseconds_per_image": round(gallery.microseconds_per_image, 1),
            "exit": 0,
        }
        click.echo(json.dumps(figures))
