"""ROC curves and the confusion matrix as pictures: in TensorBoard, and as PNG files beside the logs."""

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

from .scores import Scores


def log_pictures(loggers: Sequence[Any], scores: Scores, stage: str, step: int) -> None:
    """Draws the pictures `roc` and `confusion` of a stage, "val" or "test", where there is a logger to take them.

    In TensorBoard each step's stays; `<stage>_roc.png` and `<stage>_confusion.png` in a logger's folder are the latest.
    Without a curve, where there is only one class, the ROC picture is left out.
    """
    folders = {Path(folder) for logger in loggers if (folder := getattr(logger, "log_dir", None))}
    boards = [logger for logger in loggers if isinstance(logger, TensorBoardLogger)]
    if not folders:
        return
    for name, figure in (("roc", roc_figure(scores)), ("confusion", confusion_figure(scores))):
        if figure is None:
            continue
        pixels = _drawn(figure)
        for board in boards:
            board.experiment.add_image(f"{stage}/{name}", pixels, step, dataformats="HWC")
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{stage}_{name}.png")


def roc_figure(scores: Scores) -> Figure | None:
    """The curves of faces and of videos; with more than two classes one for each class against all others."""
    two = len(scores.classes) == 2
    curves = [
        (kind if two else f"{kind}, {scores.classes[number]}", curve, line)
        for kind, said, line in (("faces", scores.faces, "-"), ("videos", scores.videos, "--"))
        for number in ([1] if two else range(len(scores.classes)))
        if (curve := said.roc(number)) is not None
    ]
    if not curves:
        return None
    figure = Figure(figsize=(5, 5), dpi=100)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for label, curve, line in curves:
        axes.plot(curve.fpr, curve.tpr, line, label=f"{label}: AUC {curve.area:.3f}")
    axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(0, 1), ylim=(0, 1.01), aspect="equal")
    axes.set_title(f"ROC: {scores.classes[1]} against {scores.classes[0]}" if two else "ROC: each class against all")
    axes.legend(loc="lower right")
    return figure


def confusion_figure(scores: Scores) -> Figure:
    """The confusion matrix of faces: counts, coloured by their share of the true class."""
    counts = scores.faces.confusion
    shares = counts / counts.sum(1, keepdims=True).clip(min=1)
    side = max(4.0, 0.6 * len(counts) + 2)
    figure = Figure(figsize=(side, side), dpi=100)
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (true, said), count in np.ndenumerate(counts):
        colour = "white" if shares[true, said] > 0.5 else "black"
        axes.text(said, true, f"{count:,}", ha="center", va="center", color=colour)
    places = range(len(counts))
    axes.set_xticks(
        places, scores.classes, rotation=45 if len(counts) > 2 else 0, ha="right" if len(counts) > 2 else "center"
    )
    axes.set_yticks(places, scores.classes)
    axes.set(xlabel="said", ylabel="true", title="faces")
    return figure


def _drawn(figure: Figure) -> NDArray[np.uint8]:
    """uint8 (H, W, 3)."""
    figure.tight_layout()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
