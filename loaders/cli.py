"""The commands `facefeed augment` and `facefeed profile`. What is heavy is imported when a command runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
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
    out: Path, file: Path, *, split: str, faces: int, variants: int, seed: int, page: Path, as_json: bool
) -> None:
    """Look at what an augmentation pipeline does to the faces of OUT.

    FILE.yaml is a pipeline as Albumentations saves it (a FaceCompose, or any Compose). Faces are taken evenly from the
    split, its labels and its videos; landmarks, hull and regions are drawn where they followed.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import

    from .augment.gallery import Gallery, write_page  # noqa: PLC0415

    gallery = Gallery.of(out, file, split=split, faces=faces, variants=variants, seed=seed)
    size_bytes = write_page(gallery, page)
    click.echo(
        f"{page}: {len(gallery.rows)} faces, each in {variants} variants, {size_bytes / 1e6:.1f} MB; "
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


class _Share(click.ParamType):  # type: ignore[type-arg]
    """A share of the whole: 0.01 or 1%."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """To a number between 0 and 1."""
        if isinstance(value, float):
            return value
        try:
            number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
        except ValueError:
            number = -1.0
        if not 0 < number < 1:
            self.fail(f"{value!r}: must be a share such as 1% or 0.01", param, ctx)
        return number


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--step-ms", type=click.FloatRange(min=0, min_open=True), default=10.0, show_default=True, metavar="MS",
              help="How long the training step takes.")  # fmt: skip
@click.option("--host-share", type=click.FloatRange(0, 1), default=0.2, show_default=True, metavar="SHARE",
              help="Part of the step in which it keeps a core of the host busy.")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=50), default=1000, show_default=True, metavar="N")
@click.option("--split", type=click.Choice(["train", "val", "test"]), default="train", show_default=True)
@click.option("--batch-size", type=click.IntRange(min=1), default=64, show_default=True, metavar="N")
@click.option("--image-size", type=click.IntRange(min=1), default=224, show_default=True, metavar="PX")
@click.option("--workers", type=click.IntRange(min=0), metavar="N", help="Default: one a usable core.")
@click.option("--prefetch", type=click.IntRange(min=1), metavar="N", help="Batches a worker. Default: 2.")
@click.option("--transform", type=click.Path(path_type=Path), metavar="FILE.yaml",
              help="An augmentation pipeline as Albumentations saves it.")  # fmt: skip
@click.option("--max-stall", type=_Share(), metavar="SHARE", help="Exit with 1 unless the stall is bound below, as 1%.")
@click.option("--min-headroom", type=click.FloatRange(min=0, min_open=True), metavar="X",
              help="Exit with 1 unless the step could be so many times faster.")  # fmt: skip
@click.option("--confidence", type=_Share(), default=0.95, show_default=True, metavar="SHARE")
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.json", help="Where all figures are written.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def profile(
    out: Path, *, step_ms: float, host_share: float, steps: int, split: str, batch_size: int, image_size: int,
    workers: int | None, prefetch: int | None, transform: Path | None, max_stall: float | None,
    min_headroom: float | None, confidence: float, report: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Show whether training on OUT would wait for data, and how sure that is.

    A step of the stated time stands for the training step. Exits with 0 if it is fed, 1 if it waits or the gate is not
    met, 4 if nothing can be concluded.
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import

    from rich.console import Console  # noqa: PLC0415

    from .dataloader import FaceDataLoader  # noqa: PLC0415
    from .profiler import profile as profiling  # noqa: PLC0415
    from .profiler.report import figures, text  # noqa: PLC0415
    from .profiler.steps import SleepingStep  # noqa: PLC0415

    loader = FaceDataLoader(
        out, batch_size, split=split, image_size=image_size, num_workers=workers, prefetch_factor=prefetch,
        shuffle=True, **_transforms(transform),
    )  # fmt: skip
    gate = profiling.Gate(max_stall=max_stall, min_headroom=min_headroom)
    console = Console(stderr=True, highlight=False)
    with console.status("profiling") as status:
        found = profiling.profile(
            loader, SleepingStep(step_ms / 1e3, host_share), steps=steps, confidence=confidence,
            progress=lambda done, wanted: status.update(f"profiling: {done:,} of {wanted:,} steps"),
        )  # fmt: skip
    code = gate.exit_code(found.verdict)
    values = {**figures(found, gate), "exit": code}
    if report is not None:
        report.write_text(json.dumps(values, indent=1))
    click.echo(text(found, gate), err=True)
    if as_json:
        click.echo(json.dumps(values))
    sys.exit(code)


def _transforms(file: Path | None) -> dict[str, Any]:
    """The loader's argument for a pipeline in a file."""
    if file is None:
        return {}
    from .augment import FaceCompose  # noqa: PLC0415
    from .augment.pipeline_file import read_pipeline  # noqa: PLC0415

    pipeline = read_pipeline(file)
    return {"face_transform" if isinstance(pipeline, FaceCompose) else "transform": pipeline}
