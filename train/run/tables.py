"""Closing tables of `train` and `evaluate` on the terminal, 80 columns wide."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import filesize
from rich.markup import escape
from rich.table import Table

from ...pipeline.console import duration_text, plural, printable, stderr_console
from ..checkpoints.plain import FILE_OF_PARTS_MAKER
from ..checkpoints.shards import is_sharded
from .checkpoint_io import BEST

if TYPE_CHECKING:
    from ..evaluate import Evaluation
    from .result import Result

_FEW_VIDEOS = 100
_NAMES = {
    "loss": "loss",
    "log_loss": "log-loss",
    "accuracy": "accuracy",
    "auc": "AUC",
    "video_log_loss": "log-loss",
    "video_accuracy": "accuracy",
    "video_auc": "AUC",
}
_FACES = ("auc", "log_loss", "accuracy")


def show_result(result: Result) -> None:
    """Prints the closing tables of a run: training, metrics, and where files are."""
    console = stderr_console()
    console.print(_training_table(result))
    if result.frozen:
        console.print(_frozen_table(result.frozen))
    console.print(_metrics_table(result))
    if "test/auc" in result.test:
        console.print(_auc_caveat(result.test_videos), soft_wrap=False)
    for line in next_steps(result):
        console.print(_as_text(line))


def _training_table(result: Result) -> Table:
    config = result.config
    model, data = config["model"], config["data"]
    table = _table(f"trained on {result.dataset}", "", "")
    start = "pretrained" if model["pretrained"] else "from scratch"
    if config.get("init_from"):
        start = f"begun with {config['init_from']}"
    table.add_row("recipe", _as_text(f"{config['recipe']}: {model['backbone']}, {start}, {data['image_size']} px"))
    table.add_row("levers", _as_text(config["levers"] or "none"))
    table.add_row(
        "done", ", ".join(map(plural, (result.epochs, result.steps, result.images), ("epoch", "step", "image")))
    )
    table.add_row("time", duration_text(result.seconds))
    if result.images_per_second is not None:
        table.add_row("speed", f"{result.images_per_second:,.0f} images/s")
    if result.stall is not None:
        table.add_row("stall", f"waited for data {result.stall:.1%} of the time")
    table.add_row("peak memory", _memory_text(result.memory))
    for name, metrics in result.lever_metrics.items():
        text = ", ".join(f"{key} {value}" for key, value in metrics.items() if value)
        if text:
            table.add_row(_as_text(name), _as_text(text))
    return table


def _frozen_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Returns the table of frozen modules and parameters."""
    table = _table("frozen", "pattern", "module or parameter", "tensors", "numbers", "BatchNorms")
    for row in rows:
        counts = (f"{row[name]:,}" for name in ("tensors", "numbers", "batch_norms"))
        table.add_row(_as_text(row["pattern"]), _as_text(row["name"]), *counts)
    return table


def _memory_text(memory: dict[str, int | None]) -> str:
    texts = [f"{filesize.decimal(memory['host_bytes'] or 0)} of the host"]
    if memory.get("allocated_bytes") is not None:
        texts.insert(0, f"{filesize.decimal(memory['reserved_bytes'] or 0)} of the GPU")
        texts.insert(1, f"{filesize.decimal(memory['allocated_bytes'] or 0)} in tensors")
    return ", ".join(texts)


def _metrics_table(result: Result) -> Table:
    """Returns the table of metrics of faces and videos, by class and method; val beside test."""
    splits = {"val": result.val, "test": result.test}
    which = "best" if Path(result.checkpoint).name == BEST else "last"
    table = _table(f"the {which} weights, of step {result.best_step:,}", "", *splits)
    for kind, names, counts in (
        ("faces", _FACES, (result.val_faces, result.test_faces)),
        ("videos", tuple(f"video_{name}" for name in _FACES), (result.val_videos, result.test_videos)),
    ):
        table.add_section()
        table.add_row(f"[bold]{kind}[/]", *(f"{count:,}" for count in counts))
        for name in names:
            table.add_row(
                f"  {_NAMES[name]}",
                *(_format_metric(metrics.get(f"{split}/{name}")) for split, metrics in splits.items()),
            )
    table.add_section()
    keys = dict.fromkeys(key.partition("/")[2] for metrics in splits.values() for key in metrics)
    for key in (key for key in keys if key.startswith("accuracy_")):
        cells = [_format_metric(metrics.get(f"{split}/{key}")) for split, metrics in splits.items()]
        table.add_row(f"accuracy of {_as_text(_subject_of(key))}", *cells)
    return table


def _auc_caveat(videos: int) -> str:
    """Returns what an AUC over this many videos means."""
    if videos < _FEW_VIDEOS:
        return (
            f"An AUC over {plural(videos, 'video')} shows that everything is connected, not that fakes are found: for "
            "that take thousands, and datasets of other makers."
        )
    return "This AUC is of the dataset that was trained on; facefeed evaluate says what it is on others."


def next_steps(result: Result) -> list[str]:
    """Returns lines: where the run is, and the commands that follow."""
    run, checkpoint = shlex.quote(result.run), shlex.quote(result.checkpoint)
    if Path(result.checkpoint).is_dir() and not is_sharded(Path(result.checkpoint)):
        evaluate = f"make one file of {result.checkpoint} by {FILE_OF_PARTS_MAKER}; facefeed evaluate takes that"
    else:
        evaluate = f"facefeed evaluate {checkpoint} {shlex.quote(result.dataset)}"
    return [
        f"run: {result.run}   (settings: config.json, metrics: result.json, weights: checkpoints)",
        f"curves: tensorboard --logdir {run}/logs",
        f"next: {evaluate}",
    ]


def show_evaluations(evaluations: Sequence[Evaluation], checkpoint: Path) -> None:
    """Prints a row for each dataset, then a row for each class and method."""
    console = stderr_console()
    split = evaluations[0].split
    table = _table(f"{checkpoint} on {split}", "dataset", "faces", "videos", "AUC", "video AUC", "log-loss", "accuracy")
    for evaluation in evaluations:
        cells = [_format_metric(evaluation.metrics.get(name)) for name in ("auc", "video_auc", "log_loss", "accuracy")]
        counts = ("-", "-") if evaluation.reason else (f"{evaluation.faces:,}", f"{evaluation.videos:,}")
        table.add_row(_as_text(evaluation.name), *counts, *cells)
    console.print(table)
    for evaluation in evaluations:
        if evaluation.reason:
            console.print(_as_text(f"{evaluation.name}: not measured: {evaluation.reason}"))
    evaluations = [evaluation for evaluation in evaluations if not evaluation.reason]
    names = [_as_text(evaluation.name) for evaluation in evaluations]
    accuracies = _table("accuracy by class and method", "of", *names)
    keys = dict.fromkeys(key for evaluation in evaluations for key in evaluation.metrics if key.startswith("accuracy_"))
    for key in sorted(
        keys, key=lambda key: key.startswith("accuracy_method_")
    ):  # classes first, in the checkpoint's order
        accuracies.add_row(
            _as_text(_subject_of(key)), *(_format_metric(evaluation.metrics.get(key)) for evaluation in evaluations)
        )
    console.print(accuracies)
    for line in dict.fromkeys(note for evaluation in evaluations for note in evaluation.notes):
        console.print(_as_text(line))
    fewest = min((evaluation.videos for evaluation in evaluations if "auc" in evaluation.metrics), default=_FEW_VIDEOS)
    if fewest < _FEW_VIDEOS:
        console.print(_auc_caveat(fewest), soft_wrap=False)


def _subject_of(key: str) -> str:
    """Returns what an accuracy is of, in words: "method swap" for accuracy_method_swap."""
    name = key.removeprefix("accuracy_")
    return f"method {name.removeprefix('method_')}" if name.startswith("method_") else name


def _as_text(name: str) -> str:
    """Returns a text, which may hold names, without what rich or a terminal would interpret in it."""
    return escape(printable(name))


def _format_metric(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=_as_text(title), title_justify="left", title_style="bold", show_header=any(columns))
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number and any(columns) else "left", overflow="fold")
    return table
