"""The page of the self-test: recovered over injected delays, and the eight checks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2
import numpy as np
from bokeh.models import FixedTicker
from bokeh.plotting import figure
from markupsafe import Markup

from ....pipeline.files import write_atomically
from ..report.json_report import environment
from ..report.page import plots
from .checks import LEAST_ALLOWED_SECONDS, Check, Comparison, headline

_LEAST_MS, _MOST_MS = 0.2, 200.0
_TICKS_MS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)

_SERIES: Final = {
    "without workers, by the clock": (1, "A", "circle", plots.STEP),
    "with workers, by the clock": (2, "A", "diamond", "#009e73"),
    "with workers, by the queue's model": (2, "C", "x", "#d55e00"),
    "beside a device's work, by the clock": (5, "A", "square", "#cc79a7"),
}
"""Name: the check and the estimator whose points it has, and how they are shown."""


def write_page(checks: Sequence[Check], page: Path) -> int:
    """Writes one self-contained HTML file, whole or not at all; returns its bytes.

    Raises `UsageError` where it cannot be written.
    """
    source = files(__package__).joinpath("selftest.html.jinja").read_text(encoding="utf-8")
    jinja = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    series = {name: found for name in _SERIES if (found := _points(checks, name))}
    text = jinja.from_string(source).render(
        checks=checks, headline=headline(checks), environment=environment(), least_ms=_LEAST_MS,
        band_ms=LEAST_ALLOWED_SECONDS * 1e3, legend={name: _SERIES[name][3] for name in series},
        hidden=sum(not _fits(point) for points in series.values() for point in points),
        figure=Markup(plots.in_html(_figure(series))), script=Markup(plots.script()),  # noqa: S704 (Bokeh's own)
    )  # fmt: skip
    return write_atomically(text, page, "--page")


def _points(checks: Sequence[Check], name: str) -> list[Comparison]:
    number, estimator, _, _ = _SERIES[name]
    return [point for check in checks if check.number == number for point in check.points
            if point.estimator == estimator]  # fmt: skip


def _fits(point: Comparison) -> bool:
    """Whether it has a place on axes with logarithms."""
    return min(point.injected, point.recovered) * 1e3 >= _LEAST_MS


def _figure(series: dict[str, list[Comparison]]) -> figure:
    """Recovered over injected stall, with the identity line and the tolerance."""
    # figure takes pairs as ranges, but its stubs do not
    ranges: dict[str, Any] = {"x_range": (_LEAST_MS, _MOST_MS), "y_range": (_LEAST_MS, _MOST_MS)}
    fig = figure(
        height=520, sizing_mode="stretch_width", toolbar_location=None, tools="", x_axis_type="log", y_axis_type="log",
        x_axis_label="injected stall, ms a step", y_axis_label="recovered stall, ms a step", **ranges,
    )  # fmt: skip
    for axis in (fig.xaxis, fig.yaxis):
        axis.ticker = FixedTicker(ticks=_TICKS_MS)
        axis.major_label_overrides = {tick: f"{tick:g}" for tick in _TICKS_MS}
    along, band = np.geomspace(_LEAST_MS, _MOST_MS, 200), LEAST_ALLOWED_SECONDS * 1e3
    fig.varea(along, np.maximum(along - band, _LEAST_MS / 10), along + band, color="#e6ebf2")
    fig.line(along, along, color=plots.SOFT, line_dash="dashed")
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
        "told": [str(point) for point in points],
    }
    fig.segment("injected", "low", "injected", "high", source=source, color=colour, alpha=0.45, line_width=2)
    dots = fig.scatter("injected", "recovered", source=source, marker=marker, size=9, color=colour, fill_alpha=0.5)
    plots.hover(fig, [dots], (name, "@told"))
