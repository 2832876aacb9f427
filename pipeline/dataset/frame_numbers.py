"""Which frames of two videos are the same: by the numbers in their images' names where both are folders of frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .index import Index


def frame_numbers(index: Index, rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """The column `frame_number` at `rows`: int64 (rows,), -1 where there is none, as in all of an older dataset."""
    if "frame_number" not in index.schema.names:
        return np.full(len(rows), -1)
    return index.numbers("frame_number", rows).astype(np.int64)


def comparable_frames(index: Index, row: int, other_rows: NDArray[np.integer]) -> tuple[int, NDArray[np.int64]]:
    """The frame of `row`, and those of `other_rows` of one other video, int64 (rows,): the same frames are equal.

    They are numbers of images where both videos have them, else frame indices.
    """
    rows = np.concatenate([[row], other_rows]).astype(np.int64)
    frames = frame_numbers(index, rows)
    if (frames < 0).any():
        frames = index.numbers("frame_index", rows).astype(np.int64)
    return int(frames[0]), frames[1:]
