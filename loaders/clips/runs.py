"""Runs: the images of a track between two gaps, in order of presentation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.boxes import paired_iou
from ...pipeline.dataset.frame_numbers import frame_numbers
from ...pipeline.dataset.index_like import IndexLike
from ..dataset.selection import Rows

_GAP_FACTOR = 1.5  # halfway between one step and two
_TOLERANCE_SECONDS = 1e-6  # containers round time stamps, at the finest to microseconds
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
        rows: the selected ones; a row that is not selected is a lost frame.
        max_gap_seconds: see `Clip`.
        sampling: how frames were sampled, as the manifest's config states it: "every" or "fps"; empty where they were
            so by several rules.

    """
    number = frame_numbers(index, rows)
    is_numbered = number >= 0
    pts = index.numbers("pts_seconds", rows).astype(np.float64)
    frame = index.numbers("frame_index", rows).astype(np.int64)
    video = index.codes("video_id", rows).astype(np.int64)
    time = np.where(is_numbered, number - _smallest_numbers(video, number, is_numbered), pts)
    track = index.numbers("track_id", rows).astype(np.int64)
    order = np.lexsort((frame, time, track, video))
    ordered = rows[order]
    video, track, frame = video[order], track[order], frame[order]
    time, pts, is_numbered = time[order], pts[order], is_numbered[order]
    new_track = np.append(True, (video[1:] != video[:-1]) | (track[1:] != track[:-1]))[: len(ordered)]
    if max_gap_seconds is not None:
        is_gap = np.diff(pts) > max_gap_seconds + _TOLERANCE_SECONDS
    else:
        limit = _GAP_FACTOR * _typical_steps(video, time)[1:] + _TOLERANCE_SECONDS
        is_gap = (np.diff(time) > limit) | ~is_numbered[1:] & _is_lost(np.diff(frame), np.diff(pts), sampling)
    boxes_xyxy = index.boxes("box_xyxy", ordered)
    is_gap |= paired_iou(boxes_xyxy[:-1], boxes_xyxy[1:]) < _MIN_OVERLAP
    starts = np.flatnonzero(new_track | np.append(True, is_gap)[: len(ordered)])
    return Runs(ordered, starts, np.cumsum(new_track)[starts] - 1)


def _smallest_numbers(
    video: NDArray[np.int64], number: NDArray[np.int64], is_numbered: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Of each row, the smallest image number of its video, int64 (rows,).

    Numbers may be time stamps of 18 digits. float64 keeps 15 of them: enough for the differences from this one.
    """
    smallest = np.full(int(video.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, video[is_numbered], number[is_numbered])
    return smallest[video]


def _is_lost(frames: NDArray[np.int64], seconds: NDArray[np.float64], sampling: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Whether a sampled frame is missing within each step, of so many `frames` and `seconds`."""
    is_lost = np.zeros(len(frames), np.bool_)
    if every := sampling.get("every"):
        is_lost = frames > int(every)
    elif fps := sampling.get("fps"):
        is_lost = (frames > 1) & (seconds > _GAP_FACTOR / float(fps) + _TOLERANCE_SECONDS)
    return is_lost


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
