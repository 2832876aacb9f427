"""Selects the faces of a gallery: evenly from every label, one per video as long as there are enough videos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..dataset.face_dataset import FaceDataset
from ..sampling.pairing import pair_with_source


def select_positions(dataset: FaceDataset, count: int) -> list[int]:
    """At most `count` positions in the dataset, by label; deterministic."""
    labels = dataset.index.numbers("label", dataset.rows)
    videos = dataset.index.codes("video_id", dataset.rows)
    return spread_positions(labels, videos, count)


def spread_positions(labels: ArrayLike, videos: ArrayLike, count: int) -> list[int]:
    """Evenly spaced positions of every label: the middle ones of its videos if there are enough videos.

    >>> spread_positions([0, 0, 0, 0, 1, 1], [5, 5, 5, 6, 7, 7], 3)
    [1, 3, 5]
    """
    unique_labels, label_index = np.unique(np.asarray(labels), return_inverse=True)
    groups = [np.flatnonzero(label_index == number) for number in range(len(unique_labels))]
    selected = []
    for positions, group_count in zip(
        groups, _round_robin_counts([len(group) for group in groups], count), strict=True
    ):
        middles = _middle_positions(positions, np.asarray(videos)[positions])
        selected += _evenly_spaced(middles if len(middles) >= group_count else positions, group_count)
    return selected


def find_partner(dataset: FaceDataset, position: int) -> int | None:
    """Position of the real face that `Pairs` puts before a fake; None where there is none."""
    index, rows = dataset.index, dataset.rows
    source = index.text("source_id", int(rows[position]))
    names = index.categories("video_id")
    if source not in names:
        return None
    videos = index.codes("video_id", rows)
    is_candidate = (videos == names.index(source)) | (videos == videos[position])
    pairs = pair_with_source(rows[is_candidate], index)
    partners = pairs.real[pairs.fake == rows[position]]
    return int(np.searchsorted(rows, partners[0])) if len(partners) else None


def _round_robin_counts(sizes: Sequence[int], count: int) -> list[int]:
    """Distributes `count` over groups one at a time, round-robin, until it or all groups are exhausted."""
    counts = [0] * len(sizes)
    while sum(counts) < min(count, sum(sizes)):
        for number, size in enumerate(sizes):
            counts[number] += counts[number] < size and sum(counts) < count
    return counts


def _middle_positions(positions: NDArray[np.intp], videos: NDArray[Any]) -> NDArray[np.intp]:
    """The middle position of each video, ascending."""
    _, video_index, sizes = np.unique(videos, return_inverse=True, return_counts=True)
    grouped = positions[np.argsort(video_index, kind="stable")]
    middles: NDArray[np.intp] = np.sort(grouped[np.cumsum(sizes) - sizes + sizes // 2])
    return middles


def _evenly_spaced(positions: NDArray[np.intp], count: int) -> list[int]:
    return [int(positions[(2 * number + 1) * len(positions) // (2 * count)]) for number in range(count)]
