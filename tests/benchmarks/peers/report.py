"""From repeats to medians, ratios within each round, and a table."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np

Repeats = dict[str, list[dict[str, float]]]
OURS = "facefeed"
_COLUMNS = (
    ("images/s", "images_per_second", "{:,.0f}"),
    ("CPU s/1000", "cpu_seconds_per_1000_images", "{:.3f}"),
    ("epoch's first s", "first_batch_of_epoch_seconds", "{:.3f}"),
    ("peak PSS MB", "peak_pss_mb", "{:,.0f}"),
    ("first batch s", "first_batch_seconds", "{:.2f}"),
    ("without workers", "first_batch_without_workers_seconds", "{:.2f}"),
)


def medians(repeats: Repeats) -> dict[str, dict[str, float]]:
    """The median of each figure of each entry."""
    return {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in repeats.items()
    }


def spread(repeats: Repeats) -> dict[str, list[float]]:
    """Slowest and fastest repeat of each entry, images a second."""
    rates = {name: [run["images_per_second"] for run in runs] for name, runs in repeats.items()}
    return {name: [min(of), max(of)] for name, of in rates.items()}


def ratios(repeats: Repeats) -> dict[str, list[float]]:
    """facefeed's images a second over each other's in the same round; above 1 facefeed was faster."""
    if OURS not in repeats:
        return {}
    ours = [run["images_per_second"] for run in repeats[OURS]]
    return {
        name: [mine / run["images_per_second"] for mine, run in zip(ours, runs, strict=True)]
        for name, runs in repeats.items()
        if name != OURS
    }


def overhead_us(repeats: Repeats, key: str) -> dict[str, float]:
    """Median over the rounds of how many us an image costs more than in facefeed; negative: less.

    `key` "wall": of the clock, with all workers at work; "cpu": of all processes.
    """

    def cost(run: dict[str, float]) -> float:
        return 1e6 / run["images_per_second"] if key == "wall" else run["cpu_seconds_per_1000_images"] * 1e3

    ours = [cost(run) for run in repeats.get(OURS, [])]
    return {
        name: statistics.median(cost(run) - mine for run, mine in zip(runs, ours, strict=True))
        for name, runs in repeats.items()
        if ours and name != OURS
    }


def summary(repeats: Repeats, lane: str) -> dict[str, Any]:
    """Everything that follows from a lane's repeats."""
    figures: dict[str, Any] = {"median": medians(repeats), "spread": spread(repeats), "facefeed_over": ratios(repeats)}
    if lane == "B":
        figures["wall_us_more_than_facefeed"] = overhead_us(repeats, "wall")
        figures["cpu_us_more_than_facefeed"] = overhead_us(repeats, "cpu")
    if lane == "D" and OURS in repeats:
        rounds = zip(*repeats.values(), strict=True)
        ceilings = [max(run["images_per_second"] for run in each) for each in rounds]
        ours = [run["images_per_second"] for run in repeats[OURS]]
        figures["facefeed_share_of_ceiling"] = [mine / most for mine, most in zip(ours, ceilings, strict=True)]
    return figures


def differences(saved: dict[str, Path]) -> dict[str, dict[str, float]]:
    """How far each entry's tensors are from facefeed's, in units of normalised pixels (1/255 is about 0.017)."""
    ours = np.load(saved[OURS])
    largest = {}
    for name, path in saved.items():
        difference = np.abs(np.load(path) - ours)
        largest[name] = {"max": float(difference.max()), "mean": float(difference.mean())}
    return largest


def table(lane: str, about: str, lane_figures: dict[str, Any], one_time: dict[str, dict[str, float]]) -> str:
    """A lane for people."""
    titles = "".join(f"{title:>17}" for title, _, _ in _COLUMNS)
    lines = [f"\nlane {lane}: {about}", f"{'':<24}{titles}  facefeed/it"]
    for name, median in lane_figures["median"].items():
        figures = {**one_time.get(name, {}), **median}
        cells = [form.format(figures[key]) if key in figures else "-" for _, key, form in _COLUMNS]
        each = " ".join(f"{ratio:.2f}" for ratio in lane_figures["facefeed_over"].get(name, []))
        lines.append(f"{name:<24}" + "".join(f"{cell:>17}" for cell in cells) + f"  {each}")
    keys = ("wall_us_more_than_facefeed", "cpu_us_more_than_facefeed", "facefeed_share_of_ceiling")
    return "\n".join([*lines, *(f"{key}: {_rounded(lane_figures[key])}" for key in keys if key in lane_figures)])


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [round(item, 2) for item in value] if isinstance(value, list) else round(value, 1)
