"""Counts of rows, tracks and frames for each video, and the group it belongs to, from the index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index
from ...dataset.schema import SPLITS, unlabelled_name
from .columns import code_column, has_segments, integer_column, real_faces, split_codes

Counts = NDArray[np.int64]


class GroupKey(NamedTuple):
    """Properties that all faces of a video share; None where unknown. Field names are keys of `--json`."""

    split: str
    label: str
    dataset: str | None = None
    method: str | None = None
    compression: str | None = None


_NAME_COLUMNS = GroupKey._fields[2:]


def varying_columns(keys: Iterable[GroupKey]) -> list[str]:
    """Those of dataset, method and compression that have more than one value among the keys."""
    values_by_column = list(zip(*keys, strict=True))[2:]
    return [name for name, values in zip(_NAME_COLUMNS, values_by_column, strict=False) if len(set(values)) > 1]


@dataclass(frozen=True)
class VideoTable:
    """One item per video in each array, in the order of `names`; `video_of_row` (rows,): index of each row's video.

    The faces of a video that is fake in part count as two videos of one name and `id_of_video`, one for each label.
    `num_distinct_tracks`: of all videos, where `num_tracks` counts one that is in both of these twice.
    `max_faces_per_frame`: the largest number of faces in one frame. `group_of_video`: index into `group_keys`, which
    are sorted by split, then label. `never_fake`: names of videos that are fake in part, but have no fake face.
    """

    names: list[str]
    id_of_video: Counts
    video_of_row: NDArray[np.int32]
    num_rows: Counts
    num_tracks: Counts
    num_distinct_tracks: int
    num_frames: Counts
    max_faces_per_frame: Counts
    group_of_video: NDArray[np.int32]
    group_keys: list[GroupKey]
    never_fake: list[str]

    @classmethod
    def of(cls, index: Index) -> Self:
        """Aggregates the index with array operations, without a Python loop over rows."""
        id_of_video, video_of_row = _videos_by_label(index)
        num_videos = len(id_of_video)
        video_of_frame, faces_in_frame = _count_pairs(video_of_row, integer_column(index, "frame_index"))
        max_faces_per_frame = np.zeros(num_videos, np.int64)
        np.maximum.at(max_faces_per_frame, video_of_frame, faces_in_frame)
        video_of_track, _ = _count_pairs(video_of_row, integer_column(index, "track_id"))
        num_distinct_tracks = len(video_of_track)
        if len(np.unique(id_of_video)) < num_videos:
            num_distinct_tracks = len(_count_pairs(id_of_video[video_of_row], integer_column(index, "track_id"))[0])
        first_row = np.zeros(num_videos, np.int64)
        first_row[video_of_row[::-1]] = np.arange(len(video_of_row) - 1, -1, -1)
        group_of_video, group_keys = _group_keys(index, first_row)
        return cls(
            names=[index.categories("video_id")[name] for name in id_of_video.tolist()],
            id_of_video=id_of_video,
            video_of_row=video_of_row,
            num_rows=np.bincount(video_of_row, minlength=num_videos),
            num_tracks=np.bincount(video_of_track, minlength=num_videos),
            num_distinct_tracks=num_distinct_tracks,
            num_frames=np.bincount(video_of_frame, minlength=num_videos),
            max_faces_per_frame=max_faces_per_frame,
            group_of_video=group_of_video,
            group_keys=group_keys,
            never_fake=_never_fake(index),
        )

    def faces_by_id(self, selected: NDArray[np.bool_] | slice = slice(None)) -> tuple[Counts, Counts]:
        """The distinct ids of the selected videos, and the number of faces of each."""
        ids, position = np.unique(self.id_of_video[selected], return_inverse=True)
        faces = np.zeros(len(ids), np.int64)
        np.add.at(faces, position.reshape(-1), self.num_rows[selected])
        return ids, faces


def _videos_by_label(index: Index) -> tuple[Counts, NDArray[np.int32]]:
    """Id of each video, and index of each row's video: int32 (rows,); one of partly fake ones for each label."""
    video_of_row = code_column(index, "video_id")
    if not has_segments(index).any():
        return np.arange(len(index.categories("video_id"))), video_of_row
    num_labels = len(index.labels) + 1
    labels = integer_column(index, "label").astype(np.int64) + 1
    keys, video_of_row = np.unique(video_of_row * num_labels + labels, return_inverse=True)
    return keys // num_labels, video_of_row.reshape(-1).astype(np.int32)


def _never_fake(index: Index) -> list[str]:
    video_of_row, is_partly_fake = code_column(index, "video_id"), has_segments(index)
    with_fake_face = video_of_row[is_partly_fake & ~real_faces(index)]
    names = index.categories("video_id")
    return [names[video] for video in np.setdiff1d(video_of_row[is_partly_fake], with_fake_face).tolist()]


def label_names(index: Index) -> list[str]:
    """Names of the labels 0, 1, 2 ...; last, so that index -1 finds it, the name for rows without a label."""
    return [*index.labels, unlabelled_name(index.labels)]


def _count_pairs(video_of_row: NDArray[np.int32] | Counts, values: NDArray[Any]) -> tuple[Counts, Counts]:
    """For each distinct pair of video and value: the video, and the number of rows.

    Sorts packed pairs in place, where `np.unique` would make copies.
    """
    pairs = video_of_row.astype(np.int64) << 32
    pairs |= values
    pairs.sort()
    is_first = np.ones(len(pairs), np.bool_)
    np.not_equal(pairs[1:], pairs[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    return pairs[starts] >> 32, np.diff(starts, append=len(pairs))


def _group_keys(index: Index, first_row: Counts) -> tuple[NDArray[np.int32], list[GroupKey]]:
    """Index of each video's group key, and the distinct keys, from the first row of each video."""
    columns = [split_codes(index)[first_row], integer_column(index, "label")[first_row]]
    columns += [code_column(index, name)[first_row] for name in _NAME_COLUMNS]
    unique, group_of_video = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    labels = label_names(index)
    names_by_column = [[*index.categories(name), None] for name in _NAME_COLUMNS]
    keys = [
        GroupKey(
            SPLITS[split],
            str(labels[label]),
            *(names[code] for names, code in zip(names_by_column, codes, strict=True)),
        )
        for split, label, *codes in unique.tolist()
    ]
    return group_of_video.reshape(-1).astype(np.int32), keys
