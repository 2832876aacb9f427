"""Histograms of the measures by class."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ..formatting import compact_number
from ..statistics.columns import MANIPULATED, SHARPNESS, Measure, integer_column, measures_of, statistic_values
from ..statistics.videos import VideoTable, label_names

_NUM_BINS: Final = 36
_ROUNDING: Final = 1e-5  # of a bin's width: an edge so close to 0 is meant to be 0
MAX_CURVES: Final = 8
"""The number of classes that are drawn, the largest; more could not be distinguished."""

Values = NDArray[Any]


@dataclass(frozen=True)
class Histogram:
    """Fractions of each class by bin. bin_ranges: each bin's range of values as text.

    edges: of the n bins, (n + 1). is_logarithmic: whether the bins are equally wide on a logarithmic axis.
    """

    name: str
    description: str
    edges: Values
    bin_ranges: list[str]
    fractions: dict[str, Values]
    is_logarithmic: bool


def histograms(index: Index, videos: VideoTable) -> list[Histogram]:
    """One histogram for each measure with known values, and one of the number of faces per video."""
    names, labels = label_names(index), integer_column(index, "label")
    largest = sorted([*range(len(index.labels)), -1], key=lambda code: -int((labels == code).sum()))[:MAX_CURVES]
    classes = {names[code]: labels == code for code in sorted(largest, key=lambda code: code % len(names))}
    plots = [
        _histogram(measure.title, measure.description, by_class, _edges(measure, by_class))
        for measure in measures_of(index)
        if (by_class := _group_by_class(measure.scale * statistic_values(measure, index), classes))
    ]
    label_of_group = np.array([key.label for key in videos.group_keys], np.str_)
    video_masks = {name: (label_of_group == name)[videos.group_of_video] for name in classes}
    faces = _group_by_class(videos.num_rows.astype(np.float32), video_masks)
    if faces:
        plots.append(_histogram("faces a video", "how many rows a video gave", faces, _integer_edges(faces)))
    return plots


def _group_by_class(values: Values, classes: dict[str, NDArray[np.bool_]]) -> dict[str, Values]:
    """The finite values of each class, without classes that have none. `classes`: masks like `values`."""
    known = np.isfinite(values)
    return {name: selected for name, mask in classes.items() if len(selected := values[known & mask])}


def _edges(measure: Measure, by_class: dict[str, Values]) -> Values:
    all_values = np.concatenate(list(by_class.values()))
    low, high = (float(quantile) for quantile in np.quantile(all_values, (0.0, 0.99)))
    if measure is SHARPNESS:
        low = max(float(np.quantile(all_values, 0.005)), 0.1)
        return np.geomspace(low, max(high, 2 * low), _NUM_BINS + 1)
    if measure is MANIPULATED:  # integer edges, so that the faces that count as unchanged have their own bars
        step = math.ceil(max(high, 10.0) / _NUM_BINS)
        return np.arange(math.ceil(max(high, 10.0) / step) + 1.0) * step
    return np.linspace(low, high, _NUM_BINS + 1) if high > low else np.linspace(low - 0.5, low + 0.5, _NUM_BINS + 1)


def _integer_edges(by_class: dict[str, Values]) -> Values:
    """Edges halfway between integers."""
    high = float(np.quantile(np.concatenate(list(by_class.values())), 0.99))
    step = max(1, math.ceil(high / _NUM_BINS))
    return np.arange(0.5, max(high, 1) + step + 0.5, step)


def _histogram(name: str, description: str, by_class: dict[str, Values], edges: Values) -> Histogram:
    # Values beyond an end are counted in the outermost bar.
    fractions = {
        label: np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)
        for label, values in by_class.items()
    }
    is_logarithmic = edges[0] > 0 and not np.isclose(edges[1] - edges[0], edges[-1] - edges[-2])
    return Histogram(name, description, edges, list(_bin_ranges(edges, by_class)), fractions, bool(is_logarithmic))


def _bin_ranges(edges: Values, by_class: dict[str, Values]) -> Iterator[str]:
    """The range of values of each bin as text."""
    smallest, largest = min(map(np.min, by_class.values())), max(map(np.max, by_class.values()))
    edges = np.where(np.abs(edges) < _ROUNDING * (edges[1] - edges[0]), 0.0, edges)
    last = len(edges) - 2
    for number, (low, high) in enumerate(pairwise(edges)):
        if number == last and largest > high:
            yield f"{compact_number(low)} and more"
        elif number == 0 and smallest < low:
            yield f"{compact_number(high)} and less"
        else:
            yield f"{compact_number(low)} to {compact_number(high)}"
