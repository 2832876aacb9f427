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

    They are numbers of images where both videos have them, microseconds where one was made at another frame rate, else
    frame indices. Times are the same within half of the shorter of the two frame intervals.
    """
    rows = np.append(other_rows, row).astype(np.int64)
    frames, tolerance = frame_numbers(index, rows), 0.0
    if (frames < 0).any():
        videos = index.codes("video_id", rows)
        if ends.have_other_rates(videos[-1:], videos[:1])[0]:
            frames, two = microseconds(index, rows), videos[[0, -1]]
            tolerance = 1e6 * float((ends.seconds[two] / ends.frame[two]).min()) / 2
        else:
            frames = index.numbers("frame_index", rows).astype(np.int64)
    return ComparableFrames(int(frames[-1]), frames[:-1], tolerance)


def microseconds(index: IndexLike, rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """Times of frames in their videos, int64 (rows,); 0 where it is not known."""
    return np.rint(1e6 * np.nan_to_num(index.numbers("pts_seconds", rows).astype(np.float64))).astype(np.int64)


class VideoEnds(NamedTuple):
    """Last frames of videos, by the codes of `video_id`: `frame`, its index, and `seconds`, its time; both float64."""

    frame: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @classmethod
    def of_rows(cls, index: IndexLike, rows: NDArray[np.integer]) -> Self:
        """The last frames that the videos have among `rows`."""
        video = index.codes("video_id", rows).astype(np.int64)  # of no rows, it gives floats
        frame, seconds = np.zeros((2, len(index.categories("video_id"))))
        np.maximum.at(frame, video, index.numbers("frame_index", rows).astype(np.float64))
        np.fmax.at(seconds, video, index.numbers("pts_seconds", rows).astype(np.float64))
        return cls(frame, seconds)

    def have_other_rates(self, videos: NDArray[np.integer], others: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether each video has another frame rate than the other one, but rather its length: bool (videos,).

        Its frames are then those of the same time. Where it has as many frames, but another length, the same frames
        were written at another rate; where it has another length and number of frames alike, it was cut.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            frames, seconds = (np.abs(np.log(ends[videos] / ends[others])) for ends in self)
            have: NDArray[np.bool_] = (frames - seconds > _MIN_RATE_DIFFERENCE) & np.isfinite(frames)  # False for NaN
        return have
