"""Shared parts of the figures: colours, axes, formats, and embedding without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from bokeh.core.json_encoder import serialize_json
from bokeh.embed import json_item
from bokeh.models import BasicTicker, FixedTicker, HoverTool
from bokeh.models.annotations.geometry import Span
from bokeh.models.text import PlainText
from bokeh.plotting import figure
from bokeh.resources import Resources
from bokeh.themes import Theme

INK: Final = "#1d1f23"
SOFT: Final = "#646872"
STALL: Final = "#c62828"
NO_CORE: Final = "#ee8866"
SAMPLER: Final = "#d81b60"
OTHER_RANKS: Final = "#b07aa1"
STEP: Final = "#1f5fa8"
TRANSPORT: Final = "#8d929b"
MUTED: Final = "#b9bdc6"
LOADING: Final = "#7fb8dc"
UNSPLIT_BATCH: Final = "#d6e4ee"

STAGES: Final = {
    "read": "#56b4e9", "decode": "#e69f00", "resize": "#f0e442", "augment": "#009e73", "collate": "#cc79a7",
    "other": MUTED,
}  # fmt: skip
"""Okabe and Ito's colours, which people of every kind of colour vision tell apart; stalls alone are red."""

_FAR = 20.0  # times the low end of an axis with logarithms
_LONGEST_NAME = 24  # beside a row; tooltips and tables have all of it
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_TEXT = {"text_font": _FONT, "text_color": INK}
_THEME = Theme(
    json={
        "attrs": {
            "Plot": {"background_fill_color": None, "border_fill_color": None, "outline_line_color": None},
            "Grid": {"grid_line_color": "#e9e8e5"},
            "Axis": {
                "axis_line_color": "#c9cbd0", "major_tick_line_color": "#c9cbd0", "minor_tick_line_color": None,
                "major_label_text_font": _FONT, "major_label_text_font_size": "12px", "major_label_text_color": INK,
                "axis_label_text_font": _FONT, "axis_label_text_font_size": "12px", "axis_label_text_color": SOFT,
                "axis_label_text_font_style": "normal", "major_tick_in": 0,
            },
            "Text": {"text_font": {"value": _FONT}, "text_font_size": {"value": "12px"}},
            "Label": {**_TEXT, "text_font_size": "12px"},
        }
    }
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Cells as text; the first cell of each row is its header."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page: title, reading instruction, figures, table, notes.

    plots: by their text alternatives. legend: colours by name.
    """

    key: str
    title: str
    read: str
    plots: dict[str, figure] = field(default_factory=dict)
    legend: dict[str, str] = field(default_factory=dict)
    table: Table | None = None
    notes: tuple[str, ...] = ()


def plot(
    height: int, x: str, y: str | None, x_range: tuple[float, float], y_range: tuple[float, float], **options: Any
) -> figure:
    """An empty figure as wide as the page, with labelled axes. y: None for an axis of names. options: of Bokeh."""
    options.update(x_range=x_range, y_range=y_range)  # figure takes pairs of numbers, but its stubs do not
    fig = figure(
        height=height, sizing_mode="stretch_width", toolbar_location=None, tools="", min_border_left=64,
        min_border_right=18, x_axis_label=x, y_axis_label=y, **options,
    )  # fmt: skip
    (fig.xgrid if y else fig.ygrid).grid_line_color = None
    for name, axis, ends in (("x", fig.xaxis, x_range), ("y", fig.yaxis, y_range)):
        if options.get(f"{name}_axis_type") == "log":
            axis.ticker = FixedTicker(ticks=round_ticks(*ends))
            axis.major_label_overrides = {tick: f"{tick:,g}" for tick in round_ticks(*ends)}
    return fig


def rows_plot(names: Sequence[str], x: str, x_range: tuple[float, float]) -> figure:
    """An empty figure for horizontal bars or lanes, with a name beside each row, from the top down."""
    fig = plot(60 + 34 * len(names), x, None, x_range, (len(names) - 0.4, -0.6))
    fig.xaxis.ticker = BasicTicker(desired_num_ticks=4)  # a phone has no room for more
    fig.yaxis.ticker = FixedTicker(ticks=list(range(len(names))))
    short = (name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026" for name in names)
    # A plain string would be TeX where it has dollars.
    fig.yaxis.major_label_overrides = {row: PlainText(text=name) for row, name in enumerate(short)}
    fig.yaxis.major_tick_line_color = fig.yaxis.axis_line_color = None
    return fig


def mark(fig: figure, at: float, *, across: bool = False, colour: str = SOFT) -> None:
    """A dashed line at a value of x, or of y if `across`."""
    fig.add_layout(Span(location=at, dimension="width" if across else "height", line_color=colour, line_dash="dashed",
                         line_width=1.5, level="underlay"))  # fmt: skip


def hover(fig: figure, renderers: Sequence[Any], *rows: tuple[str, str]) -> None:
    """Tooltips. rows: names and `@column` references, whose values Bokeh escapes."""
    fig.add_tools(HoverTool(renderers=list(renderers), tooltips=list(rows), point_policy="follow_mouse"))


def round_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20 ... within two positive numbers; denser where these are close."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    leading = (1.0, 2.0, 5.0) if high > _FAR * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    return [number * 10.0**decade for decade in decades for number in leading if low <= number * 10.0**decade <= high]


def percent(share: float) -> str:
    r"""As people say it, on one line.

    >>> [percent(share) for share in (0.314, 0.0234, 0.05, 0.0001, 0.0, -0.0001)]
    ['31\xa0%', '2.3\xa0%', '5\xa0%', 'under 0.1\xa0%', '0\xa0%', '0\xa0%']
    """
    if 0 < share < 0.0005:
        return "under 0.1\u00a0%"
    digits = int(share < 0.1)
    return f"{round(share * 100, digits) + 0.0:.{digits}f}".removesuffix(".0") + "\u00a0%"  # no "-0"


def milliseconds(seconds: float) -> str:
    r"""With as many digits as mean something, on one line.

    >>> [milliseconds(seconds) for seconds in (1.5, 0.0314, 0.01, 0.00234, 0.00007)]
    ['1,500\xa0ms', '31.4\xa0ms', '10\xa0ms', '2.3\xa0ms', '0.07\xa0ms']
    """
    value = seconds * 1e3
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 1 else 2
    return f"{value:,.{digits}f}".removesuffix(".00").removesuffix(".0") + "\u00a0ms"


def in_html(fig: figure) -> str:
    """A figure as JSON that is safe inside a script element."""
    text = serialize_json(json_item(fig, theme=_THEME))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def script() -> str:
    """Bokeh's core script, inline, without widgets."""
    return "\n".join(Resources(mode="inline", components=["bokeh"], log_level="error").js_raw)
