"""Draws a histogram: the outline of each class, and the fractions of each bin in a tooltip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

from ...page import figures
from ...page.formats import percent
from .histograms import MAX_CURVES, Histogram

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a6a00", "#777b85")
assert len(_COLOURS) == MAX_CURVES


def class_colours(histograms: Iterable[Histogram]) -> dict[str, str]:
    """A colour for each class that any of the histograms has."""
    labels = dict.fromkeys(label for histogram in histograms for label in histogram.fractions)
    return dict(zip(labels, _COLOURS, strict=False))


def histogram_plot(histogram: Histogram, colours: dict[str, str]) -> figure:
    """One figure; all classes on one axis of fractions in percent."""
    edges, fractions = histogram.edges, histogram.fractions
    top = 105 * max(float(fraction.max()) for fraction in fractions.values())
    scale: dict[str, Any] = {"x_axis_type": "log"} if histogram.is_logarithmic else {}
    fig = figures.plot(190, "", "% of the class", (float(edges[0]), float(edges[-1])), (0.0, top), **scale)
    for label, fraction in fractions.items():
        outline = np.concatenate([[0.0], np.repeat(100 * fraction, 2), [0.0]])
        fig.patch(np.repeat(edges, 2), outline, color=colours[label], fill_alpha=0.16, line_width=1.5)
    _add_tooltips(fig, histogram, top)
    return fig


def _add_tooltips(fig: figure, histogram: Histogram, top: float) -> None:
    """Over bins as high as the figure, so that those without a bar answer too."""
    texts = {f"class{number}": [percent(float(share)) for share in fraction]
             for number, fraction in enumerate(histogram.fractions.values())}  # fmt: skip
    source = ColumnDataSource({
        "left": histogram.edges[:-1], "right": histogram.edges[1:], "range": histogram.bin_ranges, **texts,
    })  # fmt: skip
    bins = fig.quad(left="left", right="right", bottom=0, top=top, alpha=0.0, hover_alpha=0.06,
                    hover_color=figures.INK, source=source)  # fmt: skip
    fractions = ((label, f"@{name}") for label, name in zip(histogram.fractions, texts, strict=True))
    figures.hover(fig, [bins], ("", "@range"), *fractions)
