"""Temporal smoothing of crop boxes along each track, over a window centred at each frame.

A detector's boxes jitter from frame to frame by a few per cent of their side, and crops that follow them shake. A
causal filter (say the One-Euro filter, Casiez et al. 2012) trades jitter for lag; frames of a file can be read ahead,
so the window here is symmetric and has no lag.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_WINDOW_SECONDS: Final = 0.25
"""Half the width of the window."""
_WINDOW_SAMPLES: Final = 6
"""Maximum number of sampled frames on each side; bounds the frames kept in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class FrameBoxes:
    """Boxes to crop around and rotations of the N faces of one sampled frame.

    `track_ids`: (N,) int32. `boxes_xyxy`: (N, 4) float64, `frame` px. `degrees`: (N,) float64, clockwise as seen.
    `shot`: of the frame, with the frame's size; frames of another size, or beyond a cut, have another one.
    """

    pts_seconds: float
    track_ids: NDArray[np.int32]
    boxes_xyxy: NDArray[np.float64]
    degrees: NDArray[np.float64]
    shot: tuple[int, ...] = ()


def smooth_boxes(frames: Iterable[tuple[T, FrameBoxes]], margin: float) -> Iterator[tuple[T, FrameBoxes]]:
    """Yield the same (payload, boxes) pairs in order, with boxes and rotations smoothed along each track.

    A box becomes a square with the smoothed centre and longer side; its rotation becomes the smoothed rotation. Both
    are means over the face's track within its shot and over frames of one size, since people lie elsewhere after a cut
    and in an image of another size. They are weighted by a Hann window of .25 s and at most 6 sampled frames on each
    side, so uniform motion is followed without lag. At least half of `margin`, a share of the box's longer side,
    remains on every side of the detector's box: smoothing is limited to that.
    Frames further apart than the window are unchanged. Buffers at most 7 items.
    """
    waiting: deque[tuple[T, FrameBoxes]] = deque()
    past: deque[FrameBoxes] = deque(maxlen=_WINDOW_SAMPLES)
    for item in frames:
        waiting.append(item)
        while _has_full_window(waiting):
            yield _smooth_oldest(past, waiting, margin)
    while waiting:
        yield _smooth_oldest(past, waiting, margin)


def _has_full_window(waiting: deque[tuple[T, FrameBoxes]]) -> bool:
    span_seconds = abs(waiting[-1][1].pts_seconds - waiting[0][1].pts_seconds)
    return len(waiting) > 1 and (len(waiting) > _WINDOW_SAMPLES or span_seconds >= _WINDOW_SECONDS)


def _smooth_oldest(
    past: deque[FrameBoxes], waiting: deque[tuple[T, FrameBoxes]], margin: float
) -> tuple[T, FrameBoxes]:
    payload, current = waiting.popleft()
    window = [*past, current, *(frame for _, frame in waiting)]
    weighted_window = [
        (weight, frame)
        for frame in window
        if frame.shot == current.shot and (weight := _hann_weight(frame.pts_seconds - current.pts_seconds)) > 0
    ]
    past.append(current)
    boxes, degrees = current.boxes_xyxy.copy(), current.degrees.copy()
    for face, track_id in enumerate(current.track_ids):
        samples = [
            (weight, frame.boxes_xyxy[index], frame.degrees[index])
            for weight, frame in weighted_window
            for index in np.flatnonzero(frame.track_ids == track_id)
        ]
        weights, track_boxes, angles = (np.array(values) for values in zip(*samples, strict=True))
        smoothed = np.average(_to_squares(track_boxes), axis=0, weights=weights)
        boxes[face] = _to_box(_keep_margin(smoothed, _to_squares(current.boxes_xyxy[face]), margin))
        degrees[face] = _mean_angle(angles, weights)
    return payload, replace(current, boxes_xyxy=boxes, degrees=degrees)


def _hann_weight(distance_seconds: float) -> float:
    fraction = abs(distance_seconds) / _WINDOW_SECONDS
    return math.cos(fraction * math.pi / 2) ** 2 if fraction < 1 else 0.0


def _to_squares(boxes_xyxy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert boxes (..., 4) to squares (..., 3): centre x, centre y, longer side."""
    low, high = boxes_xyxy[..., :2], boxes_xyxy[..., 2:]
    return np.concatenate([(low + high) / 2, (high - low).max(axis=-1, keepdims=True)], axis=-1)


def _to_box(smoothed: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([smoothed[:2] - smoothed[2] / 2, smoothed[:2] + smoothed[2] / 2])


def _keep_margin(smoothed: NDArray[np.float64], current: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """Return the square (3,) nearest to the smoothed one that leaves half the margin around the detector's box."""
    needed = (0.5 + margin / 2) * current[2]
    side = max(smoothed[2], needed / (0.5 + margin))
    slack = max((0.5 + margin) * side - needed, 0.0)
    return np.append(current[:2] + (smoothed[:2] - current[:2]).clip(-slack, slack), side)


def _mean_angle(degrees: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    mean_direction = np.average(np.exp(1j * np.deg2rad(degrees)), weights=weights)
    return math.degrees(math.atan2(mean_direction.imag, mean_direction.real))
