"""Statistics of a dataset: by group (split, label, method ...), by class, and in total."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ...dataset.index.arrays import by_value
from .columns import FACE_SIZE, LANDMARK_SCORE, MANIPULATED, Floats, measures_of, statistic_batches
from .quantiles import Quantiles
from .videos import GroupKey, VideoTable, label_names

MANIPULATED_THRESHOLD: Final = 0.01
"""A fake's face counts as unchanged where less than this fraction of the crop differs from its source."""

SMALL_FACE_PX: Final = 60.0
"""A face whose shorter side is less is too small for a detector to learn much from."""


FITTING_SCORE: Final = 0.5
"""Below this landmark score, a dense landmarker's points do not lie on a face."""


_ROWS_AT_ONCE = 1 << 20  # bounds the memory


@dataclass(frozen=True, kw_only=True)
class Group:
    """Statistics of a set of videos and all their faces. Field names are keys of `--json`.

    `measures`: by `Measure.key`. `small`: fraction of the faces below `SMALL_FACE_PX`. `unchanged`: of the faces with a
    known `manipulated`, the fraction below `MANIPULATED_THRESHOLD`; None where it is known of none. `unfitted`: of the
    faces with a known landmark score, the fraction below `FITTING_SCORE`; None where it is known of none.
    """

    rows: int
    videos: int
    tracks: int
    frames: int
    faces_a_video: Quantiles | None
    measures: dict[str, Quantiles | None]
    small: float
    unchanged: float | None
    unfitted: float | None


@dataclass(frozen=True)
class Statistics:
    """`groups` by key; `classes` by the label's name, including those without a face; `total` over all videos.

    `unlabelled`: the key in `classes` of the faces without a label; None where there are none.
    """

    groups: dict[GroupKey, Group]
    classes: dict[str, Group]
    unlabelled: str | None
    total: Group
    videos: VideoTable

    @classmethod
    def of(cls, index: Index) -> Self:
        """Takes about 18 bytes of memory per row while it runs, 28 with added columns."""
        videos = VideoTable.of(index)
        group_indices = range(len(videos.group_keys))
        *_, unlabelled = names = label_names(index)
        groups_of_label = {
            name: [group for group in group_indices if videos.group_keys[group].label == name] for name in names
        }
        if not groups_of_label[unlabelled]:
            del groups_of_label[unlabelled]
        sets = [*([group] for group in group_indices), *groups_of_label.values(), list(group_indices)]
        groups = _aggregate(index, videos, sets)
        return cls(
            groups=dict(zip(videos.group_keys, groups, strict=False)),
            classes=dict(zip(groups_of_label, groups[len(group_indices) :], strict=False)),
            unlabelled=unlabelled if unlabelled in groups_of_label else None,
            total=groups[-1],
            videos=videos,
        )


def _aggregate(index: Index, videos: VideoTable, sets: list[list[int]]) -> list[Group]:
    """Statistics of each set of group indices: of one group, of all, or of all with one label."""
    by_label = sorted(range(len(videos.group_keys)), key=lambda group: videos.group_keys[group].label)
    segments = _Segments(videos, by_label)
    places = {group: place for place, group in enumerate(by_label)}
    of_sets = [segments.of(sorted(places[group] for group in groups)) for groups in sets]
    measures: list[dict[str, Quantiles | None]] = [{} for _ in sets]
    small = [0.0] * len(sets)
    unchanged: list[float | None] = [None] * len(sets)
    unfitted: list[float | None] = [None] * len(sets)
    for measure in measures_of(index):
        by_group = segments.fill(statistic_batches(measure, index))
        for number, of_set in enumerate(of_sets):
            values = by_group[of_set]
            measures[number][measure.key] = Quantiles.of(values)
            if measure is FACE_SIZE:
                small[number] = _fraction_below(values, SMALL_FACE_PX) or 0.0
            elif measure is MANIPULATED:
                unchanged[number] = _fraction_below(values, MANIPULATED_THRESHOLD)
            elif measure is LANDMARK_SCORE:
                unfitted[number] = _fraction_below(values, FITTING_SCORE)
    return [
        _group(
            videos,
            groups,
            measures[number],
            small=small[number],
            unchanged=unchanged[number],
            unfitted=unfitted[number],
        )
        for number, groups in enumerate(sets)
    ]


class _Segments:
    """Values of all rows in an order in which those of each group lie together: `groups`, in this order."""

    def __init__(self, videos: VideoTable, groups: list[int]) -> None:
        place_of_group: NDArray[np.integer] = np.empty(len(groups), np.min_scalar_type(len(groups)))
        place_of_group[groups] = np.arange(len(groups))
        place_of_video = place_of_group[videos.group_of_video]
        self._place_of_row: NDArray[np.integer] = np.empty(len(videos.video_of_row), place_of_group.dtype)
        for start in range(0, len(self._place_of_row), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            self._place_of_row[part] = place_of_video[videos.video_of_row[part]]
        rows = np.bincount(place_of_video, videos.num_rows, len(groups))
        self._bounds = np.append(0, np.cumsum(rows)).astype(np.int64)

    def of(self, places: list[int]) -> slice:
        """Where the values of groups that follow one another are."""
        return slice(self._bounds[places[0]], self._bounds[places[-1] + 1]) if places else slice(0)

    def fill(self, batches: Iterator[Floats]) -> Floats:
        """The values of all rows, in this order."""
        first, ends, ordered = 0, self._bounds[:-1].copy(), np.empty(0, np.float32)
        for values in batches:
            if not first:
                ordered = np.empty(len(self._place_of_row), values.dtype)
            for place, own in by_value(self._place_of_row[first : first + len(values)]):
                ordered[ends[place] : ends[place] + len(own)] = values[own]
                ends[place] += len(own)
            first += len(values)
        return ordered


def _group(videos: VideoTable, groups: list[int], measures: dict[str, Quantiles | None], **fractions: Any) -> Group:
    selected = np.isin(videos.group_of_video, groups)
    ids, faces = videos.faces_by_id(selected)
    is_whole = len(groups) == len(videos.group_keys)  # all others are of one label
    return Group(
        rows=int(videos.num_rows[selected].sum()),
        videos=len(ids),
        tracks=videos.num_distinct_tracks if is_whole else int(videos.num_tracks[selected].sum()),
        frames=int(videos.num_frames[selected].sum()),
        faces_a_video=Quantiles.of(faces),
        measures=measures,
        **fractions,
    )


def _fraction_below(values: Floats, limit: float) -> float | None:
    num_known = len(values) - int(np.isnan(values).sum())
    return int((values < limit).sum()) / num_known if num_known else None
