"""How measures are spread over the faces of each class, as shapes that need no script to be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ..formatting import percent, short
from ..statistics.columns import MANIPULATED, MEASURES, SHARPNESS, Measure, numbers
from ..statistics.videos import Videos, label_names

WIDTH, HEIGHT = 360.0, 120.0
"""Of the area in which curves are drawn; what a page calls these units is its own matter."""

_BINS: Final = 36
CURVES: Final = 8
"""Classes that are drawn, the largest; more could not be told apart."""

Values = NDArray[Any]


@dataclass(frozen=True)
class Curve:
    """One class: the outline of its bars as an SVG path, closed along the ground."""

    label: str
    path: str


@dataclass(frozen=True)
class Bin:
    """One bar's place, and what it stands for in words."""

    x: float
    width: float
    words: str


@dataclass(frozen=True)
class Histogram:
    """Shares of each class by bin. `ticks`: places along the ground with their text; `top`: the highest share."""

    name: str
    about: str
    curves: list[Curve]
    bins: list[Bin]
    ticks: list[tuple[float, str]]
    top: str


def histograms(index: Index, videos: Videos) -> list[Histogram]:
    """One for each measure that is known of any face, and one of how many faces videos have."""
    names, labels = label_names(index), numbers(index, "label")
    largest = sorted([*range(len(index.labels)), -1], key=lambda code: -int((labels == code).sum()))[:CURVES]
    classes = {names[code]: labels == code for code in sorted(largest, key=lambda code: code % len(names))}
    found = [
        _of(measure.title, measure.about, by_class, _edges(measure, by_class))
        for measure in MEASURES
        if (by_class := _by_class(measure.scale * measure.values(index), classes))
    ]
    label_of_kind = np.array([kind.label for kind in videos.kinds], np.str_)
    of_video = {name: (label_of_kind == name)[videos.kind] for name in classes}
    faces = _by_class(videos.rows.astype(np.float32), of_video)
    if faces:
        found.append(_of("faces a video", "how many rows a video gave", faces, _whole(faces)))
    return found


def _by_class(values: Values, classes: dict[str, NDArray[np.bool_]]) -> dict[str, Values]:
    """The known values of each class; without classes that have none."""
    known = ~np.isnan(values)
    return {name: found for name, mine in classes.items() if len(found := values[known & mine])}


def _edges(measure: Measure, by_class: dict[str, Values]) -> Values:
    every = np.concatenate(list(by_class.values()))
    low, high = (float(one) for one in np.quantile(every, (0.0, 0.99)))
    if measure is SHARPNESS:
        low = max(float(np.quantile(every, 0.005)), 0.1)
        return np.geomspace(low, max(high, 2 * low), _BINS + 1)
    if measure is MANIPULATED:  # so that what counts as unchanged has bars of its own
        step = math.ceil(max(high, 10.0) / _BINS)
        return np.arange(math.ceil(max(high, 10.0) / step) + 1.0) * step
    return np.linspace(low, high, _BINS + 1) if high > low else np.linspace(low - 0.5, low + 0.5, _BINS + 1)


def _whole(by_class: dict[str, Values]) -> Values:
    """Edges between whole numbers."""
    most = float(np.quantile(np.concatenate(list(by_class.values())), 0.99))
    step = max(1, math.ceil(most / _BINS))
    return np.arange(0.5, max(most, 1) + step + 0.5, step)


def _of(name: str, about: str, by_class: dict[str, Values], edges: Values) -> Histogram:
    # What lies beyond an end is counted in the last bar on its side.
    shares = {
        label: np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)
        for label, values in by_class.items()
    }
    top = max(float(share.max()) for share in shares.values())
    logarithmic = edges[0] > 0 and not np.isclose(edges[1] - edges[0], edges[-1] - edges[-2])
    scale: Callable[[Values], Values] = np.log if logarithmic else np.asarray
    low, high = (float(scale(edge)) for edge in (edges[0], edges[-1]))

    def across(value: Values) -> Values:
        return (scale(value) - low) / (high - low) * WIDTH

    at, ticks = across(edges), np.array([*_ticks(edges, logarithmic=logarithmic)])
    return Histogram(
        name=name,
        about=about,
        curves=[Curve(label, _path(at, share / top * HEIGHT)) for label, share in shares.items()],
        bins=[
            Bin(float(at[one]), float(at[one + 1] - at[one]), "\n".join([words, *_of_bin(shares, one)]))
            for one, words in enumerate(_ranges(edges, by_class))
        ],
        ticks=[(float(x), short(tick)) for x, tick in zip(across(ticks), ticks, strict=True)],
        top=percent(top),
    )


def _path(at: Values, heights: Values) -> str:
    steps = [f"M{at[0]:.1f} {HEIGHT:.1f}"]
    for left, right, height in zip(at, at[1:], heights, strict=False):
        steps.append(f"L{left:.1f} {HEIGHT - height:.1f}L{right:.1f} {HEIGHT - height:.1f}")
    return "".join([*steps, f"L{at[-1]:.1f} {HEIGHT:.1f}Z"])


def _ranges(edges: Values, by_class: dict[str, Values]) -> Iterator[str]:
    """What each bar counts."""
    least, most = min(map(np.min, by_class.values())), max(map(np.max, by_class.values()))
    last = len(edges) - 2
    for one, (low, high) in enumerate(pairwise(edges)):
        if one == last and most > high:
            yield f"{short(low)} and more"
        elif one == 0 and least < low:
            yield f"{short(high)} and less"
        else:
            yield f"{short(low)} to {short(high)}"


def _of_bin(shares: dict[str, Values], one: int) -> Iterator[str]:
    yield from (f"{label}: {percent(float(share[one]))}" for label, share in shares.items())


def _ticks(edges: Values, *, logarithmic: bool) -> Iterator[float]:
    low, high = float(edges[0]), float(edges[-1])
    if logarithmic:
        leading = (1, 2, 5) if high < 200 * low else (1,)
        for decade in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
            yield from (tick for one in leading if low <= (tick := one * 10.0**decade) <= high)
        return
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(one * power for one in (1, 2, 5, 10) if one * power >= rough)
    first = math.ceil(low / step - 1e-9)
    yield from (number * step for number in range(first, math.floor(high / step + 1e-9) + 1))
