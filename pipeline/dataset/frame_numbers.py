"""Which frames of two videos are the same: of folders of images by the numbers in their names, else by frame index,
and by time where a video was made at another frame rate.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .index_like import IndexLike

_MIN_RATE_DIFFERENCE = 0.03
"""As a natural logarithm: 25 frames a second differ from 24, and not 30 from 29.97, nor from a phone's about 30."""


def frame_numbers(index: IndexLike, rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """The column `frame_number` at `rows`: int64 (rows,), -1 where there is none, as in all of an older dataset."""
    if "frame_number" not in index.schema.names:
        return np.full(len(rows), -1)
    return index.numbers("frame_number", rows).astype(np.int64)


def rows_of_their_videos(index: IndexLike, rows: NDArray[np.integer]) -> NDArray[np.integer]:
    """All rows of the videos that have one among `rows`, ascending: what else is known of these videos' frames."""
    if len(rows) == len(index):
        return rows
    all_videos = index.codes("video_id", np.arange(len(index)))
    return np.flatnonzero(np.isin(all_videos, index.codes("video_id", rows)))


def effective_frame_numbers(index: IndexLike, rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """What each frame is called by, int64 (rows,): the number in its image's name, else its frame index."""
    numbers = frame_numbers(index, rows)
    return np.where(numbers >= 0, numbers, index.numbers("frame_index", rows))


class ComparableFrames(NamedTuple):
    """Of a row, and of others, int64 (rows,): those that differ by at most `tolerance` are the same frame."""

    frame: int
    others: NDArray[np.int64]
    tolerance: float


def comparable_frames(index: IndexLike, ends: VideoEnds, row: int, other_rows: NDArray[np.integer]) -> ComparableFrames:
    """The frame of `row`, and those of `other_rows`, at least one, of one other video. `ends`: of the videos.

    They are numbers of images where both videos have them, microseconds since the first frame where one was made at
    another frame rate, else frame indices. Times are the same within half of the shorter of the two frame intervals.
    """
    rows = np.append(other_rows, row).astype(np.int64)
    frames, tolerance = frame_numbers(index, rows), 0.0
    if (frames < 0).any():
        videos = index.codes("video_id", rows)
        if ends.have_other_rates(videos[-1:], videos[:1])[0]:
            frames, two = ends.microseconds(index, rows), videos[[0, -1]]
            tolerance = 1e6 * float((ends.seconds[two] / ends.frame[two]).min()) / 2
        else:
            frames = index.numbers("frame_index", rows).astype(np.int64)
    return ComparableFrames(int(frames[-1]), frames[:-1], tolerance)


class VideoEnds(NamedTuple):
    """First and last frames of videos, by the codes of `video_id`; all float64.

    `frame`: index of the last one. `seconds`: its time since the first one. `start_seconds`: time of the first one.
    """

    frame: NDArray[np.float64]
    seconds: NDArray[np.float64]
    start_seconds: NDArray[np.float64]

    @classmethod
    def of_rows(cls, index: IndexLike, rows: NDArray[np.integer]) -> Self:
        """The frames that the videos have among `rows`.

        The times of a folder of images begin with its first one. Where the first one of a video is not among the rows,
        its time follows from the others, if their frame rate is constant and they span as many frames as come before
        them, else it is 0.
        """
        video = index.codes("video_id", rows).astype(np.int64)  # of no rows, it gives floats
        frame, pts = (index.numbers(name, rows).astype(np.float64) for name in ("frame_index", "pts_seconds"))
        num_videos = len(index.categories("video_id"))
        (first_frame, first_pts), (last_frame, last_pts) = np.full((2, num_videos), np.inf), np.zeros((2, num_videos))
        for first, last, values in ((first_frame, last_frame, frame), (first_pts, last_pts, pts)):
            np.fmin.at(first, video, values)
            np.fmax.at(last, video, values)
        with np.errstate(divide="ignore", invalid="ignore"):
            interval = (last_pts - first_pts) / (last_frame - first_frame)
            start, deviation = first_pts - first_frame * interval, np.zeros(num_videos)
            np.fmax.at(deviation, video, np.abs(pts - start[video] - interval[video] * frame))
            is_constant = (deviation < interval / 2) & (first_frame <= last_frame - first_frame)
        start = np.where(first_frame == 0, first_pts, np.where(is_constant, start, 0.0))
        start[video[frame_numbers(index, rows) >= 0]] = 0.0
        return cls(last_frame, last_pts - start, start)

    def have_other_rates(self, videos: NDArray[np.integer], others: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether each video has another frame rate than the other one, but rather its length: bool (videos,).

        Its frames are then those of the same time. Where it has as many frames, but another length, the same frames
        were written at another rate; where it has another length and number of frames alike, it was cut.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            frames, seconds = (np.abs(np.log(ends[videos] / ends[others])) for ends in (self.frame, self.seconds))
            have: NDArray[np.bool_] = (frames - seconds > _MIN_RATE_DIFFERENCE) & np.isfinite(frames)  # False for NaN
        return have

    def microseconds(self, index: IndexLike, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Times of frames since the first one of their video, int64 (rows,); 0 where it is not known."""
        seconds = index.numbers("pts_seconds", rows).astype(np.float64)
        seconds -= self.start_seconds[index.codes("video_id", rows).astype(np.int64)]
        return np.rint(1e6 * np.nan_to_num(seconds)).astype(np.int64)
