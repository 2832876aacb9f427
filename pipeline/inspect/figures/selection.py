"""Selects the rows to show: a random sample of each class, the lowest values, and videos with many tracks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ..statistics.columns import Floats, code_column, integer_column
from ..statistics.videos import VideoTable, label_names

Rows = NDArray[np.int64]
Rng = np.random.Generator

_MAX_CANDIDATES: Final = 4096


def sample_per_class(index: Index, rng: Rng, *, per_class: int, in_total: int) -> dict[str, Rows]:
    """Up to `per_class` random rows of each label that has any, in the index's order.

    Fewer of each where there are many labels, so that the result has at most `in_total` rows.
    """
    labels = integer_column(index, "label")
    names = label_names(index)
    present = [code for code in [*range(len(index.labels)), -1] if (labels == code).any()]
    count = max(1, min(per_class, in_total // max(len(present), 1)))
    return {names[code]: _sample(np.flatnonzero(labels == code), count, rng) for code in present[:in_total]}


def lowest_rows(values: Floats, video_of_row: NDArray[np.int32], count: int) -> Rows:
    """Up to `count` rows with the lowest values, ascending; one of each video as long as there are enough videos."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) > _MAX_CANDIDATES:
        known = known[np.argpartition(values[known], _MAX_CANDIDATES)[:_MAX_CANDIDATES]]
    ascending = known[np.argsort(values[known], kind="stable")]
    _, first = np.unique(video_of_row[ascending], return_index=True)
    others = np.setdiff1d(np.arange(len(ascending)), first)
    positions = np.concatenate([np.sort(first), others])[:count]
    rows: Rows = ascending[np.sort(positions)]
    return rows


@dataclass(frozen=True)
class TrackStrip:
    """Some frames of one video in temporal order, and the rows of its tracks in them.

    `rows[t, f]`: the row of track `tracks[t]` in frame `frames[f]`, -1 where it has none. `num_more_tracks`: number of
    tracks that are not shown.
    """

    video: int
    frames: list[int]
    tracks: list[int]
    rows: NDArray[np.int64]
    num_more_tracks: int


def track_strips(
    index: Index, videos: VideoTable, rng: Rng, *, count: int, max_tracks: int, max_frames: int
) -> list[TrackStrip]:
    """Strips of up to `count` videos whose number of tracks most exceeds that of simultaneous faces.

    There an identity switch is most likely. At most `max_tracks` and `max_frames` of each video are shown.
    """
    shuffled = rng.permutation(np.flatnonzero(videos.num_frames > 1))
    excess = videos.num_tracks - videos.max_faces_per_frame
    is_crowded = videos.num_tracks > 2 * max_tracks  # last, since a few of a hundred tracks show little
    order = np.lexsort([-videos.num_tracks[shuffled], -excess[shuffled], is_crowded[shuffled]])
    frame_of_row, track_of_row = integer_column(index, "frame_index"), integer_column(index, "track_id")
    return [
        _track_strip(
            int(video),
            np.flatnonzero(videos.video_of_row == video),
            frame_of_row,
            track_of_row,
            max_tracks=max_tracks,
            max_frames=max_frames,
        )
        for video in shuffled[order][:count]
    ]


def _track_strip(
    video: int,
    rows: Rows,
    frame_of_row: NDArray[Any],
    track_of_row: NDArray[Any],
    *,
    max_tracks: int,
    max_frames: int,
) -> TrackStrip:
    all_tracks, sizes = np.unique(track_of_row[rows], return_counts=True)
    tracks = np.sort(all_tracks[np.argsort(-sizes, kind="stable")[:max_tracks]])
    rows = rows[np.isin(track_of_row[rows], tracks)]
    all_frames = np.unique(frame_of_row[rows])
    evenly_spaced = np.linspace(0, len(all_frames) - 1, min(max_frames, len(all_frames))).round().astype(int)
    frames = all_frames[evenly_spaced]
    grid = np.full((len(tracks), len(frames)), -1, np.int64)
    shown = rows[np.isin(frame_of_row[rows], frames)]
    grid[np.searchsorted(tracks, track_of_row[shown]), np.searchsorted(frames, frame_of_row[shown])] = shown
    return TrackStrip(video, frames.tolist(), tracks.tolist(), grid, len(all_tracks) - len(tracks))


def fakes_by_method(index: Index, rng: Rng, mask: NDArray[np.bool_], count: int) -> Rows:
    """Up to `count` rows where `mask` (rows,) holds: random, one per video, round-robin over the methods."""
    rows = np.flatnonzero(mask)
    rows = rng.permutation(rows if len(rows) <= _MAX_CANDIDATES else rng.choice(rows, _MAX_CANDIDATES, replace=False))
    videos, methods = code_column(index, "video_id")[rows], code_column(index, "method")[rows]
    _, first = np.unique(videos, return_index=True)
    first = np.sort(first)
    round_of_row = np.empty(len(first), np.int64)
    for method in np.unique(methods[first]):
        has_method = methods[first] == method
        round_of_row[has_method] = np.arange(has_method.sum())
    return rows[first[np.argsort(round_of_row, kind="stable")]][:count]


def _sample(rows: Rows, count: int, rng: Rng) -> Rows:
    return rows if len(rows) <= count else np.sort(rng.choice(rows, count, replace=False, shuffle=False))
