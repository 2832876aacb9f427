"""The page of the self-test: recovered over injected delays, and the eight checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from bokeh.plotting import figure

from ....pipeline.page import figures, html
from ..report.json_report import environment
from ..report.page.colours import STEP
from .checks import LEAST_ALLOWED_SECONDS, Check, Comparison, headline

_LEAST_MS, _MOST_MS = 0.2, 200.0

_SERIES: Final = {
    "without workers, by the clock": (1, "A", "circle", STEP),
    "with workers, by the clock": (2, "A", "diamond", "#009e73"),
    "with workers, by the queue's model": (2, "C", "x", "#d55e00"),
    "beside a device's work, by the clock": (5, "A", "square", "#cc79a7"),
}
"""Name: the check and the estimator whose points it has, and how they are shown."""


def write_page(checks: Sequence[Check], page: Path) -> int:
    """Writes one self-contained HTML file, whole or not at all; returns its bytes.

    Raises `UsageError` where it cannot be written.
    """
    series = {name: points for name in _SERIES if (points := _points(checks, name))}
    return html.write_page(
        page, "selftest.html.jinja", __package__, command="profile --self-test", title=headline(checks),
        checks=checks, environment=environment(), least_ms=_LEAST_MS,
        band_ms=LEAST_ALLOWED_SECONDS * 1e3, colours={name: _SERIES[name][3] for name in series},
        hidden=sum(not _fits(point) for points in series.values() for point in points),
        recovered=_figure(series),
    )  # fmt: skip


def _points(checks: Sequence[Check], name: str) -> list[Comparison]:
    number, estimator, _, _ = _SERIES[name]
    return [point for check in checks if check.number == number for point in check.points
            if point.estimator == estimator]  # fmt: skip


def _fits(point: Comparison) -> bool:
    """Whether it has a place on axes with logarithms."""
    return min(point.injected, point.recovered) * 1e3 >= _LEAST_MS


def _figure(series: dict[str, list[Comparison]]) -> figure:
    """Recovered over injected wait, with the identity line and the tolerance."""
    ends = (_LEAST_MS, _MOST_MS)
    fig = figures.plot(
        520, "injected wait, ms a step", "recovered wait, ms a step", ends, ends,
        x_axis_type="log", y_axis_type="log",
    )  # fmt: skip
    along, band = np.geomspace(_LEAST_MS, _MOST_MS, 200), LEAST_ALLOWED_SECONDS * 1e3
    fig.varea(along, np.maximum(along - band, _LEAST_MS / 10), along + band, color="#e6ebf2")
    fig.line(along, along, color=figures.SOFT, line_dash="dashed")
    for name, points in series.items():
        _draw(fig, name, [point for point in points if _fits(point)])
    return fig


def _draw(fig: figure, name: str, points: Sequence[Comparison]) -> None:
    """Each comparison with a bar for its tolerance."""
    _, _, marker, colour = _SERIES[name]
    source = {
        "injected": [point.injected * 1e3 for point in points],
        "recovered": [point.recovered * 1e3 for point in points],
        "low": [max((point.injected - point.allowed) * 1e3, _LEAST_MS / 10) for point in points],
        "high": [(point.injected + point.allowed) * 1e3 for point in points],
        "text": [str(point) for point in points],
    }
    fig.segment("injected", "low", "injected", "high", source=source, color=colour, alpha=0.45, line_width=2)
    dots = fig.scatter("injected", "recovered", source=source, marker=marker, size=9, color=colour, fill_alpha=0.5)
    figures.hover(fig, [dots], (name, "@text"))
