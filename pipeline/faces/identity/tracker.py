"""One id for one person through a video, from where faces are, how they move and how they look."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..detection import Faces
from .appearance import likeness, looks, scene

# Below this overlap the distance of the centres tells more than the overlap does.
_LEAST_IOU: Final = 0.1
# How far, in box sides, a face may have moved between two sampled frames without any overlap.
_REACH: Final = 1.5
# The same face does not double or halve its size between two sampled frames.
_LARGEST_GROWTH: Final = 2.0
# Heads turn back: a velocity is believed for this long and no longer.
_COAST_SECONDS: Final = 0.5
# These three were measured on the clips of tests/benchmarks/bench_tracks.py and on the sample.
# Frames across a cut are at most .27 alike, those ten frames apart without one mostly .7 and more.
_SAME_SCENE: Final = 0.55
# Ten frames on, one person is less alike in 1 of 200 pairs; whoever is in the same place after a cut is at most .32.
_LEAST_LIKENESS: Final = 0.4
# No two people of one clip are as alike (.68 at most); one person in two shots of one view is.
_SURE_LIKENESS: Final = 0.75
# So many people who are gone are remembered: enough for any scene, and bounded for a video of hours.
_REMEMBERED: Final = 64


@dataclass(slots=True)
class _Track:
    track_id: int
    box: NDArray[np.float64]
    look: NDArray[np.float32]
    seen_seconds: float
    seen_update: int
    velocity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))

    def predicted(self, pts_seconds: float) -> NDArray[np.float64]:
        ahead = min(max(pts_seconds - self.seen_seconds, 0.0), _COAST_SECONDS)
        return self.box + np.tile(self.velocity * ahead, 2)

    def take(self, box: NDArray[np.float64], pts_seconds: float) -> None:
        elapsed = pts_seconds - self.seen_seconds
        moved = (box[:2] + box[2:] - self.box[:2] - self.box[2:]) / 2
        self.velocity = moved / elapsed if elapsed > 0 else np.zeros(2)
        self.box = box

    def reappear(self, box: NDArray[np.float64]) -> None:
        self.velocity, self.box = np.zeros(2), box


class Tracker:
    """Gives each face of a video an id that stays with the person; ids are 0, 1, 2.. by first appearance.

    What it promises: no two faces of a frame have one id; the same frames and faces give the same ids; it looks back
    only, one frame after the other, and remembers a bounded number of people.

    What it goes by. First the place: a face is near a track if their boxes overlap where the track's last velocity
    puts it now (the idea of SORT, Bewley et al. 2016, with a straight line for the Kalman filter) or, since sampled
    frames may be far apart, if it is of a like size within 1.5 box sides; so for `max_lost_seconds` after the track
    was last seen, and if that was in the frame sampled just before, however long ago that was. Of those that are near,
    the best pair by place and looks is joined first, each face and each track once. Where the scene as a whole has
    changed since the frame sampled before, as by a cut, whoever is near must also look alike: a new person in an old
    one's place gets a new id. Then, for faces that are left, the looks alone (`looks.likeness`): a track that is very
    much alike is taken up wherever it was and whenever, so that in an interview cut to and fro each keeps the id.

    What it does not promise: it does not know faces. Someone who comes back in another view, other light or other
    clothes gets a new id; without a cut, someone new who within `max_lost_seconds` takes an old one's place may
    inherit the id; people who move by more than a face between two sampled frames may be told apart wrongly.

    Faces whose ids are known, as a fake's are from its original, are passed to `adopt`, in the same order of time; what
    `update` is given afterwards continues them. `first_id`: the least id that `update` gives out itself.

    Deterministic; picklable; one Tracker for one video. Raises `UsageError` if `max_lost_seconds` is negative.
    """

    def __init__(self, *, max_lost_seconds: float = 2.0, first_id: int = 0) -> None:
        if not max_lost_seconds >= 0:
            raise UsageError(f"max_lost_seconds={max_lost_seconds}: must be at least 0; try 2.0")
        self._max_lost_seconds = max_lost_seconds
        self._tracks: list[_Track] = []
        self._next_id = first_id
        self._updates = 0
        self._scene: NDArray[np.float32] | None = None

    def update(self, rgb: NDArray[np.uint8], faces: Faces, pts_seconds: float) -> NDArray[np.int32]:
        """Return the ids (N,) int32 of the faces of a frame (H, W, 3) uint8 shown at `pts_seconds`.

        Call it for every sampled frame in the order of decoding, also for those without a face. Time that
        jumps back, as in damaged files, counts as no time. Raises `UsageError` on a time that is not finite.
        """
        if not math.isfinite(pts_seconds):
            raise UsageError(f"pts_seconds={pts_seconds}: must be finite; a track has a place in time")
        boxes, seen = faces.boxes_xyxy.astype(np.float64), looks(rgb, faces.boxes_xyxy)
        owners = self._near(boxes, seen, pts_seconds, self._least_likeness(rgb))
        for face, track in owners.items():
            track.take(boxes[face], pts_seconds)
        for face, track in self._alike(seen, owners).items():
            track.reappear(boxes[face])
            owners[face] = track
        tracks = [owners.get(face) or self._begin(box) for face, box in enumerate(boxes)]
        self._note(tracks, seen, pts_seconds)
        return np.array([track.track_id for track in tracks], np.int32)

    @property
    def has_begun(self) -> bool:
        """Whether it has been given a frame."""
        return self._updates > 0

    def adopt(self, rgb: NDArray[np.uint8], faces: Faces, track_ids: NDArray[np.int32], pts_seconds: float) -> None:
        """Follows the faces of a frame whose ids (N,) int32 are known; otherwise as `update`."""
        self._scene = scene(rgb)
        known = {track.track_id: track for track in self._tracks}
        tracks = []
        for box, track_id in zip(faces.boxes_xyxy.astype(np.float64), track_ids.tolist(), strict=True):
            if track_id in known:
                known[track_id].take(box, pts_seconds)
            tracks.append(known.get(track_id) or self._begin(box, track_id))
        self._note(tracks, looks(rgb, faces.boxes_xyxy), pts_seconds)

    def _note(self, tracks: Sequence[_Track], seen: NDArray[np.float32], pts_seconds: float) -> None:
        """What was seen of the tracks of a frame's faces."""
        self._updates += 1
        for track, look in zip(tracks, seen, strict=True):
            track.look, track.seen_seconds, track.seen_update = look, pts_seconds, self._updates
        self._forget()

    def _least_likeness(self, rgb: NDArray[np.uint8]) -> float:
        before, self._scene = self._scene, scene(rgb)
        same = before is not None and likeness(before[None], self._scene[None]).item() >= _SAME_SCENE
        return -math.inf if same else _LEAST_LIKENESS

    def _near(
        self, boxes: NDArray[np.float64], seen: NDArray[np.float32], pts_seconds: float, least: float
    ) -> dict[int, _Track]:
        """Faces whose track is where they are, and alike."""
        tracks = [track for track in self._tracks if self._is_current(track, pts_seconds)]
        if not tracks or not len(boxes):
            return {}
        fit = affinity(np.array([track.predicted(pts_seconds) for track in tracks]), boxes)
        alike = likeness(np.array([track.look for track in tracks]), seen)
        pairs = best_pairs(np.where((fit > 0) & (alike >= least), fit + 2 * alike, 0))
        return {face: tracks[place] for face, place in pairs.items()}

    def _alike(self, seen: NDArray[np.float32], owners: dict[int, _Track]) -> dict[int, _Track]:
        """Faces without a track that look very much like a track without a face, wherever it was."""
        taken = {track.track_id for track in owners.values()}
        tracks = [track for track in self._tracks if track.track_id not in taken]
        left = [face for face in range(len(seen)) if face not in owners]
        if not tracks or not left:
            return {}
        alike = likeness(np.array([track.look for track in tracks]), seen[left])
        pairs = best_pairs(np.where(alike >= _SURE_LIKENESS, alike, 0))
        return {left[face]: tracks[place] for face, place in pairs.items()}

    def _is_current(self, track: _Track, pts_seconds: float) -> bool:
        if track.seen_update == self._updates:
            return True
        return pts_seconds - track.seen_seconds <= self._max_lost_seconds

    def _begin(self, box: NDArray[np.float64], track_id: int | None = None) -> _Track:
        if track_id is None:
            track_id, self._next_id = self._next_id, self._next_id + 1
        track = _Track(track_id, box, np.zeros(0, np.float32), 0.0, 0)
        self._tracks.append(track)
        return track

    def _forget(self) -> None:
        lost = sorted(track.seen_update for track in self._tracks if track.seen_update != self._updates)
        if len(lost) > _REMEMBERED:
            since = lost[-_REMEMBERED]
            self._tracks = [track for track in self._tracks if track.seen_update >= since]


def affinity(tracks: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """How near each track (rows) is to each box (columns): 0 not at all, up to 1 by nearness, 1..2 by IoU."""
    a, b = tracks[:, None], boxes[None]
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


def best_pairs(fit: NDArray[np.float64]) -> dict[int, int]:
    """Pair boxes with tracks, best first: {box: track}; ties go to the older track, then the earlier box."""
    pairs: dict[int, int] = {}
    taken: set[int] = set()
    for flat in np.argsort(-fit, axis=None, kind="stable"):
        track, box = divmod(int(flat), fit.shape[1])
        if fit[track, box] <= 0:
            break
        if track not in taken and box not in pairs:
            pairs[box] = track
            taken.add(track)
    return pairs
