"""Which faces of a dataset are shown: some of every label, each of another video as far as there are enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..dataset.face_dataset import FaceDataset


def chosen(dataset: FaceDataset, count: int) -> list[int]:
    """Positions in the dataset, at most `count`, by label; the same ones each time."""
    labels = dataset.index.numbers("label", dataset.rows)
    videos = dataset.index.codes("video_id", dataset.rows)
    return spread_out(labels, videos, count)


def spread_out(labels: ArrayLike, videos: ArrayLike, count: int) -> list[int]:
    """Evenly spaced positions of every label, from the middles of its videos while there are enough of them.

    >>> spread_out([0, 0, 0, 0, 1, 1], [5, 5, 5, 6, 7, 7], 3)
    [1, 3, 5]
    """
    each, label_of = np.unique(np.asarray(labels), return_inverse=True)
    groups = [np.flatnonzero(label_of == number) for number in range(len(each))]
    places = []
    for positions, share in zip(groups, _shares([len(group) for group in groups], count), strict=True):
        middles = _middles(positions, np.asarray(videos)[positions])
        places += _evenly(middles if len(middles) >= share else positions, share)
    return places


def partner_of(dataset: FaceDataset, position: int) -> int | None:
    """Position of the frame nearest to a fake's in the video it was made from; None where there is none."""
    index, rows = dataset.index, dataset.rows
    source = index.text("source_id", int(rows[position]))
    names = index.names("video_id")
    if source not in names:
        return None
    of_source = np.flatnonzero(index.codes("video_id", rows) == names.index(source))
    if not len(of_source):
        return None
    frames = index.numbers("frame_index", rows[of_source]).astype(np.int64)
    away = np.abs(frames - int(index.number("frame_index", int(rows[position]))))
    return int(of_source[away.argmin()])


def _shares(sizes: Sequence[int], count: int) -> list[int]:
    """How many of each group: one more in turn, until all are dealt or all groups are used up."""
    shares = [0] * len(sizes)
    while sum(shares) < min(count, sum(sizes)):
        for number, size in enumerate(sizes):
            shares[number] += shares[number] < size and sum(shares) < count
    return shares


def _middles(positions: NDArray[np.intp], videos: NDArray[Any]) -> NDArray[np.intp]:
    """The middle one of each video's positions, in order."""
    _, video_of, sizes = np.unique(videos, return_inverse=True, return_counts=True)
    grouped = positions[np.argsort(video_of, kind="stable")]
    middles: NDArray[np.intp] = np.sort(grouped[np.cumsum(sizes) - sizes + sizes // 2])
    return middles


def _evenly(positions: NDArray[np.intp], count: int) -> list[int]:
    return [int(positions[(2 * place + 1) * len(positions) // (2 * count)]) for place in range(count)]
