"""The commands `facefeed train` and `facefeed evaluate`. Heavy imports happen when they run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..pipeline.dataset.stores.address import name_of
from ..pipeline.dataset.stores.argument import DatasetArgument
from ..pipeline.json_records import finite_or_null
from .config.recipes import RECIPES
from .run.signals import Signals, StoppedTrainingError

_OUT, _FOLDER = DatasetArgument(), click.Path(path_type=Path)


@click.command()
@click.argument("out", type=_OUT)
@click.option("--recipe", type=click.Choice(list(RECIPES)), help="Default: fast; without a GPU quick.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting; may come several times.")
@click.option("--init-from", metavar="FILE", help="Begin with the weights of a checkpoint, or of a file of weights.")
@click.option("--run", type=_FOLDER, metavar="DIR", help="The run's folder. Default: runs/OUT-RECIPE.")
@click.option("--json", "as_json", is_flag=True,
              help="End with one JSON object on standard output; progress in a pipe is JSON lines.")  # fmt: skip
def train(
    out: str | Path,
    *,
    recipe: str | None,
    changes: tuple[str, ...],
    init_from: str | None,
    run: Path | None,
    as_json: bool,
) -> None:
    """Train a classifier of faces on OUT, and say how well it does.

    \b
    quick      a ResNet-18 at 112 px from scratch: minutes on a CPU
    baseline   a pretrained ResNet-50 at 224 px in fp32, no levers
    fast       the same with bf16, TF32, channels_last, fused, compile
    small-gpu  the same on 8 to 11 GB: fp16, 8-bit AdamW, checkpointing
    multi-gpu  fast on all GPUs of a node, or of several under Slurm

    Levers of a recipe that the GPUs do not support (bf16, TF32 before Ampere) are replaced or left out, with a note. A
    run keeps its levers where it resumes.

    A setting is named as in the run's config.json: --set epochs=3, --set model.backbone=efficientnet_b4,
    --set levers=bf16,accumulate:4. An unknown name lists those that there are.

    Run the same command again after a kill, a full disk or Ctrl-C: it resumes at the very next batch. SIGTERM and
    SIGUSR1 have it write a checkpoint and exit with 75.
    """  # noqa: D301 (click's sign for lines that stay as they are)
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # it would call the network on import
    from ..pipeline.console import stderr_console  # noqa: PLC0415

    console = stderr_console()
    with console.status("starting"), Signals() as signals:
        _start_fork_server(changes)
        from .config.fitting import fit_to_machine  # noqa: PLC0415
        from .config.settings import with_overrides  # noqa: PLC0415
        from .machine import Machine  # noqa: PLC0415
        from .run import runner  # noqa: PLC0415 (seconds)
        from .run.folder import RunFolder  # noqa: PLC0415
        from .run.tables import show_result  # noqa: PLC0415
    name = recipe or _default_recipe()
    overrides = changes if init_from is None else (*changes, f"init_from={init_from}")
    config = with_overrides(RECIPES[name](), overrides)
    folder = run or Path("runs") / f"{name_of(out)}-{name}"
    config, notes = fit_to_machine(config, Machine.detect(), begun_levers=RunFolder(folder).begun_levers)
    if signals.received:
        raise StoppedTrainingError(signals.received, folder, None if RunFolder(folder).is_resumable else 0)
    result = runner.train(out, config, folder, console=console, as_json=as_json, notes=notes)
    if result is None:  # the first rank reports it
        return
    show_result(result)
    if as_json:
        _echo_json({**asdict(result), "exit": 0})


def _start_fork_server(changes: tuple[str, ...]) -> None:
    """Starts the process that workers are forked from: it imports torch while this one does so too."""
    if "data.num_workers=0" in changes:
        return
    from ..loaders.workers.fork_server import start_fork_server  # noqa: PLC0415

    start_fork_server("albumentations")


def _default_recipe() -> str:
    import torch  # noqa: PLC0415

    return "fast" if torch.cuda.is_available() else "quick"


@click.command()
@click.argument("checkpoint", metavar="CKPT", type=click.Path(path_type=Path))
@click.argument("outs", metavar="OUT [OUT ...]", nargs=-1, required=True, type=_OUT)
@click.option("--split", type=click.Choice(["test", "val", "train", "all"]), default="test", show_default=True,
              help="all: every face, of a dataset that was not trained on.")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=0), metavar="N", help="Default: as in training.")
@click.option("--json", "as_json", is_flag=True, help="End with one JSON object on standard output.")
def evaluate(checkpoint: Path, outs: tuple[str | Path, ...], *, split: str, workers: int | None, as_json: bool) -> None:
    """Measure a checkpoint of `facefeed train` on datasets, a row each: train on one, test on others.

    Classes are matched by their names. A dataset that cannot be measured, as one without that split, has the reason in
    its row, and the exit code is then 1. Faces that were trained on are warned of. A checkpoint is read as plain data:
    one that would run code is refused. Takes one GPU; to use several, run it for a dataset on each
    (CUDA_VISIBLE_DEVICES).
    """
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    from .evaluate import evaluate as evaluate_checkpoint  # noqa: PLC0415
    from .run.tables import show_evaluations  # noqa: PLC0415

    with _evaluation_progress() as progress:
        evaluations = evaluate_checkpoint(checkpoint, outs, split=split, num_workers=workers, progress=progress)
    show_evaluations(evaluations, checkpoint)
    code = 1 if any(evaluation.reason for evaluation in evaluations) else 0
    if as_json:
        document = {
            "checkpoint": str(checkpoint),
            "split": split,
            "datasets": [asdict(evaluation) for evaluation in evaluations],
            "exit": code,
        }
        _echo_json(document)
    sys.exit(code)


def _echo_json(document: dict[str, Any]) -> None:
    """Prints a document as one line; NaN and infinity become null, since JSON has neither."""
    click.echo(json.dumps(finite_or_null(document)))


@contextmanager
def _evaluation_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yields a callback that shows progress in one line of a terminal, and nothing in a pipe."""
    from rich.markup import escape  # noqa: PLC0415

    from ..pipeline.console import printable, stderr_console  # noqa: PLC0415

    console = stderr_console()
    if not console.is_terminal:
        yield lambda *_: None
        return
    with console.status("evaluating") as status:
        yield lambda name, done, total: status.update(f"{escape(printable(name))}: {done:,} of {total:,} faces")
