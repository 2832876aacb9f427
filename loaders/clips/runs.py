"""Runs: the images of a track between two gaps, in order of presentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.boxes import paired_iou
from ...pipeline.dataset.frame_numbers import frame_numbers, rows_of_their_videos
from ...pipeline.dataset.index_like import IndexLike
from ..dataset.selection import Rows

_GAP_FACTOR = 1.5  # halfway between one step and two
_TOLERANCE_SECONDS = 1e-6  # containers round time stamps, at the finest to microseconds
_ROUNDED_SECONDS = 1e-3
"""How far times may be from the true ones of an even rate; see `Sampling`."""
_MIN_OVERLAP = 0.1
"""Least overlap (IoU) of a face's boxes in consecutive images. Below it the tracker recognised the face by its looks
alone, as after a cut. Measured on real clips: .24 at least between neighbouring frames, but for one fast cyclist; ten
frames apart .26 in 99 of 100."""


@dataclass(frozen=True)
class Runs:
    """rows: uint32 (rows,), of the index, run by run, each in order of presentation. starts: int64 (runs,), where each
    run begins in `rows`. tracks: int64 (runs,), numbers from 0: which runs are of one track.
    """

    rows: Rows
    starts: NDArray[np.int64]
    tracks: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Images of each run, int64 (runs,)."""
        return np.diff(np.append(self.starts, len(self.rows)))

    def of_rows(self, rows: Rows) -> Runs:
        """The same runs with these of their rows alone; those without one are left out."""
        is_kept = np.isin(self.rows, rows)
        run = np.repeat(np.arange(len(self.starts)), self.lengths)[is_kept]
        starts = np.flatnonzero(np.append(True, run[1:] != run[:-1])[: len(run)])
        _, tracks = np.unique(self.tracks[run[starts]], return_inverse=True)
        return Runs(self.rows[is_kept], starts, tracks)


def find_runs(index: IndexLike, rows: Rows, *, max_gap_seconds: float | None, sampling: Mapping[str, Any]) -> Runs:
    """Sorts the rows by track and time, and splits each track at its gaps and cuts.

    Args:
        index: of the dataset.
        rows: the selected ones, ascending; a row that is not selected is a lost frame.
        max_gap_seconds: see `Clip`.
        sampling: how frames were sampled, as the manifest's config states it: "every", "fps" or "frames", and
            "all_images": whether folders of images were not, None where those of some datasets were; empty where
            frames were sampled by several rules.

    """
    order = _by_track(index, rows)
    ordered = rows[order]
    video, track, pts = (_column(index, name, ordered) for name in ("video_id", "track_id", "pts_seconds"))
    new_track = np.append(True, (video[1:] != video[:-1]) | (track[1:] != track[:-1]))[: len(ordered)]
    if max_gap_seconds is not None:
        is_gap = np.diff(pts) > max_gap_seconds + _TOLERANCE_SECONDS
    else:
        sampled = rows_of_their_videos(index, rows)
        is_gap = _lost_frames(index, sampled, np.searchsorted(sampled, rows)[order], sampling)
    boxes_xyxy = index.boxes("box_xyxy", ordered)
    is_gap |= paired_iou(boxes_xyxy[:-1], boxes_xyxy[1:]) < _MIN_OVERLAP
    starts = np.flatnonzero(new_track | np.append(True, is_gap)[: len(ordered)])
    return Runs(ordered, starts, np.cumsum(new_track)[starts] - 1)


def _column(index: IndexLike, name: str, rows: NDArray[np.integer]) -> NDArray[Any]:
    """A column of numbers, or the codes of `video_id`: float64 or int64 (rows,)."""
    values = index.codes(name, rows) if name == "video_id" else index.numbers(name, rows)
    return values.astype(np.float64 if name == "pts_seconds" else np.int64)


def _times(index: IndexLike, rows: NDArray[np.integer]) -> NDArray[np.float64]:
    """Time of each row in its video, or the number of its image since the smallest one: float64 (rows,)."""
    number, video = frame_numbers(index, rows), _column(index, "video_id", rows)
    smallest = _smallest_numbers(video, number, number >= 0)
    times: NDArray[np.float64] = np.where(number >= 0, number - smallest, _column(index, "pts_seconds", rows))
    return times


def _by_track(index: IndexLike, rows: Rows) -> NDArray[np.intp]:
    """The order of the rows by track and time, int64 (rows,)."""
    video, track, frame = (_column(index, name, rows) for name in ("video_id", "track_id", "frame_index"))
    return np.lexsort((frame, _times(index, rows), track, video))


def _lost_frames(
    index: IndexLike, sampled: NDArray[np.integer], order: NDArray[np.intp], sampling: Mapping[str, Any]
) -> NDArray[np.bool_]:
    """Whether a frame is lost, or the picture pauses, between each row and the next of its track: bool (rows - 1,).

    sampled: all rows of the videos, by which the steps between sampled frames are known. order: int64 (rows,), where
    the selected ones are among them, by track and time.
    """
    video, frame, pts = (_column(index, name, sampled) for name in ("video_id", "frame_index", "pts_seconds"))
    is_numbered, time = frame_numbers(index, sampled) >= 0, _times(index, sampled)
    limit = (_GAP_FACTOR * _typical_steps(video, time) + _TOLERANCE_SECONDS)[order][1:]
    step, frame_step = np.diff(time[order]), np.diff(frame[order])
    is_gap: NDArray[np.bool_] = step > limit
    is_gap |= frame_step > _known_steps(is_numbered[order][1:], sampling)
    if "fps" in sampling or "frames" in sampling:
        samples = np.diff(_sample_numbers(video, frame, pts, sampling)[order])
        is_uneven = (frame_step > 1) & np.isfinite(samples)  # a step may be twice as long as the typical one
        if sampling.get("all_images", False) is not False:
            is_uneven &= ~is_numbered[order][1:]
        is_gap = np.where(is_uneven, (samples > 1) | (step > 2 * limit), is_gap)
    return is_gap | (np.diff(_ranks_of_frames(video, frame)[order]) > 1)


def _ranks_of_frames(video: NDArray[np.int64], frame: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of each row's frame among the frames of its video that have a row: int64 (rows,), from anywhere."""
    order = np.lexsort((frame, video))
    is_new = np.append(True, (np.diff(video[order]) != 0) | (np.diff(frame[order]) != 0))[: len(order)]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(is_new)
    return ranks


def _known_steps(is_numbered: NDArray[np.bool_], sampling: Mapping[str, Any]) -> NDArray[np.float64]:
    """Of each row, by how much the `frame_index` of the next sampled frame of its video is higher: inf where unknown.

    is_numbered: bool (rows,), whether it is of a folder of numbered images, in which that is a position.
    """
    every, all_images = sampling.get("every"), sampling.get("all_images", False)
    of_videos = np.inf if every is None else float(every)
    of_images = np.inf if all_images is None else 1.0 if all_images else of_videos
    return np.where(is_numbered, of_images, of_videos)


def _smallest_numbers(
    video: NDArray[np.int64], number: NDArray[np.int64], is_numbered: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Of each row, the smallest image number of its video, int64 (rows,).

    Numbers may be time stamps of 18 digits. float64 keeps 15 of them: enough for the differences from this one.
    """
    smallest = np.full(int(video.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, video[is_numbered], number[is_numbered])
    return smallest[video]


def _sample_numbers(
    video: NDArray[np.int64], frame: NDArray[np.int64], pts: NDArray[np.float64], sampling: Mapping[str, Any]
) -> NDArray[np.float64]:
    """Of each row, a number that is one higher for the next sampled frame of its video: float64 (rows,); NaN: unknown.

    `sampling`: by "fps" or "frames". Between frames that follow each other in the video, it may be higher by none.
    """
    if "fps" in sampling:
        return _due_numbers(video, frame, pts * float(sampling["fps"]), float(sampling["fps"]) * _ROUNDED_SECONDS)
    return _segment_numbers(video, frame, int(sampling["frames"]))


def _due_numbers(
    video: NDArray[np.int64], frame: NDArray[np.int64], time: NDArray[np.float64], rounded: float
) -> NDArray[np.float64]:
    """Of each row, the number of the last moment at which a frame was due; see `Sampling.fps`.

    time: in intervals between these moments. rounded: how much earlier a frame may be. The first moment is that of
    frame 0. Where that has no row, they are where no row is: in the longest part of the interval that is empty.
    """
    phase = time % 1.0
    order = np.lexsort((phase, video))
    is_last = np.append(video[order][1:] != video[order][:-1], True)[: len(order)]
    next_phase = np.roll(phase[order], -1)
    next_phase[is_last] = 1.0 + phase[order][np.roll(is_last, 1)]
    empty = next_phase - phase[order]
    by_length = np.argsort(empty, kind="stable")
    due_phase = np.zeros(int(video.max(initial=-1)) + 1)
    due_phase[video[order][by_length]] = (phase[order] + empty / 2)[by_length]  # the longest comes last, and stays
    due_phase[video[frame == 0]] = time[frame == 0] - min(rounded, 0.25)
    numbers: NDArray[np.float64] = np.floor(time - due_phase[video])
    return numbers


def _segment_numbers(video: NDArray[np.int64], frame: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Of each row, the number of the segment that its frame is the middle of; see `Sampling.frames`.

    Only of videos with fewer than two frames a segment: there, the last frame is a middle too, by which the number of
    frames is known. Where it has no row, those of the others are no middles. In longer videos, steps are about even.
    """
    num_frames = np.zeros(int(video.max(initial=-1)) + 1, np.int64)
    np.maximum.at(num_frames, video, frame + 1)
    segment = (2 * frame + 1) * count // (2 * num_frames[video])
    is_known = num_frames < 2 * count
    is_known[video[(2 * segment + 1) * num_frames[video] // (2 * count) != frame]] = False
    return np.where(is_known[video], segment, np.nan)


def _typical_steps(video: NDArray[np.int64], time: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row, the typical step in time between the frames of its video: float64 (rows,); inf where it has one."""
    order = np.lexsort((time, video))
    step, step_video = np.diff(time[order]), video[order][1:]
    is_step = (step_video == video[order][:-1]) & (step > 0)
    step, step_video = step[is_step], step_video[is_step]
    order = np.lexsort((step, step_video))
    step, step_video = step[order], step_video[order]
    videos, first, counts = np.unique(step_video, return_index=True, return_counts=True)
    typical = np.full(int(video.max(initial=-1)) + 1, np.inf)
    if len(step):
        median = step[first + (counts - 1) // 2]
        is_usual = step <= _GAP_FACTOR * np.repeat(median, counts) + _TOLERANCE_SECONDS
        typical[videos] = np.add.reduceat(step * is_usual, first) / np.add.reduceat(is_usual.astype(np.int64), first)
    return typical[video]
