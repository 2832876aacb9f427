"""What a training run notices of the images in a clip: one person, in order of time, none missing between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from assets_random import examples
from assets_tracks import CONSTANT, JITTER, VARIABLE, Track, TracksOnly, tracks
from facefeed.loaders import Clip
from facefeed.loaders.clips.clip_table import ClipTable
from facefeed.loaders.clips.runs import find_runs
from facefeed.pipeline.video import Sampling
from hypothesis import given
from hypothesis import strategies as st

EVERY_FRAME = {"every": 1}
lengths, strides = st.integers(1, 6), st.integers(1, 3)


def table_of(made: TracksOnly, clip: Clip, sampling: dict[str, Any] | None = None) -> ClipTable:
    sampling = EVERY_FRAME if sampling is None else sampling
    runs = find_runs(made.index, made.rows, max_gap_seconds=clip.max_gap_seconds, sampling=sampling)
    return ClipTable(made.index, runs, clip)


def all_clips(made: TracksOnly, clip: Clip, sampling: dict[str, Any] | None = None) -> Iterator[list[int]]:
    """The valid rows of every clip that any epoch may have."""
    table = table_of(made, clip, sampling)
    clips = table.clips(np.arange(len(table.firsts)))
    for rows, num_valid in zip(clips.rows.tolist(), clips.num_valid.tolist(), strict=True):
        assert rows[num_valid:] == [rows[num_valid - 1]] * (clip.frames - num_valid)
        yield rows[:num_valid]


def steps(values: list[Any]) -> set[Any]:
    return set(np.diff(values).tolist())


@pytest.mark.parametrize("interval", [CONSTANT, JITTER, VARIABLE], ids=["constant", "jitter", "variable"])
@pytest.mark.parametrize("pad", [False, True])
def test_a_clip_is_of_one_person_in_order_and_never_steps_over_a_lost_frame_or_a_cut(interval: Any, pad: bool) -> None:
    @examples(150)
    @given(tracks(interval), lengths, strides)
    def holds(people: list[Track], frames: int, stride: int) -> None:
        made = TracksOnly(people)
        for rows in all_clips(made, Clip(frames=frames, stride=stride, pad=pad)):
            assert len(set(zip(made.of(rows, "video_id"), made.of(rows, "track_id"), strict=True))) == 1
            assert len(set(made.of(rows, "shot"))) == 1
            assert steps(made.of(rows, "ordinal")) <= {stride}
            assert all(step > 0 for step in steps(made.of(rows, "pts_seconds")))
            assert pad or len(rows) == frames

    holds()


@examples(150)
@given(tracks(VARIABLE), lengths, st.floats(0.01, 0.2))
def test_no_step_in_a_clip_is_longer_than_the_gap_that_was_given(
    people: list[Track], frames: int, max_gap_seconds: float
) -> None:
    made = TracksOnly(people)
    for rows in all_clips(made, Clip(frames=frames, max_gap_seconds=max_gap_seconds)):
        assert all(step <= max_gap_seconds + 1e-5 for step in steps(made.of(rows, "pts_seconds")))


@examples(150)
@given(tracks(CONSTANT), lengths, strides)
def test_every_clip_without_a_gap_is_there(people: list[Track], frames: int, stride: int) -> None:
    made = TracksOnly(people)
    expected = set()
    for track in people:
        rows = {row["ordinal"]: row for row in track.rows()}
        for first in rows:
            span = range(first, first + (frames - 1) * stride + 1)
            if all(ordinal in rows and rows[ordinal]["shot"] == rows[first]["shot"] for ordinal in span):
                expected.add((track.video, track.track, first))
    names = ("video_id", "track_id", "ordinal")
    clips = [rows[0] for rows in all_clips(made, Clip(frames=frames, stride=stride))]
    assert sorted(zip(*(made.of(clips, name) for name in names), strict=True)) == sorted(expected)


@examples(100)
@given(tracks(CONSTANT), lengths)
def test_a_padded_clip_is_given_by_every_run_that_is_too_short_and_by_no_other(
    people: list[Track], frames: int
) -> None:
    made = TracksOnly(people)
    padded = [rows for rows in all_clips(made, Clip(frames=frames, pad=True)) if len(rows) < frames]
    whole = {row for rows in all_clips(made, Clip(frames=frames)) for row in rows}
    in_padded = [row for rows in padded for row in rows]
    assert sorted(in_padded) == sorted(set(made.rows.tolist()) - whole)


def sampled_video(rate: float, digits: int = 9, num_frames: int = 60, **options: Any) -> tuple[Track, dict[str, Any]]:
    """A track with a face in each sampled frame of a video of so many frames a second, and how they were sampled.

    digits: of its times, in which containers round them. options: of `Sampling`.
    """
    times = np.round(np.arange(num_frames) / rate, digits)
    sampling = Sampling(**options)
    frames = sampling.select(times.tolist(), [])
    return Track("a.mp4", 0, tuple(np.diff(times[frames]).tolist()), frames=tuple(frames)), sampling.as_dict()


@pytest.mark.parametrize("rate", [15, 24, 29.97, 30, 60])
@pytest.mark.parametrize("fps", [3, 10, 20, 25])
@pytest.mark.parametrize("digits", [9, 3], ids=["exact", "milliseconds"])
def test_frames_that_were_sampled_by_rate_are_one_run_and_gaps_where_one_is_missing(
    rate: float, fps: float, digits: int
) -> None:
    track, sampling = sampled_video(rate, digits, fps=float(fps))
    count = len(track.frames)
    for late in (0, 2):  # the face comes with the first sampled frame, or later
        for lost in ([], *([ordinal] for ordinal in range(late + 1, count - 1))):
            made = TracksOnly([replace(track, lost=frozenset([*range(late), *lost]))])
            clips = list(all_clips(made, Clip(frames=2), sampling))
            assert len(clips) == count - late - 1 - 2 * len(lost)
            assert all(steps(made.of(rows, "ordinal")) == {1} for rows in clips)


@pytest.mark.parametrize("num_frames", [20, 32, 33, 40, 47, 48, 63, 65, 100])
def test_frames_that_were_picked_evenly_are_one_run_and_gaps_where_one_is_missing(num_frames: int) -> None:
    track, sampling = sampled_video(25, num_frames=num_frames, frames=32)
    count = len(track.frames)
    for lost in range(count + 1):
        made = TracksOnly([replace(track, lost=frozenset([lost]))])
        clips = list(all_clips(made, Clip(frames=2), sampling))
        assert all(steps(made.of(rows, "ordinal")) == {1} for rows in clips)
        if lost != count - 1:  # else nobody knows how many frames the video has
            assert len(clips) == count - 1 - (lost < count) - (0 < lost < count)


@pytest.mark.parametrize("options", [{"fps": 25.0}, {"frames": 40}], ids=str)
def test_a_pause_of_the_picture_is_a_gap_among_frames_that_were_sampled_unevenly(options: dict[str, Any]) -> None:
    track, sampling = sampled_video(30, **options)
    for pause in range(1, len(track.steps) - 1):
        paused = tuple(step + (ordinal == pause) for ordinal, step in enumerate(track.steps))
        made = TracksOnly([replace(track, steps=paused)])
        lengths = table_of(made, Clip(frames=2), sampling).runs.lengths
        assert (int(lengths[0]), int(lengths.sum())) == (pause + 1, len(track.frames))


def test_two_frames_far_apart_are_no_clip_though_nothing_else_tells_the_rate() -> None:
    made = TracksOnly([Track("a.mp4", 0, (0.04,) * 30, lost=frozenset(range(1, 30)))])
    assert list(all_clips(made, Clip(frames=2))) == []
    assert list(all_clips(made, Clip(frames=2), {"fps": 25.0})) == []
    assert len(list(all_clips(made, Clip(frames=2, max_gap_seconds=1.2)))) == 1
    # Of 25 frames a second sampled at 15, 2, 4 and 5: the one in the middle is lost.
    made = TracksOnly([Track("a.mp4", 0, (0.08, 0.04), lost=frozenset([1]), frames=(2, 4, 5))])
    assert list(all_clips(made, Clip(frames=2), {"fps": 15.0})) == []
    neighbours = TracksOnly([Track("a.mp4", 0, (0.2,))])  # a video that is slower than the rate it was sampled at
    assert len(list(all_clips(neighbours, Clip(frames=2), {"fps": 15.0}))) == 1


def test_frames_of_a_folder_follow_their_numbers() -> None:
    numbers = (7, 9, 11, 15, 17, 19)
    made = TracksOnly([Track("a", 0, (1.0,) * 5, numbers=numbers)])
    clips = [made.of(rows, "frame_number") for rows in all_clips(made, Clip(frames=3))]
    assert clips == [[7, 9, 11], [15, 17, 19]]
    numbers = (3, 1, 2, 6, 5, 4)
    unordered = TracksOnly([Track("a", 0, (1.0,) * 5, numbers=numbers, frames=tuple(n - 1 for n in numbers))])
    assert [unordered.of(rows, "frame_number") for rows in all_clips(unordered, Clip(frames=6))] == [[1, 2, 3, 4, 5, 6]]


def test_frames_named_by_time_stamps_of_18_digits_are_gaps_where_one_is_missing() -> None:
    stamps = tuple(10**17 + 1 + number for number in (0, 1, 2, 4, 5, 6))
    made = TracksOnly([Track("a", 0, (1.0,) * 5, numbers=stamps), Track("b", 0, (1.0,) * 5, numbers=(*range(7, 13),))])
    clips = [made.of(rows, "frame_number") for rows in all_clips(made, Clip(frames=3))]
    assert clips == [[*stamps[:3]], [*stamps[3:]], [7, 8, 9], [8, 9, 10], [9, 10, 11], [10, 11, 12]]


def test_a_pause_of_the_picture_is_a_gap_unless_it_is_allowed() -> None:
    made = TracksOnly([Track("a.mp4", 0, (*(0.04,) * 9, 2.0, *(0.04,) * 9))])
    assert {len(rows) for rows in all_clips(made, Clip(frames=11, pad=True))} == {10}
    assert len(list(all_clips(made, Clip(frames=11, max_gap_seconds=2)))) == 10


def test_rows_that_are_not_selected_are_lost_frames() -> None:
    made = TracksOnly([Track("a.mp4", 0, (0.04,) * 19)])
    made.selection = made.rows[made.rows != 8]
    assert sorted({len(rows) for rows in all_clips(made, Clip(frames=12, pad=True))}) == [8, 11]


@pytest.mark.parametrize("options", [{"frames": 10}, {"fps": 2.5}, {"keyframes": True}, {"every": 10}], ids=str)
@pytest.mark.parametrize("selected", [(0, 3, 6, 9), (1, 2, 4, 5, 7, 8), (0, 2, 3, 8)], ids=str)
def test_a_clip_never_steps_over_rows_that_are_not_selected_however_few_are(
    options: dict[str, Any], selected: tuple[int, ...]
) -> None:
    made = TracksOnly([Track("a.mp4", 0, (0.4,) * 9, frames=tuple(range(0, 100, 10)))])
    made.selection = made.rows[[*selected]]
    clips = [made.of(rows, "ordinal") for rows in all_clips(made, Clip(frames=2), options)]
    assert clips == [[first, first + 1] for first in selected if first + 1 in selected]
