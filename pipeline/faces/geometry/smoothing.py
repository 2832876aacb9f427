"""Squares that do not jitter: where a face is cut follows its track a moment back and a moment ahead.

A detector places each frame's box anew, a few per cent of its side to and fro, and a crop that follows it shakes. A
filter that only looks back (say the One-Euro filter, Casiez et al. 2012) buys steadiness with lag; frames that are
read from a file are there to be looked ahead at, so here the window lies evenly round each frame, and lags by nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_WINDOW_SECONDS: Final = 0.25
"""How far the window reaches to each side."""
_WINDOW_SAMPLES: Final = 6
"""As many sampled frames at most, to each side: so many frames are held in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Framing:
    """What is to be cut of one sampled frame with N faces: round which boxes, and turned by how much.

    `track_ids`: (N,) int32. `boxes_xyxy`: (N, 4) float64, `frame` px. `degrees`: (N,) float64, clockwise as seen.
    """

    pts_seconds: float
    track_ids: NDArray[np.int32]
    boxes_xyxy: NDArray[np.float64]
    degrees: NDArray[np.float64]


def smoothed(framings: Iterable[tuple[T, Framing]], margin: float) -> Iterator[tuple[T, Framing]]:
    """Yields as many framings in their order, each with what belongs to it, smoothed over each track.

    A box becomes a square of the smoothed centre and longer side, the angle the smoothed angle: means over the face's
    own track, weighted by a cosine window of .25 s and at most 6 sampled frames to each side (Hann's), so that a
    steady motion is followed without lag. Of `margin`, a share of the box's longer side, at least half stays on every
    side of the detector's own box, however the head moves: where smoothing would take more, it gives way.
    Frames that lie further apart than the window are left as they are. Holds at most 7 of what comes in.
    """
    waiting: deque[tuple[T, Framing]] = deque()
    past: deque[Framing] = deque(maxlen=_WINDOW_SAMPLES)
    for one in framings:
        waiting.append(one)
        while _is_due(waiting):
            yield _next(past, waiting, margin)
    while waiting:
        yield _next(past, waiting, margin)


def _is_due(waiting: deque[tuple[T, Framing]]) -> bool:
    ahead_seconds = abs(waiting[-1][1].pts_seconds - waiting[0][1].pts_seconds)
    return len(waiting) > 1 and (len(waiting) > _WINDOW_SAMPLES or ahead_seconds >= _WINDOW_SECONDS)


def _next(past: deque[Framing], waiting: deque[tuple[T, Framing]], margin: float) -> tuple[T, Framing]:
    with_it, own = waiting.popleft()
    near = [*past, own, *(framing for _, framing in waiting)]
    weighted = [(weight, framing) for framing in near if (weight := _weight(framing.pts_seconds - own.pts_seconds)) > 0]
    past.append(own)
    boxes, degrees = own.boxes_xyxy.copy(), own.degrees.copy()
    for face, track_id in enumerate(own.track_ids):
        found = [
            (weight, framing.boxes_xyxy[other], framing.degrees[other])
            for weight, framing in weighted
            for other in np.flatnonzero(framing.track_ids == track_id)
        ]
        weights, track_boxes, angles = (np.array(values) for values in zip(*found, strict=True))
        placed = np.average(_placed(track_boxes), axis=0, weights=weights)
        boxes[face] = _boxed(_kept_inside(placed, _placed(own.boxes_xyxy[face]), margin))
        degrees[face] = _mean_angle(angles, weights)
    return with_it, Framing(own.pts_seconds, own.track_ids, boxes, degrees)


def _weight(apart_seconds: float) -> float:
    share = abs(apart_seconds) / _WINDOW_SECONDS
    return math.cos(share * math.pi / 2) ** 2 if share < 1 else 0.0


def _placed(boxes_xyxy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Boxes (..., 4) as (..., 3): centre x, centre y, longer side."""
    low, high = boxes_xyxy[..., :2], boxes_xyxy[..., 2:]
    return np.concatenate([(low + high) / 2, (high - low).max(axis=-1, keepdims=True)], axis=-1)


def _boxed(placed: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([placed[:2] - placed[2] / 2, placed[:2] + placed[2] / 2])


def _kept_inside(placed: NDArray[np.float64], own: NDArray[np.float64], margin: float) -> NDArray[np.float64]:
    """The placing (3,) nearest to the smoothed one whose square leaves half the margin round the detector's box."""
    needed = (0.5 + margin / 2) * own[2]
    side = max(placed[2], needed / (0.5 + margin))
    slack = max((0.5 + margin) * side - needed, 0.0)
    return np.append(own[:2] + (placed[:2] - own[:2]).clip(-slack, slack), side)


def _mean_angle(degrees: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    along = np.average(np.exp(1j * np.deg2rad(degrees)), weights=weights)
    return math.degrees(math.atan2(along.imag, along.real))
