"""What pairs of a video and its original notice of the times of their frames."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from facefeed.pipeline.dataset.frame_numbers import VideoEnds
from facefeed.pipeline.dataset.index import Index
from numpy.typing import NDArray


def start_seconds(frame_number: NDArray[np.int64]) -> float:
    """Of a video whose frames 1 to 9 have a face, at these times: a gap after frame 0, then 25 frames a second."""
    frame_index = np.arange(1, 10)
    columns = {"frame_index": frame_index, "frame_number": frame_number, "pts_seconds": 0.4 + (frame_index - 1) / 25}

    class _Rows:
        schema = pa.schema([("frame_number", pa.int64())])

        def numbers(self, column: str, rows: NDArray[np.int64]) -> NDArray[Any]:
            return columns[column][rows]

        def codes(self, column: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.zeros(len(rows), np.int64)

        def categories(self, column: str) -> list[str]:
            return ["clip"]

    return float(VideoEnds.of_rows(cast("Index", _Rows()), np.arange(9)).start_seconds[0])


def test_times_of_a_folder_of_images_begin_with_its_first_one_also_where_it_has_no_face() -> None:
    assert start_seconds(np.arange(10, 19)) == 0.0


def test_times_of_a_video_begin_where_its_frames_say() -> None:
    assert start_seconds(np.full(9, -1)) == pytest.approx(0.36)
