"""Matches the frames of a fake with those of its source video, by index or by time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..video import FrameTimes


def match_frames(fake: FrameTimes, source: FrameTimes) -> dict[int, int]:
    """Maps the index of each sampled frame of the fake to that of its source frame: {frame_index: frame_index}.

    Two clips of images are matched by the numbers that their names end in, where both have them. Two videos with the
    same number of frames are matched by index, whatever their time stamps: tools that write a constant frame rate lose
    the times of a variable one. Clips of images without known times match nothing else. Otherwise a frame matches the
    source frame that is nearest in time since each video's first frame, within half of the shorter of the two frame
    intervals (medians). Frames without such a source frame (between two of them, past the end, in a gap) are left out.

    >>> clip = lambda frames, wanted: FrameTimes(np.arange(frames) / 25, np.array(wanted))
    >>> match_frames(clip(6, [1, 4]), clip(10, [2, 7]))
    {1: 1, 4: 4}
    """
    if fake.numbers is not None and source.numbers is not None:
        index_of = {number: index for index, number in enumerate(source.numbers.tolist())}
        wanted = zip(fake.wanted_indices.tolist(), fake.numbers[fake.wanted_indices].tolist(), strict=True)
        return {index: index_of[number] for index, number in wanted if number in index_of}
    if len(fake.pts_seconds) == len(source.pts_seconds):
        return {index: index for index in fake.wanted_indices.tolist()}
    if not (fake.is_timed and source.is_timed):
        return {}
    source_seconds = source.pts_seconds - source.pts_seconds[0]
    fake_seconds = (fake.pts_seconds - fake.pts_seconds[0])[fake.wanted_indices]
    after = np.searchsorted(source_seconds, fake_seconds).clip(max=len(source_seconds) - 1)
    before = (after - 1).clip(min=0)
    nearest = np.where(
        np.abs(fake_seconds - source_seconds[before]) <= np.abs(source_seconds[after] - fake_seconds), before, after
    )
    tolerance_seconds = min(_interval_seconds(fake.pts_seconds), _interval_seconds(source.pts_seconds)) / 2
    is_match = np.abs(source_seconds[nearest] - fake_seconds) < tolerance_seconds
    return dict(zip(fake.wanted_indices[is_match].tolist(), nearest[is_match].tolist(), strict=True))


def _interval_seconds(pts_seconds: NDArray[np.float64]) -> float:
    return float(np.median(np.diff(pts_seconds))) if len(pts_seconds) > 1 else math.inf
