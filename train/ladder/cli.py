"""The command `facefeed ladder`. Heavy imports happen when it runs, most of them in the rungs' processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...pipeline.dataset.stores.argument import DatasetArgument
from ...pipeline.files import can_create_files_in
from ..config.recipes import RECIPES

if TYPE_CHECKING:
    from .report import Report


class _Steps(click.ParamType):  # type: ignore[type-arg]
    """A number of steps, or "epoch"."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Returns the number, or "epoch"."""
        if isinstance(value, int) or value == "epoch":
            return value  # type: ignore[no-any-return]
        if not value.isdecimal() or not int(value):
            self.fail(f"{value!r}: must be a number of at least 1, or 'epoch'; try 20", param, ctx)
        return int(value)


@click.command()
@click.argument("out", type=DatasetArgument(), required=False)
@click.option("--videos", type=click.Path(path_type=Path, exists=True), metavar="SRC",
              help="What OUT was made from, for the naive rung.")  # fmt: skip
@click.option("--levers", multiple=True, metavar="TEXT",
              help="A rung with these levers, as bf16 or bf16,compile; repeatable. none: no such rung."
                   "  [default: each alone]")  # fmt: skip
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, metavar="N")
@click.option("--steps", type=_Steps(), default=20, show_default=True, metavar="N|epoch",
              help="Steps of a rung that are measured at least, after a warm-up; all see as many samples.")  # fmt: skip
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    help="Model and data as facefeed train has them; its levers are a rung.",
)
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting of the recipe; repeatable."
)
@click.option("--module", metavar="PATH:CLASS", help="Your own LightningModule instead.")
@click.option("--patience", type=click.FloatRange(min=1), default=600, show_default=True, metavar="SECONDS",
              help="A rung that makes no step for so long is given up.")  # fmt: skip
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), default=Path("ladder.html"), show_default=True,
              help="Where the page is written.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="End with one JSON object on standard output; progress in a pipe is JSON lines.")  # fmt: skip
def ladder(out: str | Path | None, *, page: Path, as_json: bool, **options: Any) -> None:
    """Measure what each lever is worth on this machine, on the faces of OUT, a folder or s3://bucket/faces.

    Trains a little with batches made from the videos, from OUT, with each lever alone and with those that pay
    together, each in a process of its own, in turn. What cannot run here is listed with the reason. Exits with 1 if
    a rung failed.

    A module that has a train_dataloader of its own needs no OUT; others get batches (images, labels) of it.
    """
    if out is None and options["module"] is None:
        raise click.UsageError("give OUT, or --module PATH:CLASS with a module that brings its own batches")
    if not can_create_files_in(page.parent):
        raise click.UsageError(f"--page {page}: cannot be written there; name a file in a folder that is")
    sys.exit(_run(out, page=page, as_json=as_json, **options))


def _run(out: str | Path | None, *, page: Path, as_json: bool, **options: Any) -> int:
    from ...pipeline.console import stderr_console  # noqa: PLC0415
    from .page.html import write_page  # noqa: PLC0415
    from .report import as_plain_values, show  # noqa: PLC0415

    console = stderr_console()
    report = _report(out, console, as_json=as_json, **options)
    if report.ladder.rows:  # none if it was interrupted before the first
        write_page(report, page)
        show(report, console)
        console.print(f"page: {page}", markup=False)
    if not report.complete:
        raise KeyboardInterrupt
    if as_json:
        click.echo(json.dumps(as_plain_values(report)))
    return report.exit_code


def _report(
    out: str | Path | None, console: Any, *, videos: Path | None, levers: tuple[str, ...], repeats: int,
    steps: int | str, recipe: str | None, changes: tuple[str, ...], module: str | None, patience: float,
    as_json: bool,
) -> Report:  # fmt: skip
    from ..levers.registry import LADDER_TEXTS, NO_RUNG  # noqa: PLC0415
    from .messages import Subject  # noqa: PLC0415
    from .progress import Progress  # noqa: PLC0415
    from .runner import SubprocessRunner, measure_ladder  # noqa: PLC0415

    subject = Subject(
        out=None if out is None else str(out), videos=None if videos is None else str(videos), module=module,
        recipe=recipe, changes=changes,
    )  # fmt: skip
    if module is None and subject.run_changes:
        settings = ", ".join(subject.run_changes)
        console.print(f"{settings}: for the next command alone; rungs train as long as --steps says", markup=False)
    requested = tuple(text for text in dict.fromkeys(levers) if text != NO_RUNG)
    with Progress(console, as_json=as_json) as progress:
        processes = SubprocessRunner(
            subject=subject, steps=None if isinstance(steps, str) else steps, patience_seconds=patience,
            on_step=progress.step,
        )  # fmt: skip
        return measure_ladder(
            processes,
            LADDER_TEXTS if not levers else requested,
            named=requested,
            repeats=repeats,
            progress=progress,
        )
