"""The curve of a soak: memory and descriptors of each long-lived process over time, as a picture.

A reader that was killed and its successor have one colour: in two hours there are a hundred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from soak_samples import MEMORY, by_process


def draw_chart(samples: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Writes a PNG; nothing where there is no sample."""
    processes = by_process(samples)
    if not processes:
        return
    start = min(series[0]["time"] for series in processes.values())
    figure = Figure(figsize=(9, 7), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(2, sharex=True), (MEMORY, "descriptors"), strict=True):
        colours: dict[str, str] = {}
        for process, series in processes.items():
            kind, _, _ = process.rpartition(" ")  # without its number
            minutes = [(sample["time"] - start) / 60 for sample in series]
            label = None if kind in colours else kind
            colour = colours.setdefault(kind, f"C{len(colours)}")
            axes.plot(minutes, [sample[name] for sample in series], marker=".", color=colour, label=label)
        axes.set_ylabel({MEMORY: "memory (PSS, anonymous), MB"}.get(name, name))
        axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
