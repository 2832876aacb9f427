"""The command `facefeed models`. Heavy imports happen when it runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def models() -> None:
    """Bring weights that facefeed does not ship into your cache."""


@models.command()
@click.argument("model", type=click.Choice(["face-mesh"]))
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The wheel of mediapipe 0.10.21, or its face_landmark.tflite.  [default: pip downloads the wheel]",
)
def fetch(model: str, source: Path | None) -> None:  # noqa: ARG001 (there is one)
    """Bring the weights of MODEL, checked by SHA-256.

    face-mesh: Google's face mesh, 468 landmarks (Apache-2.0, 1.2 MB), for `facefeed precompute --landmarks mesh`.
    """
    from .fetch import PACKAGE, fetch_face_mesh  # noqa: PLC0415

    if source is None:
        click.echo(f"facefeed: taking one file out of the wheel {PACKAGE} (36 MB)", err=True)
    path = fetch_face_mesh(source)
    click.echo(f"facefeed: {path}", err=True)
