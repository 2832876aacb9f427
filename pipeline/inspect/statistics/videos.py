"""Counts of rows, tracks and frames for each video, and the group it belongs to, from the index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...dataset.index import Index, RowRange
from ...dataset.index.whole_videos import whole_videos
from ...dataset.schema import SPLITS, unlabelled_name
from .columns import code_column, has_segments, real_face_batches, split_codes

Counts = NDArray[np.int64]
_ROWS_AT_ONCE = 1 << 20  # bounds the memory


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
        """Aggregates the index with array operations, without a Python loop over rows, some videos at a time."""
        id_of_video, video_of_row = _videos_by_label(index)
        num_rows, num_tracks, num_frames, max_faces_per_frame, first_row = np.zeros((5, len(id_of_video)), np.int64)
        is_in_two = len(np.unique(id_of_video)) < len(id_of_video)
        num_distinct_tracks = 0
        for part, ids in whole_videos(index, RowRange(0, len(index))):
            videos, rows = video_of_row[part], RowRange(part.start, part.stop)
            video_of_frame, faces_in_frame = _count_pairs(videos, index.numbers("frame_index", rows))
            np.maximum.at(max_faces_per_frame, video_of_frame, faces_in_frame)
            np.add.at(num_frames, video_of_frame, 1)
            tracks = index.numbers("track_id", rows)
            video_of_track, _ = _count_pairs(videos, tracks)
            np.add.at(num_tracks, video_of_track, 1)
            num_distinct_tracks += len(_count_pairs(ids, tracks)[0] if is_in_two else video_of_track)
            np.add.at(num_rows, videos, 1)
            first_row[videos[::-1]] = np.arange(part.stop - 1, part.start - 1, -1)
        group_of_video, group_keys = _group_keys(index, first_row)
        return cls(
            names=[index.categories("video_id")[name] for name in id_of_video.tolist()],
            id_of_video=id_of_video,
            video_of_row=video_of_row,
            num_rows=num_rows,
            num_tracks=num_tracks,
            num_distinct_tracks=num_distinct_tracks,
            num_frames=num_frames,
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
    video_of_row, num_ids = code_column(index, "video_id"), len(index.categories("video_id"))
    if not any(are_partly_fake.any() for are_partly_fake in has_segments(index)):
        return np.arange(num_ids), video_of_row
    num_labels = len(index.labels) + 1
    video_of_key = np.zeros(num_ids * num_labels, np.int32)
    for _, keys in _keys_of_parts(index, video_of_row, num_labels):
        video_of_key[keys] = 1
    keys = np.flatnonzero(video_of_key)
    video_of_key[keys] = np.arange(len(keys))
    for part, keys_of_part in _keys_of_parts(index, video_of_row, num_labels):
        video_of_row[part] = video_of_key[keys_of_part]
    return keys // num_labels, video_of_row


def _keys_of_parts(index: Index, ids: NDArray[np.int32], num_labels: int) -> Iterator[tuple[slice, Counts]]:
    """Some rows at a time, each as a number of its video's id and its label."""
    for start in range(0, len(ids), _ROWS_AT_ONCE):
        part = slice(start, min(start + _ROWS_AT_ONCE, len(ids)))
        labels = index.numbers("label", RowRange(part.start, part.stop)).astype(np.int64) + 1
        yield part, ids[part] * num_labels + labels


def _never_fake(index: Index) -> list[str]:
    names = index.categories("video_id")
    is_partly_fake, has_fake_face = np.zeros((2, len(names)), np.bool_)
    first = 0
    for are_partly_fake, are_real in zip(has_segments(index), real_face_batches(index), strict=False):
        ids = index.codes("video_id", RowRange(first, first + len(are_real)))
        is_partly_fake[ids[are_partly_fake]] = True
        has_fake_face[ids[are_partly_fake & ~are_real]] = True
        first += len(are_real)
    return [names[video] for video in np.flatnonzero(is_partly_fake & ~has_fake_face).tolist()]


def label_names(index: Index) -> list[str]:
    """Names of the labels 0, 1, 2 ...; last, so that index -1 finds it, the name for rows without a label."""
    return [*index.labels, unlabelled_name(index.labels)]


def _count_pairs(video_of_row: NDArray[np.int32], values: NDArray[Any]) -> tuple[Counts, Counts]:
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
    columns = [split_codes(index, first_row), index.numbers("label", first_row)]
    columns += [index.codes(name, first_row) for name in _NAME_COLUMNS]
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
