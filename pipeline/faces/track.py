"""One id for one person through a video, from boxes and times alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UsageError

# Below this overlap the distance of the centres tells more than the overlap does.
_LEAST_IOU: Final = 0.1
# How far, in box sides, a face may have moved between two sampled frames without any overlap.
_REACH: Final = 1.5
# The same face does not double or halve its size between two sampled frames.
_LARGEST_GROWTH: Final = 2.0
# Heads turn back: a velocity is believed for this long and no longer.
_COAST_SECONDS: Final = 0.5


@dataclass(slots=True)
class _Track:
    track_id: int
    box: NDArray[np.float64]
    seen_seconds: float
    seen_update: int
    velocity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))

    def predicted(self, pts_seconds: float) -> NDArray[np.float64]:
        ahead = min(max(pts_seconds - self.seen_seconds, 0.0), _COAST_SECONDS)
        return self.box + np.tile(self.velocity * ahead, 2)

    def take(self, box: NDArray[np.float64], pts_seconds: float, update: int) -> None:
        elapsed = pts_seconds - self.seen_seconds
        moved = (box[:2] + box[2:] - self.box[:2] - self.box[2:]) / 2
        self.velocity = moved / elapsed if elapsed > 0 else np.zeros(2)
        self.box, self.seen_seconds, self.seen_update = box, pts_seconds, update


class Tracker:
    """Gives each face of a video an id that stays with the person; ids are 0, 1, 2.. by first appearance.

    A face is joined to the track whose box it overlaps most, where the track's last velocity puts it now
    (the idea of SORT, Bewley et al. 2016, with a straight line for the Kalman filter); if nothing overlaps,
    since frames may be far apart, to the nearest track of a like size within 1.5 box sides. The best pair
    first, each face and each track once. A track that was missed is taken up again within
    `max_lost_seconds`; one that was in the frame sampled just before is, however long ago that was.

    Deterministic; picklable; one Tracker for one video. It does not look at the pixels: after a cut, a new
    person in an old one's place inherits the id, and one who comes back elsewhere gets a new one.
    Raises `UsageError` if `max_lost_seconds` is negative.
    """

    def __init__(self, *, max_lost_seconds: float = 2.0) -> None:
        if not max_lost_seconds >= 0:
            raise UsageError(f"max_lost_seconds={max_lost_seconds}: must be at least 0; try 2.0")
        self._max_lost_seconds = max_lost_seconds
        self._tracks: list[_Track] = []
        self._next_id = 0
        self._updates = 0

    def update(self, boxes_xyxy: ArrayLike, pts_seconds: float) -> NDArray[np.int32]:
        """Return the ids (N,) int32 of the boxes (N, 4), `frame` px, of the frame shown at `pts_seconds`.

        Call it for every sampled frame in the order of decoding, also for those without a face. Time that
        jumps back, as in damaged files, counts as no time. Raises `UsageError` on a time or box that is
        not finite.
        """
        boxes = np.asarray(boxes_xyxy, np.float64).reshape(-1, 4)
        if not (math.isfinite(pts_seconds) and np.isfinite(boxes).all()):
            raise UsageError(f"pts_seconds={pts_seconds}, boxes={boxes.tolist()}: must be finite")
        self._tracks = [track for track in self._tracks if self._alive(track, pts_seconds)]
        self._updates += 1
        chosen = _best_pairs(_affinity([t.predicted(pts_seconds) for t in self._tracks], boxes))
        found = [self._tracks[chosen[row]] if row in chosen else None for row in range(len(boxes))]
        ids = [self._join(track, box, pts_seconds) for track, box in zip(found, boxes, strict=True)]
        return np.array(ids, np.int32)

    def _alive(self, track: _Track, pts_seconds: float) -> bool:
        if track.seen_update == self._updates:
            return True
        return pts_seconds - track.seen_seconds <= self._max_lost_seconds

    def _join(self, track: _Track | None, box: NDArray[np.float64], pts_seconds: float) -> int:
        if track is None:
            track = _Track(self._next_id, box, pts_seconds, self._updates)
            self._tracks.append(track)
            self._next_id += 1
        else:
            track.take(box, pts_seconds, self._updates)
        return track.track_id


def _affinity(tracks: list[NDArray[np.float64]], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How well each track (rows) fits each box (columns): 0 not at all, up to 1 by nearness, 1..2 by IoU."""
    if not tracks or not len(boxes):
        return np.zeros((len(tracks), len(boxes)))
    a, b = np.array(tracks)[:, None], boxes[None]
    overlap = (np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])).clip(0).prod(-1)
    sides_a, sides_b = a[..., 2:] - a[..., :2], b[..., 2:] - b[..., :2]
    union = sides_a.prod(-1) + sides_b.prod(-1) - overlap
    iou = overlap / np.maximum(union, 1e-9)

    size_a, size_b = sides_a.max(-1).clip(1e-9), sides_b.max(-1).clip(1e-9)
    centres = (a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) / 2
    reach = _REACH * (size_a + size_b) / 2
    nearness = (1 - np.hypot(centres[..., 0], centres[..., 1]) / reach).clip(0)
    like_size = np.maximum(size_a / size_b, size_b / size_a) <= _LARGEST_GROWTH
    fit: NDArray[np.float64] = np.where(iou >= _LEAST_IOU, 1 + iou, nearness * like_size)
    return fit


def _best_pairs(affinity: NDArray[np.float64]) -> dict[int, int]:
    """Pair boxes with tracks, best first: {box: track}; ties go to the older track, then the earlier box."""
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for flat in np.argsort(-affinity, axis=None, kind="stable"):
        track, box = divmod(int(flat), affinity.shape[1])
        if affinity[track, box] <= 0:
            break
        if track not in taken and box not in pairs:
            pairs[box] = track
            taken.add(track)
    return pairs
