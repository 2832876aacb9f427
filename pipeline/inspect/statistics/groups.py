"""The numbers of a dataset: by group (split, label, method ...), by class, and in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from ...dataset.index import Index
from .columns import FACE, MANIPULATED, MEASURES, Floats
from .quantiles import Spread
from .videos import Kind, Videos, label_names

UNCHANGED_BELOW: Final = 0.01
"""A fake's face of which less than this share differs from its source's counts as not manipulated."""

SMALL_PX: Final = 60.0
"""A face whose shorter side is less shows little that a detector could learn from."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Some videos and all their faces.

    `measures`: by `Measure.key`. `small`: share of the faces below `SMALL_PX`. `unchanged`: share, of the faces whose
    `manipulated` is known, that are below `UNCHANGED_BELOW`; None where it is known of none.
    """

    rows: int
    videos: int
    tracks: int
    frames: int
    faces_a_video: Spread | None
    measures: dict[str, Spread | None]
    small: float
    unchanged: float | None


@dataclass(frozen=True)
class Census:
    """`groups` by what their videos share; `classes` by the label's name, also those without a face; `whole` of all.

    `unlabelled`: what the classes call the faces without a label, if there are any.
    """

    groups: dict[Kind, Group]
    classes: dict[str, Group]
    unlabelled: str | None
    whole: Group
    videos: Videos

    @classmethod
    def of(cls, index: Index) -> Self:
        """Reads each column once; some 60 bytes of memory a row while it runs."""
        videos = Videos.of(index)
        kinds = range(len(videos.kinds))
        *_, unlabelled = names = label_names(index)
        labels = {name: [one for one in kinds if videos.kinds[one].label == name] for name in names}
        if not labels[unlabelled]:
            del labels[unlabelled]
        sets = [*([one] for one in kinds), *labels.values(), list(kinds)]
        groups = _groups(index, videos, sets)
        return cls(
            groups=dict(zip(videos.kinds, groups, strict=False)),
            classes=dict(zip(labels, groups[len(kinds) :], strict=False)),
            unlabelled=unlabelled if unlabelled in labels else None,
            whole=groups[-1],
            videos=videos,
        )


def _groups(index: Index, videos: Videos, sets: list[list[int]]) -> list[Group]:
    """One group for each set of kinds."""
    kind_of_row = videos.kind.astype(np.min_scalar_type(len(videos.kinds)))[videos.of_row]
    order = np.argsort(kind_of_row, kind="stable")
    ends = np.cumsum(np.bincount(kind_of_row, minlength=len(videos.kinds)))
    measures: list[dict[str, Spread | None]] = [{} for _ in sets]
    small = [0.0] * len(sets)
    unchanged: list[float | None] = [None] * len(sets)
    for measure in MEASURES:
        by_kind = np.split(measure.values(index)[order], ends[:-1])
        for number, kinds in enumerate(sets):
            values = np.concatenate([by_kind[kind] for kind in kinds]) if kinds else np.empty(0, np.float32)
            measures[number][measure.key] = Spread.of(values)
            if measure is FACE:
                small[number] = _share_below(values, SMALL_PX) or 0.0
            elif measure is MANIPULATED:
                unchanged[number] = _share_below(values, UNCHANGED_BELOW)
    counted = [_counts(videos, kinds) for kinds in sets]
    return [
        Group(
            **counts, faces_a_video=faces, measures=measures[number], small=small[number], unchanged=unchanged[number]
        )
        for number, (counts, faces) in enumerate(counted)
    ]


def _counts(videos: Videos, kinds: list[int]) -> tuple[dict[str, int], Spread | None]:
    mine = np.isin(videos.kind, kinds)
    counts = {name: int(getattr(videos, name)[mine].sum()) for name in ("rows", "tracks", "frames")}
    return {**counts, "videos": int(mine.sum())}, Spread.of(videos.rows[mine])


def _share_below(values: Floats, limit: float) -> float | None:
    known = values[~np.isnan(values)]
    return float((known < limit).mean()) if len(known) else None
