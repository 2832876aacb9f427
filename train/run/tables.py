"""What a person reads at the end of `train` and of `evaluate`: tables of 80 columns."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import filesize
from rich.markup import escape
from rich.table import Table

from ...pipeline.console import duration_text, stderr_console

if TYPE_CHECKING:
    from ..evaluate import Evaluation
    from .runner import Result

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
    """The closing tables of a run: how it went, how well it does, and where to look."""
    console = stderr_console()
    console.print(_went(result))
    if result.frozen:
        console.print(_frozen(result.frozen))
    console.print(_does(result))
    console.print(_worth(result.test_videos), soft_wrap=False)
    for line in _places(result):
        console.print(escape(line))


def _went(result: Result) -> Table:
    config = result.config
    model, data = config["model"], config["data"]
    table = _table(f"trained on {result.dataset}", "", "")
    start = "pretrained" if model["pretrained"] else "from scratch"
    table.add_row("recipe", f"{config['recipe']}: {model['backbone']}, {start}, {data['image_size']} px")
    table.add_row("levers", escape(config["levers"] or "none"))
    table.add_row("done", f"{result.epochs} epochs, {result.steps:,} steps, {result.images:,} images")
    table.add_row("time", duration_text(result.seconds))
    if result.images_per_second is not None:
        table.add_row("speed", f"{result.images_per_second:,.0f} images/s")
    if result.stall is not None:
        table.add_row("stall", f"waited for data {result.stall:.1%} of the time")
    table.add_row("peak memory", _memory(result.memory))
    for name, figures in result.told.items():
        told = ", ".join(f"{key} {value}" for key, value in figures.items() if value)
        if told:
            table.add_row(escape(name), escape(told))
    return table


def _frozen(rows: Sequence[dict[str, Any]]) -> Table:
    """What did not learn, a row a module or parameter."""
    table = _table("frozen", "pattern", "module or parameter", "tensors", "numbers", "BatchNorms")
    for row in rows:
        counts = (f"{row[name]:,}" for name in ("tensors", "numbers", "batch_norms"))
        table.add_row(escape(row["pattern"]), escape(row["name"]), *counts)
    return table


def _memory(memory: dict[str, int | None]) -> str:
    texts = [f"{filesize.decimal(memory['host_bytes'] or 0)} of the host"]
    if memory.get("allocated_bytes") is not None:
        texts.insert(0, f"{filesize.decimal(memory['reserved_bytes'] or 0)} of the GPU")
        texts.insert(1, f"{filesize.decimal(memory['allocated_bytes'] or 0)} in tensors")
    return ", ".join(texts)


def _does(result: Result) -> Table:
    """Figures of faces and videos, of classes and methods; val beside test."""
    splits = {"val": result.val, "test": result.test}
    table = _table(f"the best weights, of step {result.best_step:,}", "", *splits)
    for what, names, counts in (
        ("faces", _FACES, (result.val_faces, result.test_faces)),
        ("videos", tuple(f"video_{name}" for name in _FACES), (result.val_videos, result.test_videos)),
    ):
        table.add_section()
        table.add_row(f"[bold]{what}[/]", *(f"{count:,}" for count in counts))
        for name in names:
            table.add_row(f"  {_NAMES[name]}", *(_figure(of.get(f"{split}/{name}")) for split, of in splits.items()))
    table.add_section()
    keys = dict.fromkeys(key.partition("/")[2] for of in splits.values() for key in of)
    for key in (one for one in keys if one.startswith("accuracy_")):
        cells = [_figure(of.get(f"{split}/{key}")) for split, of in splits.items()]
        table.add_row(f"accuracy of {escape(_of(key))}", *cells)
    return table


def _worth(videos: int) -> str:
    """What an AUC over so many videos says."""
    if videos < _FEW_VIDEOS:
        return (
            f"An AUC over {videos} videos shows that everything is connected, not that fakes are found: for that take "
            "thousands, and datasets of other makers."
        )
    return "This AUC is of the dataset that was trained on; facefeed evaluate says what it is on others."


def _places(result: Result) -> list[str]:
    run = shlex.quote(result.run)
    return [
        f"run: {result.run}   (settings: config.json, figures: result.json, weights: checkpoints)",
        f"curves: tensorboard --logdir {run}/logs",
        f"next: facefeed evaluate {shlex.quote(result.checkpoint)} {shlex.quote(result.dataset)}",
    ]


def show_evaluations(found: Sequence[Evaluation], checkpoint: Path) -> None:
    """A row a dataset; below, a row for each class and method of each."""
    console = stderr_console()
    split = found[0].split
    table = _table(f"{checkpoint} on {split}", "dataset", "faces", "videos", "AUC", "video AUC", "log-loss", "accuracy")
    for one in found:
        figures = [_figure(one.figures.get(name)) for name in ("auc", "video_auc", "log_loss", "accuracy")]
        counts = ("-", "-") if one.reason else (f"{one.faces:,}", f"{one.videos:,}")
        table.add_row(escape(one.name), *counts, *figures)
    console.print(table)
    for one in found:
        if one.reason:
            console.print(escape(f"{one.name}: not measured: {one.reason}"))
    found = [one for one in found if not one.reason]
    parts = _table("accuracy by class and method", "of", *(escape(one.name) for one in found))
    keys = dict.fromkeys(key for one in found for key in one.figures if key.startswith("accuracy_"))
    for key in sorted(keys, key=lambda key: key.startswith("accuracy_method_")):  # else as the checkpoint has them
        parts.add_row(escape(_of(key)), *(_figure(one.figures.get(key)) for one in found))
    console.print(parts)
    for line in dict.fromkeys(note for one in found for note in one.notes):
        console.print(escape(line))
    fewest = min((one.videos for one in found if "auc" in one.figures), default=_FEW_VIDEOS)
    if fewest < _FEW_VIDEOS:
        console.print(_worth(fewest), soft_wrap=False)


def _of(key: str) -> str:
    """A figure's name as people say it: accuracy_method_swap is of the method swap."""
    name = key.removeprefix("accuracy_")
    return f"method {name.removeprefix('method_')}" if name.startswith("method_") else name


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=escape(title), title_justify="left", title_style="bold", show_header=any(columns))
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number and any(columns) else "left", overflow="fold")
    return table
