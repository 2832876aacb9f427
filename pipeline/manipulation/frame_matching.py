"""Which frame of an original shows the moment that a frame of its fake shows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..video import FrameTimes


def counterparts(fake: FrameTimes, original: FrameTimes) -> dict[int, int]:
    """For each wanted frame of the fake that has one, the index of the original's frame: {frame_index: frame_index}.

    Two videos of equally many frames are taken as made frame by frame: frame k is frame k, whatever their clocks say,
    since tools that write a constant rate lose the times of a variable one. Otherwise it is the frame that is nearest
    in time, counted from the first frame of each, within half of the shorter of their two frame intervals (medians):
    a frame that lies between two of the original's, behind its end or in a gap, has none.

    >>> clip = lambda frames, wanted: FrameTimes(np.arange(frames) / 25, np.array(wanted))
    >>> counterparts(clip(6, [1, 4]), clip(10, [2, 7]))
    {1: 1, 4: 4}
    """
    if len(fake.pts_seconds) == len(original.pts_seconds):
        return {index: index for index in fake.wanted_indices.tolist()}
    there = original.pts_seconds - original.pts_seconds[0]
    here = (fake.pts_seconds - fake.pts_seconds[0])[fake.wanted_indices]
    after = np.searchsorted(there, here).clip(max=len(there) - 1)
    before = (after - 1).clip(min=0)
    nearest = np.where(np.abs(here - there[before]) <= np.abs(there[after] - here), before, after)
    most = min(_interval_seconds(fake.pts_seconds), _interval_seconds(original.pts_seconds)) / 2
    same = np.abs(there[nearest] - here) < most
    return dict(zip(fake.wanted_indices[same].tolist(), nearest[same].tolist(), strict=True))


def _interval_seconds(pts_seconds: NDArray[np.float64]) -> float:
    return float(np.median(np.diff(pts_seconds))) if len(pts_seconds) > 1 else math.inf
