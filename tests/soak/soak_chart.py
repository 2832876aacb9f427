"""The curve of a soak: memory and descriptors of each long-lived process over time, as a picture."""

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
        for process, series in processes.items():
            minutes = [(sample["time"] - start) / 60 for sample in series]
            axes.plot(minutes, [sample[name] for sample in series], marker=".", label=process)
        axes.set_ylabel({MEMORY: "memory (PSS, anonymous), MB"}.get(name, name))
        axes.set_ylim(bottom=0)
    axes.set_xlabel("minutes")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
