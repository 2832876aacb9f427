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


def frame_names(index: IndexLike, rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """What each frame is called by, int64 (rows,): the number in its image's name, else its frame index."""
    numbers = frame_numbers(index, rows)
    return np.where(numbers >= 0, numbers, index.numbers("frame_index", rows))


def comparable_frames(index: IndexLike, row: int, other_rows: NDArray[np.integer]) -> tuple[int, NDArray[np.int64]]:
    """The frame of `row`, and those of `other_rows` of one other video, int64 (rows,): the same frames are equal.

    They are numbers of images where both videos have them, else frame indices.
    """
    rows = np.concatenate([[row], other_rows]).astype(np.int64)
    frames = frame_numbers(index, rows)
    if (frames < 0).any():
        frames = index.numbers("frame_index", rows).astype(np.int64)
    return int(frames[0]), frames[1:]


class VideoEnds(NamedTuple):
    """Last frames of videos, by the codes of `video_id`: `frame`, its index, and `seconds`, its time; both float64."""

    frame: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @classmethod
    def of_rows(cls, index: IndexLike, rows: NDArray[np.integer]) -> Self:
        """The last frames that the videos have among `rows`."""
        video = index.codes("video_id", rows)
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
