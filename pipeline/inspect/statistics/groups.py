"""Statistics of a dataset: by group (split, label, method ...), by class, and in total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from ...dataset.index import Index
from .columns import FACE_SIZE, LANDMARK_SCORE, MANIPULATED, Floats, measures_of, statistic_values
from .quantiles import Quantiles
from .videos import GroupKey, VideoTable, label_names

MANIPULATED_THRESHOLD: Final = 0.01
"""A fake's face counts as unchanged where less than this fraction of the crop differs from its source."""

SMALL_FACE_PX: Final = 60.0
"""A face whose shorter side is less is too small for a detector to learn much from."""


FITTING_SCORE: Final = 0.5
"""Below this landmark score, a dense landmarker's points do not lie on a face."""


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
        """Reads each column once; takes about 60 bytes of memory per row while it runs, 75 with added columns."""
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
    """Statistics of each set of group indices."""
    num_groups = len(videos.group_keys)
    group_of_row = videos.group_of_video.astype(np.min_scalar_type(num_groups))[videos.video_of_row]
    order = np.argsort(group_of_row, kind="stable")
    ends = np.cumsum(np.bincount(group_of_row, minlength=num_groups))
    measures: list[dict[str, Quantiles | None]] = [{} for _ in sets]
    small = [0.0] * len(sets)
    unchanged: list[float | None] = [None] * len(sets)
    unfitted: list[float | None] = [None] * len(sets)
    for measure in measures_of(index):
        values_of_row = statistic_values(measure, index)
        by_group = np.split(values_of_row[order], ends[:-1])
        for number, groups in enumerate(sets):
            values = np.concatenate([by_group[group] for group in groups]) if groups else np.empty(0, np.float32)
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
    known = values[~np.isnan(values)]
    return float((known < limit).mean()) if len(known) else None
