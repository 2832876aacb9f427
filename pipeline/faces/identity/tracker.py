"""`Tracker`: assigns a track id to each face of a video by position, motion and appearance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..detection import Faces
from ..geometry.overlap import box_iou
from .appearance import Appearance, appearance_similarity

# Below this overlap the distance of the centres is the better cue.
_MIN_IOU: Final = 0.1
# Maximum motion, in box sides, between two sampled frames without overlap.
_MAX_MOVE_SIDES: Final = 1.5
# Maximum ratio of a face's sizes in two sampled frames.
_MAX_SIZE_RATIO: Final = 2.0
# Motion is extrapolated no longer than this, since heads change direction.
_MAX_EXTRAPOLATION_SECONDS: Final = 0.5
# The next three were measured on the clips of tests/benchmarks/bench_tracks.py and on the sample.
# Similarity of frames across a cut is at most .27; ten frames apart without a cut it is mostly .7 or more.
_SAME_SCENE_SIMILARITY: Final = 0.55
# Ten frames apart, one person is below this in 1 of 200 pairs; another one there after a cut is .32 at most.
_MIN_SIMILARITY_ACROSS_CUT: Final = 0.4
# Two people of one clip never reach it (.68 at most); one person in two shots from the same view does.
_REIDENTIFY_SIMILARITY: Final = 0.75
# Number of lost tracks that are remembered: enough for any scene, and bounded for videos of hours.
_MAX_LOST_TRACKS: Final = 64


@dataclass(slots=True)
class _Track:
    track_id: int
    box: NDArray[np.float64]
    descriptor: NDArray[np.float32]
    last_seen_seconds: float
    last_update: int
    velocity: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))

    def predict_box(self, pts_seconds: float) -> NDArray[np.float64]:
        ahead_seconds = min(max(pts_seconds - self.last_seen_seconds, 0.0), _MAX_EXTRAPOLATION_SECONDS)
        return self.box + np.tile(self.velocity * ahead_seconds, 2)

    def move_to(self, box: NDArray[np.float64], pts_seconds: float) -> None:
        elapsed = pts_seconds - self.last_seen_seconds
        displacement = (box[:2] + box[2:] - self.box[:2] - self.box[2:]) / 2
        self.velocity = displacement / elapsed if elapsed > 0 else np.zeros(2)
        self.box = box

    def restart_at(self, box: NDArray[np.float64]) -> None:
        self.velocity, self.box = np.zeros(2), box


class Tracker:
    """Assigns each face of a video a track id that stays with the person; ids are 0, 1, 2.. by first appearance.

    Promises: ids are unique within a frame; the same frames and faces give the same ids; the tracker is online (it uses
    past frames only) and remembers a bounded number of people.

    Method. First, position: a face matches a track if their boxes overlap after the track is extrapolated by its last
    velocity (as in SORT, Bewley et al. 2016, with linear motion instead of a Kalman filter) or, since sampled frames
    may be far apart, if it has a similar size and lies within 1.5 box sides. That holds for `max_lost_seconds` after
    the track was last seen, and without a limit if it was seen in the previous sampled frame. Candidate pairs are
    matched greedily by position and appearance, each face and each track once. If the scene has changed since the
    previous sampled frame, as by a cut, a pair must also be similar in appearance: a new person at the same position
    gets a new id. Second, appearance alone (`appearance_similarity`) for faces that are left: a track of high
    similarity is continued wherever and whenever it was last seen, so that ids survive the cuts of an interview.

    Limits: it does not recognise faces. A person who returns in another view, light or clothes gets a new id; without a
    cut, a new person who takes another one's position within `max_lost_seconds` may inherit the id; people who move by
    more than a face between two sampled frames may be confused.

    Faces with known ids, such as those of a fake's source video, are passed to `update_with_ids` in order of time;
    later calls of `update` continue those tracks. `first_id`: the lowest id that `update` assigns to a new track.

    Deterministic; picklable; use one Tracker per video. Raises `UsageError` if `max_lost_seconds` is negative.
    """

    def __init__(self, *, max_lost_seconds: float = 2.0, first_id: int = 0) -> None:
        if not max_lost_seconds >= 0:
            raise UsageError(f"max_lost_seconds={max_lost_seconds}: must be at least 0; try 2.0")
        self._max_lost_seconds = max_lost_seconds
        self._tracks: list[_Track] = []
        self._next_id = first_id
        self._updates = 0
        self._scene: NDArray[np.float32] | None = None
        self.num_cuts = 0
        """How often the scene has changed between two frames in a row."""

    def update(self, rgb: NDArray[np.uint8], faces: Faces, pts_seconds: float) -> NDArray[np.int32]:
        """Return the ids (N,) int32 of the faces of a frame (H, W, 3) uint8 shown at `pts_seconds`.

        Call it for every sampled frame in decoding order, also for frames without a face. Time that jumps back, as in
        damaged files, counts as zero elapsed time. Raises `UsageError` if `pts_seconds` is not finite.
        """
        return self.update_seen(Appearance.of(rgb, faces.boxes_xyxy), faces, pts_seconds)

    def update_seen(self, appearance: Appearance, faces: Faces, pts_seconds: float) -> NDArray[np.int32]:
        """Do the same where the frame has been described before."""
        if not math.isfinite(pts_seconds):
            raise UsageError(f"pts_seconds={pts_seconds}: must be finite; a track has a place in time")
        boxes, descriptors = faces.boxes_xyxy.astype(np.float64), appearance.faces
        min_similarity = -math.inf if self._continues_scene(appearance.scene) else _MIN_SIMILARITY_ACROSS_CUT
        tracks_by_face = self._match_by_position(boxes, descriptors, pts_seconds, min_similarity)
        for face, track in tracks_by_face.items():
            track.move_to(boxes[face], pts_seconds)
        for face, track in self._match_by_appearance(descriptors, tracks_by_face).items():
            track.restart_at(boxes[face])
            tracks_by_face[face] = track
        tracks = [tracks_by_face.get(face) or self._start_track(box) for face, box in enumerate(boxes)]
        self._record(tracks, descriptors, pts_seconds)
        return np.array([track.track_id for track in tracks], np.int32)

    @property
    def has_started(self) -> bool:
        """Whether it has processed a frame."""
        return self._updates > 0

    def update_with_ids(
        self, rgb: NDArray[np.uint8], faces: Faces, track_ids: NDArray[np.int32], pts_seconds: float
    ) -> None:
        """Update the tracks with the faces of a frame whose ids (N,) int32 are known; call it in place of `update`."""
        appearance = Appearance.of(rgb, faces.boxes_xyxy)
        self._continues_scene(appearance.scene)
        tracks_by_id = {track.track_id: track for track in self._tracks}
        tracks = []
        for box, track_id in zip(faces.boxes_xyxy.astype(np.float64), track_ids.tolist(), strict=True):
            if track_id in tracks_by_id:
                tracks_by_id[track_id].move_to(box, pts_seconds)
            tracks.append(tracks_by_id.get(track_id) or self._start_track(box, track_id))
        self._record(tracks, appearance.faces, pts_seconds)

    def _record(self, tracks: Sequence[_Track], descriptors: NDArray[np.float32], pts_seconds: float) -> None:
        """Store the latest appearance and time of the tracks of a frame's faces."""
        self._updates += 1
        for track, descriptor in zip(tracks, descriptors, strict=True):
            track.descriptor, track.last_seen_seconds, track.last_update = descriptor, pts_seconds, self._updates
        self._drop_oldest_lost()

    def _continues_scene(self, scene: NDArray[np.float32]) -> bool:
        """Store the scene of a frame, described; return whether it is that of the previous frame."""
        previous, self._scene = self._scene, scene
        if previous is None:
            return False
        is_same = appearance_similarity(previous[None], scene[None]).item() >= _SAME_SCENE_SIMILARITY
        self.num_cuts += not is_same
        return is_same

    def _match_by_position(
        self, boxes: NDArray[np.float64], descriptors: NDArray[np.float32], pts_seconds: float, min_similarity: float
    ) -> dict[int, _Track]:
        """Return the tracks of faces by position, for pairs of at least `min_similarity`."""
        tracks = [track for track in self._tracks if self._is_current(track, pts_seconds)]
        if not tracks or not len(boxes):
            return {}
        affinity = box_affinity(np.array([track.predict_box(pts_seconds) for track in tracks]), boxes)
        similarity = appearance_similarity(np.array([track.descriptor for track in tracks]), descriptors)
        pairs = greedy_match(np.where((affinity > 0) & (similarity >= min_similarity), affinity + 2 * similarity, 0))
        return {face: tracks[track_index] for face, track_index in pairs.items()}

    def _match_by_appearance(
        self, descriptors: NDArray[np.float32], tracks_by_face: dict[int, _Track]
    ) -> dict[int, _Track]:
        """Return the tracks of unmatched faces by appearance alone."""
        matched = {track.track_id for track in tracks_by_face.values()}
        tracks = [track for track in self._tracks if track.track_id not in matched]
        unmatched = [face for face in range(len(descriptors)) if face not in tracks_by_face]
        if not tracks or not unmatched:
            return {}
        similarity = appearance_similarity(np.array([track.descriptor for track in tracks]), descriptors[unmatched])
        pairs = greedy_match(np.where(similarity >= _REIDENTIFY_SIMILARITY, similarity, 0))
        return {unmatched[face]: tracks[track_index] for face, track_index in pairs.items()}

    def _is_current(self, track: _Track, pts_seconds: float) -> bool:
        if track.last_update == self._updates:
            return True
        return pts_seconds - track.last_seen_seconds <= self._max_lost_seconds

    def _start_track(self, box: NDArray[np.float64], track_id: int | None = None) -> _Track:
        if track_id is None:
            track_id, self._next_id = self._next_id, self._next_id + 1
        track = _Track(track_id, box, np.zeros(0, np.float32), 0.0, 0)
        self._tracks.append(track)
        return track

    def _drop_oldest_lost(self) -> None:
        lost = sorted(track.last_update for track in self._tracks if track.last_update != self._updates)
        if len(lost) > _MAX_LOST_TRACKS:
            oldest_update = lost[-_MAX_LOST_TRACKS]
            self._tracks = [track for track in self._tracks if track.last_update >= oldest_update]


def box_affinity(tracks: NDArray[np.float64], boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Affinity (T, B) of tracks (T, 4) and boxes (B, 4): 1 + IoU if they overlap, else 0..1 by distance, 0 for none."""
    iou = box_iou(tracks, boxes)
    a, b = tracks[:, None], boxes[None]
    size_a, size_b = ((xyxy[..., 2:] - xyxy[..., :2]).max(-1).clip(1e-9) for xyxy in (a, b))
    centres = (a[..., :2] + a[..., 2:] - b[..., :2] - b[..., 2:]) / 2
    max_distance = _MAX_MOVE_SIDES * (size_a + size_b) / 2
    nearness = (1 - np.hypot(centres[..., 0], centres[..., 1]) / max_distance).clip(0)
    is_similar_size = np.maximum(size_a / size_b, size_b / size_a) <= _MAX_SIZE_RATIO
    affinity: NDArray[np.float64] = np.where(iou >= _MIN_IOU, 1 + iou, nearness * is_similar_size)
    return affinity


def greedy_match(affinity: NDArray[np.float64]) -> dict[int, int]:
    """Match boxes with tracks by falling affinity (T, B): {box: track}; ties: older track, then earlier box first."""
    pairs: dict[int, int] = {}
    matched: set[int] = set()
    for flat_index in np.argsort(-affinity, axis=None, kind="stable"):
        track, box = divmod(int(flat_index), affinity.shape[1])
        if affinity[track, box] <= 0:
            break
        if track not in matched and box not in pairs:
            pairs[box] = track
            matched.add(track)
    return pairs
