"""`Sampling`, `Frame` and `DecoderLimits`."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.video import DecoderLimits, Frame, Sampling

EVEN = [index / 25 for index in range(100)]


def test_every_nth_frame_starts_with_the_first() -> None:
    assert Sampling(every=30).select(EVEN, [0]) == [0, 30, 60, 90]
    assert Sampling(every=1).select(EVEN, [0]) == list(range(100))
    assert Sampling(every=1000).select(EVEN, [0]) == [0]


def test_frames_are_spread_over_the_whole_video_not_its_beginning() -> None:
    assert Sampling(frames=1).select(EVEN, [0]) == [50]
    assert Sampling(frames=4).select(EVEN, [0]) == [12, 37, 62, 87]
    assert Sampling(frames=100).select(EVEN, [0]) == list(range(100))


def test_a_video_with_fewer_frames_than_asked_gives_all() -> None:
    assert Sampling(frames=7).select(EVEN[:3], [0]) == [0, 1, 2]


@pytest.mark.parametrize("fps", [1, 2.5, 5, 12.5, 25])
def test_fps_that_divide_the_rate_take_evenly(fps: float) -> None:
    assert Sampling(fps=fps).select(EVEN, [0]) == list(range(0, 100, round(25 / fps)))


def test_fps_takes_the_first_frame_at_or_after_each_due_time() -> None:
    assert Sampling(fps=10).select(EVEN[:11], [0]) == [0, 3, 5, 8, 10]


def test_fps_follows_the_clock_of_a_variable_rate_not_the_frame_count() -> None:
    times = [7.0, 7.01, 7.02, 7.5, 8.9, 9.0, 9.1]
    assert Sampling(fps=2).select(times, [0]) == [0, 3, 4, 5]


@pytest.mark.parametrize(
    ("rate", "fps", "step"),
    [(30, 30, 1), (29.97, 29.97, 1), (29.97, 30, 1), (23.976, 24, 1), (60, 30, 2), (30, 15, 2), (30, 3, 10)],
)
def test_fps_takes_evenly_where_the_container_rounds_times_to_milliseconds(rate: float, fps: float, step: int) -> None:
    """As Matroska, WebM, FLV and ASF do, also of a first frame that is not at 0."""
    for first in (0.0, 0.0334):
        times = [round(first + index / rate, 3) for index in range(300)]
        assert Sampling(fps=fps).select(times, [0]) == list(range(0, 300, step))


@pytest.mark.parametrize("digits", [3, 12])
def test_fps_takes_one_frame_for_each_due_time_after_a_gap_too(digits: int) -> None:
    """The frame after it may be rounded to before its due time, and is none for the time before that."""
    times = [round(1.4 + index / 30, digits) for index in range(60) if not 1 <= index <= 19]
    assert Sampling(fps=3).select(times, [0]) == [0, 1, 11, 21, 31]


def test_fps_above_the_rate_gives_each_frame_once() -> None:
    assert Sampling(fps=1000).select(EVEN, [0]) == list(range(100))


def test_keyframes_alone_are_taken() -> None:
    assert Sampling(keyframes=True).select(EVEN, [0, 12, 50]) == [0, 12, 50]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"every": 1, "fps": 1.0},
        {"frames": 3, "keyframes": True},
        {"every": 0},
        {"every": True},
        {"frames": -1},
        {"fps": 0.0},
        {"fps": float("nan")},
        {"fps": float("inf")},
    ],
)
def test_an_invalid_sampling_is_refused_with_a_remedy(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r".+=.*: .*try "):
        Sampling(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "sampling", [Sampling(every=3), Sampling(fps=2.5), Sampling(frames=4), Sampling(keyframes=True)]
)
def test_a_sampling_round_trips_as_a_dict(sampling: Sampling) -> None:
    assert Sampling.from_dict(sampling.as_dict()) == sampling


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(UsageError, match="each"):
        Sampling.from_dict({"each": 3})


def test_a_frame_prints_shapes_and_not_pixels() -> None:
    frame = Frame(3, 0.12, np.zeros((4, 5, 3), np.uint8))
    assert repr(frame) == "Frame(frame_index=3, pts_seconds=0.120000, rgb=uint8 (4, 5, 3))"
    assert (frame.height, frame.width) == (4, 5)


@pytest.mark.parametrize(
    ("frame_index", "pts_seconds", "shape", "dtype"),
    [
        (-1, 0.0, (4, 5, 3), np.uint8),
        (0, float("nan"), (4, 5, 3), np.uint8),
        (0, 0.0, (4, 5), np.uint8),
        (0, 0.0, (0, 5, 3), np.uint8),
        (0, 0.0, (4, 5, 3), np.float32),
    ],
)
def test_an_invalid_frame_is_refused(frame_index: int, pts_seconds: float, shape: tuple[int, ...], dtype: type) -> None:
    with pytest.raises(ValueError, match="must be"):
        Frame(frame_index, pts_seconds, np.zeros(shape, dtype))


@pytest.mark.parametrize(
    "fields",
    [
        {"deadline_seconds": 0.0},
        {"total_seconds": -1.0},
        {"memory_bytes": 0},
        {"threads": 0},
        {"max_pixels": math.inf},
        {"command": ()},
    ],
)
def test_invalid_limits_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="must"):
        DecoderLimits(**fields)  # type: ignore[arg-type]


def test_limits_may_be_written_as_powers_of_ten() -> None:
    limits = DecoderLimits(memory_bytes=8e9, max_pixels=1e8, threads=2.0)  # type: ignore[arg-type]
    assert [*map(repr, (limits.memory_bytes, limits.max_pixels, limits.threads))] == ["8000000000", "100000000", "2"]


def test_importing_the_reader_loads_no_decoder() -> None:
    script = "import sys, facefeed.pipeline.video; print({'av', 'torch', 'cv2', 'PIL'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
