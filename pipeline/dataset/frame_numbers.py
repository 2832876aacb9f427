"""Numbers of frames: those in the names of images, by which frames of two folders are the same, else frame indices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .index_like import IndexLike


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
