"""Figures of all pages, drawn by Bokeh: axes, bars, tooltips, and embedding without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from bokeh.core.json_encoder import serialize_json
from bokeh.embed import json_item
from bokeh.models import BasicTicker, ColumnDataSource, FixedTicker, HoverTool, NumeralTickFormatter
from bokeh.models.annotations.geometry import Span, Whisker
from bokeh.models.text import PlainText
from bokeh.plotting import figure
from bokeh.resources import Resources
from bokeh.themes import Theme
from markupsafe import Markup

INK: Final = "#1d1f23"
SOFT: Final = "#646872"
MUTED: Final = "#b9bdc6"
BLUE: Final = "#1f5fa8"

_FAR = 8.0  # times the low end of an axis with logarithms
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


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar of a bar chart. text: beside it, and in its tooltip. lower, upper: the ends of its whisker, or None."""

    name: str
    value: float
    text: str = ""
    colour: str = BLUE
    note: str = ""
    lower: float | None = None
    upper: float | None = None


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


def bar_chart(bars: Sequence[Bar], x: str, *, least_end: float = 0.0, reference: float | None = None) -> figure:
    """Horizontal bars from 0, from the top down.

    Args:
        bars: values in the unit of the axis.
        x: the axis' label.
        least_end: the axis reaches at least so far.
        reference: where a dashed line is drawn, or None.

    """
    values = [bar.value for bar in bars]
    ends = [value if bar.upper is None else bar.upper for bar, value in zip(bars, values, strict=True)]
    room = 1.35 if any(bar.text for bar in bars) else 1.05
    fig = rows_plot([bar.name for bar in bars], x, (0.0, room * max(least_end, reference or 0.0, 1e-6, *ends)))
    fig.xaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    if reference is not None:
        mark(fig, reference)
    columns = {name: [getattr(bar, name) for bar in bars] for name in ("name", "text", "note", "colour")}
    source = ColumnDataSource({"y": list(range(len(bars))), "value": values, "end": ends, **columns})
    drawn = fig.hbar(y="y", left=0, right="value", height=0.62, color="colour", source=source)
    fig.text(x="end", y="y", text="text", x_offset=6, text_baseline="middle", text_color=INK, source=source)
    _draw_whiskers(fig, bars)
    hover(fig, [drawn], ("", "@name"), (x, "@text"), ("", "@note"))
    return fig


def _draw_whiskers(fig: figure, bars: Sequence[Bar]) -> None:
    """Over the bars that have both ends."""
    spans = [(row, bar.lower, bar.upper) for row, bar in enumerate(bars) if bar.lower is not None]
    if spans:
        rows, lower, upper = zip(*spans, strict=True)
        source = ColumnDataSource({"y": rows, "lower": lower, "upper": upper})
        fig.add_layout(
            Whisker(base="y", lower="lower", upper="upper", dimension="width", source=source, line_color=INK)
        )


def round_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, 20 ... within two positive numbers; denser where these are close."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    leading = (1.0, 2.0, 5.0) if high > _FAR * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    return [number * 10.0**decade for decade in decades for number in leading if low <= number * 10.0**decade <= high]


def as_json(fig: figure) -> Markup:
    """A figure as JSON that is safe inside a script element."""
    text = serialize_json(json_item(fig, theme=_THEME))
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(escaped)  # noqa: S704 (no character in it can end the element)


def script() -> Markup:
    """Bokeh's core script, inline, without widgets."""
    text = "\n".join(Resources(mode="inline", components=["bokeh"], log_level="error").js_raw)
    return Markup(text)  # noqa: S704 (Bokeh's own)
