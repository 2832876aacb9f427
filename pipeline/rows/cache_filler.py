"""`CacheFiller`: stores the frames of an original that its fakes need, and the faces that they take from there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ..faces import Faces
from ..faces.identity.appearance import Appearance
from ..faces.identity.tracker import Tracker
from ..manipulation.source_frames import SourceFrameCache, TrackedFaces
from ..video import Frame
from .face_search import Boxes, FaceSearch

_FaceIds = tuple[int, int | None]
"""Joint id of a face, and the own id that its joint track had in the latest own frame; None before its first one."""


@dataclass(frozen=True, slots=True, eq=False)
class _ExtraFrame:
    frame_index: int
    pts_seconds: float
    faces: Faces
    detected_xyxy: Boxes
    appearance: Appearance


class CacheFiller:
    """Stores frames of one original in `cache`: its own frames and extra ones, which fakes alone need.

    `search`: finds the faces of extra frames; None where fakes do not take the original's.

    The original's rows must be the same whichever fakes come with it, so its own tracker never sees extra frames; and a
    fake's rows whichever others come with it, so each set of extra frames that a fake needs has a tracker of its own.
    """

    def __init__(self, cache: SourceFrameCache, search: FaceSearch | None) -> None:
        self._cache, self._search = cache, search
        self._indices_of = {fake_id: cache.extra_indices_of(fake_id) for fake_id in cache.matches} if search else {}
        self._joint_tracks = {indices: _JointTracks() for indices in self._indices_of.values() if indices}
        self._waiting: deque[_ExtraFrame] = deque()

    def add(self, frame: Frame, tracked: TrackedFaces) -> None:
        """Stores an own frame; all extra frames before it have been added."""
        self._cache.add(frame, tracked)
        if not self._joint_tracks:
            return
        while self._waiting and self._waiting[0].frame_index < frame.frame_index:
            self._track_waiting()
        appearance = Appearance.of(frame.rgb, tracked.faces.boxes_xyxy)
        for joint_tracks in self._joint_tracks.values():
            joint_tracks.add(appearance, tracked, frame.pts_seconds)

    def add_extra(self, frame: Frame) -> None:
        """Stores an extra frame; it has its faces once all frames are added."""
        self._cache.add(frame, None)
        if self._search is None:
            return
        ((faces, detected_xyxy),) = self._search.faces([frame.rgb])
        appearance = Appearance.of(frame.rgb, faces.boxes_xyxy)
        self._waiting.append(_ExtraFrame(frame.frame_index, frame.pts_seconds, faces, detected_xyxy, appearance))

    def finish(self) -> None:
        """Stores the faces of extra frames."""
        while self._waiting:
            self._track_waiting()
        first_new_id = self._cache.next_own_id
        tracked = {indices: tracks.tracked_faces(first_new_id) for indices, tracks in self._joint_tracks.items()}
        for fake_id, indices in self._indices_of.items():
            self._cache.set_extra_faces(fake_id, tracked.get(indices, {}))

    def _track_waiting(self) -> None:
        extra = self._waiting.popleft()
        for indices, joint_tracks in self._joint_tracks.items():
            if extra.frame_index in indices:
                joint_tracks.add_extra(extra)


class _JointTracks:
    """Track ids of the faces in some extra frames, by a tracker that sees these and all own frames.

    The original's own tracker sees fewer frames, so it may split a joint track, or join two of them. A face has the own
    id that its joint track had in the latest own frame, else the one that it has in the first own frame after it;
    people who are in no own frame get new ids.
    """

    def __init__(self) -> None:
        self._tracker = Tracker()
        self._own_ids: dict[int, int] = {}  # of the latest own frame, by joint id
        self._first_own_ids: dict[int, int] = {}  # by joint id
        self._extra_faces: dict[int, tuple[Faces, list[_FaceIds], Boxes]] = {}  # by frame index

    def add(self, appearance: Appearance, tracked: TrackedFaces, pts_seconds: float) -> None:
        """Adds an own frame."""
        joint_ids = self._tracker.update_seen(appearance, tracked.faces, pts_seconds)
        for joint_id, own_id in zip(joint_ids.tolist(), tracked.track_ids.tolist(), strict=True):
            self._own_ids[joint_id] = own_id
            self._first_own_ids.setdefault(joint_id, own_id)

    def add_extra(self, extra: _ExtraFrame) -> None:
        """Adds an extra frame; frames are added in order."""
        joint_ids = self._tracker.update_seen(extra.appearance, extra.faces, extra.pts_seconds).tolist()
        face_ids = [(joint_id, self._own_ids.get(joint_id)) for joint_id in joint_ids]
        self._extra_faces[extra.frame_index] = extra.faces, face_ids, extra.detected_xyxy

    def tracked_faces(self, first_new_id: int) -> dict[int, TrackedFaces]:
        """The faces of all extra frames, by frame index; `first_new_id`: above all own ids."""
        new_ids: dict[int, int] = {}  # by joint id
        tracked: dict[int, TrackedFaces] = {}
        for frame_index, (faces, face_ids, detected_xyxy) in self._extra_faces.items():
            ids: list[int] = []
            for joint_id, own_id in face_ids:
                track_id = self._first_own_ids.get(joint_id) if own_id is None else own_id
                if track_id is None or track_id in ids:  # two joint tracks may be one in own frames
                    track_id = new_ids.setdefault(joint_id, first_new_id + len(new_ids))
                ids.append(track_id)
            tracked[frame_index] = TrackedFaces(faces, np.array(ids, np.int32), detected_xyxy)
        return tracked
