"""Plots of ROC curves and of the confusion matrix, for TensorBoard and as PNG files beside the logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import TensorBoardLogger
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from .eval_metrics import EvalMetrics


def log_plots(loggers: Sequence[Any], metrics: EvalMetrics, stage: str, step: int) -> None:
    """Plots `roc` and `confusion` of a stage, "val" or "test", for loggers that have a folder.

    TensorBoard keeps the plots of every step; `<stage>_roc.png` and `<stage>_confusion.png` in a logger's folder are
    overwritten by the latest. The ROC plot is left out if only one class is present.
    """
    folders = {Path(folder) for logger in loggers if (folder := getattr(logger, "log_dir", None))}
    boards = [logger for logger in loggers if isinstance(logger, TensorBoardLogger)]
    if not folders:
        return
    for name, plot in (("roc", roc_plot(metrics)), ("confusion", confusion_plot(metrics))):
        if plot is None:
            continue
        pixels = _render(plot)
        for board in boards:
            board.experiment.add_image(f"{stage}/{name}", pixels, step, dataformats="HWC")
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{stage}_{name}.png")


def roc_plot(metrics: EvalMetrics) -> Figure | None:
    """Plots the ROC curves of faces and videos; beyond two classes one curve for each class against the rest."""
    classes = _class_texts(metrics)
    two = len(classes) == 2
    curves = [
        (kind if two else f"{kind}, {classes[label]}", curve, line)
        for kind, predictions, line in (("faces", metrics.faces, "-"), ("videos", metrics.videos, "--"))
        for label in ([1] if two else range(len(classes)))
        if (curve := predictions.roc(label)) is not None
    ]
    if not curves:
        return None
    plot = Figure(figsize=(5, 5), dpi=100)
    axes = plot.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for name, curve, line in curves:
        axes.plot(curve.fpr, curve.tpr, line, label=f"{name}: AUC {curve.area:.3f}")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
    axes.set_title(f"ROC: {classes[1]} against {classes[0]}" if two else "ROC: each class against all")
    axes.legend(loc="lower right")
    return plot


def confusion_plot(metrics: EvalMetrics) -> Figure:
    """Plots the confusion matrix of faces: counts, coloured by their fraction of the true class."""
    counts = metrics.faces.confusion
    fractions = counts / counts.sum(1, keepdims=True).clip(min=1)
    side = max(4.0, 0.6 * len(counts) + 2)
    plot = Figure(figsize=(side, side), dpi=100)
    axes = plot.add_subplot()
    axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    for (true, predicted), count in np.ndenumerate(counts):
        colour = "white" if fractions[true, predicted] > 0.5 else "black"
        axes.text(predicted, true, f"{count:,}", ha="center", va="center", color=colour)
    ticks, classes = range(len(counts)), _class_texts(metrics)
    axes.set_xticks(ticks, classes, rotation=45 if len(counts) > 2 else 0, ha="right" if len(counts) > 2 else "center")
    axes.set_yticks(ticks, classes)
    axes.set(xlabel="predicted", ylabel="true", title="faces")
    return plot


def _class_texts(metrics: EvalMetrics) -> list[str]:
    """Returns the class names with `$` escaped, between which matplotlib would read a formula."""
    return [name.replace("$", r"\$") for name in metrics.classes]


def _render(plot: Figure) -> NDArray[np.uint8]:
    """Returns the plot as RGB uint8 (H, W, 3)."""
    plot.tight_layout()
    canvas: Any = FigureCanvasAgg(plot)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
