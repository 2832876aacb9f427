"""`CacheFiller`: stores the frames of an original that its fakes need, and the faces that they take from there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..faces import Faces
from ..faces.identity.appearance import Appearance
from ..faces.identity.tracker import Tracker
from ..manipulation.source_frames import SourceFrameCache, TrackedFaces
from ..video import Frame
from .face_search import FaceSearch


@dataclass(frozen=True, slots=True, eq=False)
class _ExtraFrame:
    frame_index: int
    pts_seconds: float
    faces: Faces
    appearance: Appearance


class CacheFiller:
    """Stores frames of one original in `cache`: its own frames and extra ones, which fakes alone need.

    `search`: finds the faces of extra frames; None where fakes do not take the original's.

    The original's rows must be the same whichever fakes come with it, so its own tracker never sees extra frames. A
    second tracker sees all frames; whom it knows from own frames has that id in extra frames too, others get new ids.
    """

    def __init__(self, cache: SourceFrameCache, search: FaceSearch | None) -> None:
        self._cache, self._search = cache, search if cache.extra_indices else None
        self._tracker = Tracker()
        self._waiting: deque[_ExtraFrame] = deque()
        self._tracked: dict[int, TrackedFaces] = {}  # of extra frames, with the ids of `_tracker`
        self._own_ids: dict[int, int] = {}  # by the id of `_tracker`
        self._new_ids: dict[int, int] = {}  # by the id of `_tracker`
        self._next_id = 0  # above all of own frames

    def add(self, frame: Frame, tracked: TrackedFaces) -> None:
        """Stores an own frame; all extra frames before it have been added."""
        self._cache.add(frame, tracked)
        if self._search is None:
            return
        while self._waiting and self._waiting[0].frame_index < frame.frame_index:
            self._track_waiting()
        ids = self._tracker.update(frame.rgb, tracked.faces, frame.pts_seconds)
        for joint_id, own_id in zip(ids.tolist(), tracked.track_ids.tolist(), strict=True):
            self._own_ids.setdefault(joint_id, own_id)
            self._next_id = max(self._next_id, own_id + 1)

    def add_extra(self, frame: Frame) -> None:
        """Stores an extra frame; it has its faces once all frames are added."""
        self._cache.add(frame, None)
        if self._search is None:
            return
        (faces,) = self._search.faces([frame.rgb])
        appearance = Appearance.of(frame.rgb, faces.boxes_xyxy)
        self._waiting.append(_ExtraFrame(frame.frame_index, frame.pts_seconds, faces, appearance))

    def finish(self) -> None:
        """Stores the faces of extra frames."""
        while self._waiting:
            self._track_waiting()
        for frame_index, tracked in self._tracked.items():
            ids = self._final_ids(tracked.track_ids)
            self._cache.set_faces(frame_index, TrackedFaces(tracked.faces, ids))

    def _track_waiting(self) -> None:
        extra = self._waiting.popleft()
        ids = self._tracker.update_seen(extra.appearance, extra.faces, extra.pts_seconds)
        self._tracked[extra.frame_index] = TrackedFaces(extra.faces, ids)

    def _final_ids(self, joint_ids: NDArray[np.int32]) -> NDArray[np.int32]:
        ids: list[int] = []
        for joint_id in joint_ids.tolist():
            track_id = self._own_ids.get(joint_id)
            if track_id is None or track_id in ids:  # two of its tracks may be one in own frames
                track_id = self._new_ids.setdefault(joint_id, self._next_id + len(self._new_ids))
            ids.append(track_id)
        return np.array(ids, np.int32)
