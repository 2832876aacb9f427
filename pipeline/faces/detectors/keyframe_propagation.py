"""Detection on adaptive keyframes with propagation: full search in keyframes, search in ROIs in the frames between.

Shots are split into segments. Both ends of a segment (keyframes) are searched completely; in the frames between, faces
are searched only in ROIs interpolated between the two ends. A segment where that fails is split in half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from ..detection import Faces
from ..geometry.overlap import box_iou
from ..identity.tracker import box_affinity, greedy_match
from .cascade.rois import Rois

Rgb = NDArray[np.uint8]
Boxes = NDArray[np.float32]

_MAX_SEGMENT_FRAMES: Final = 21
"""Maximum length of a segment in frames."""
_MIN_SEGMENT_FRAMES: Final = 5
"""Segments of this length or less are not split further."""
_MAX_SEGMENT_CHANGE: Final = 2.0
"""Maximum change within a segment: the sum over its frames of 1 minus the correlation with the previous frame."""
_CERTAIN_SCORE: Final = 0.95
"""A face above this score is certain: if it is missed, the segment is split or the face is pursued."""
_MIN_SHOT_CORRELATION: Final = 0.4
"""Minimum correlation of consecutive frames of a shot: real cuts have .25 or less, fast pans .54 or more."""
_MIN_MOTION_RESPONSE: Final = 0.2
"""Minimum response of a phase correlation to be trusted."""
_THUMBNAIL_SIZE: Final = (64, 48)
_HANNING_WINDOW: Final = cv2.createHanningWindow(_THUMBNAIL_SIZE, cv2.CV_32F)
_THUMBNAIL_NOISE: Final = 2.0
"""Standard deviation of noise in grey levels: uniform frames correlate with each other."""
_SAME_FACE_IOU: Final = 0.4
"""Detections that overlap by more than this are the same face."""


class FrameSearch(Protocol):
    """Detects faces in the frames of one call, which are given by index."""

    def detect_full(self, frame_indices: Sequence[int]) -> list[Faces]:
        """Return the faces of each frame by a full search."""
        ...

    def detect_in_rois(self, rois: Rois) -> dict[int, Faces]:
        """Return the faces near ROIs, for each frame that has ROIs."""
        ...


@dataclass(frozen=True, slots=True)
class _Segment:
    """A range of frames with a keyframe at both ends, `first` and `last`."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def inside(self) -> range:
        return range(self.first + 1, self.last)

    def halves(self) -> list[_Segment]:
        middle = (self.first + self.last) // 2
        return [_Segment(self.first, middle), _Segment(middle, self.last)]


def detect_with_propagation(frames: Sequence[Rgb], search: FrameSearch) -> list[Faces]:
    """Return the faces of each frame of one video.

    Args:
        frames: upright RGB frames (H, W, 3) uint8, in order.
        search: detects faces in these frames.

    """
    analysis = _ShotAnalysis(frames)
    segments = [segment for shot in analysis.shots() for segment in analysis.segments_of(shot)]
    frame_indices = sorted({frame_index for segment in segments for frame_index in (segment.first, segment.last)})
    faces_by_frame = dict(zip(frame_indices, search.detect_full(frame_indices), strict=True))
    segments = [segment for segment in segments if len(segment) > 1]
    propagated: list[_Segment] = []
    while segments:
        detections, to_split = _propagate(segments, faces_by_frame, analysis, search)
        faces_by_frame |= detections
        propagated += [
            segment for segment in segments if len(segment) > _MIN_SEGMENT_FRAMES and segment not in to_split
        ]
        middles = [(segment.first + segment.last) // 2 for segment in to_split]
        faces_by_frame |= dict(zip(middles, search.detect_full(middles), strict=True))
        segments = [half for segment in to_split for half in segment.halves() if len(half) > 1]
    ends = {frame_index for segment in propagated for frame_index in (segment.first, segment.last)}
    _refine_keyframes(ends, faces_by_frame, search)
    return [faces_by_frame[frame_index] for frame_index in range(len(frames))]


def _refine_keyframes(keyframes: set[int], faces_by_frame: dict[int, Faces], search: FrameSearch) -> None:
    """Search ROIs at the certain faces of keyframes too, so that boxes do not jump between the two kinds of search."""
    rois = []
    for frame_index in sorted(keyframes):
        faces = faces_by_frame[frame_index]
        boxes = faces.boxes_xyxy[faces.scores > _CERTAIN_SCORE]
        rois.append((np.full(len(boxes), frame_index), boxes, np.ones(len(boxes), bool)))
    for frame_index, faces in _detect_in_rois(search, rois).items():
        faces_by_frame[frame_index] = _merge(faces, faces_by_frame[frame_index])


class _ShotAnalysis:
    """Cuts, camera motion and amount of change, computed from thumbnails of the frames."""

    def __init__(self, frames: Sequence[Rgb]) -> None:
        self._shapes = [rgb.shape for rgb in frames]
        self._thumbnails = [_thumbnail(rgb) for rgb in frames]
        self._correlations = np.array([1.0, *(self._correlation(frame_index) for frame_index in range(1, len(frames)))])

    def shots(self) -> list[_Segment]:
        """Split the frames at cuts and at changes of frame size."""
        cuts = np.flatnonzero(self._correlations < _MIN_SHOT_CORRELATION).tolist()
        return [_Segment(first, end - 1) for first, end in pairwise([0, *cuts, len(self._thumbnails)])]

    def segments_of(self, shot: _Segment) -> list[_Segment]:
        """Split a shot into equal segments, so that none is too long or changes too much."""
        change = float((1 - self._correlations[shot.first + 1 : shot.last + 1]).sum())
        count = max(1, min(len(shot), math.ceil(max(len(shot) / _MAX_SEGMENT_FRAMES, change / _MAX_SEGMENT_CHANGE))))
        edges = [shot.first + round(len(shot) * part / count) for part in range(count + 1)]
        return [_Segment(first, last) for first, last in pairwise(edges)]

    def motion(self, segment: _Segment) -> Boxes:
        """Return the camera motion over a segment in `frame` px as (x, y, x, y); 0 if unknown."""
        before, after = self._thumbnails[segment.first], self._thumbnails[segment.last]
        shift, response = cv2.phaseCorrelate(before, after, _HANNING_WINDOW)
        if response < _MIN_MOTION_RESPONSE:
            return np.zeros(4, np.float32)
        height, width, _ = self._shapes[segment.first]
        scale = np.tile([width / _THUMBNAIL_SIZE[0], height / _THUMBNAIL_SIZE[1]], 2).astype(np.float32)
        return np.array(shift * 2, np.float32) * scale

    def _correlation(self, frame_index: int) -> float:
        """Return the correlation of a frame with the previous one; -1 if their sizes differ."""
        if self._shapes[frame_index] != self._shapes[frame_index - 1]:
            return -1.0
        before, after = self._thumbnails[frame_index - 1], self._thumbnails[frame_index]
        noise = before.size * _THUMBNAIL_NOISE**2
        return float(((before * after).sum() + noise) / (np.linalg.norm(before) * np.linalg.norm(after) + noise))


def _thumbnail(rgb: Rgb) -> NDArray[np.float32]:
    """Return the green channel, as an approximation of grey, resized to a thumbnail minus its mean."""
    step = max(1, min(rgb.shape[:2]) // (2 * min(_THUMBNAIL_SIZE)))
    thinned = np.ascontiguousarray(rgb[::step, ::step, 1])
    thumbnail: NDArray[np.float32] = cv2.resize(thinned, _THUMBNAIL_SIZE, interpolation=cv2.INTER_AREA).astype(
        np.float32
    )
    return thumbnail - np.float32(thumbnail.mean())


@dataclass(frozen=True, slots=True)
class _ExpectedFaces:
    """ROIs of a segment.

    `frame_indices` (M,) and `boxes` (M, 4): the ROIs. `is_required` (M,): whether a face must be found there.
    `pursuits`: certain faces that appear or disappear within the segment.
    """

    frame_indices: NDArray[np.int64]
    boxes: Boxes
    is_required: NDArray[np.bool_]
    pursuits: list[_Pursuit]


@dataclass(frozen=True, slots=True)
class _Pursuit:
    """A face that is followed from frame to frame, forwards or backwards.

    `frame`: where it is searched next, at `box`; `step`: 1 or -1; `end`: the frame to stop before; `motion`: per frame.
    """

    frame: int
    step: int
    end: int
    box: Boxes
    motion: Boxes

    def advanced(self, box: Boxes) -> _Pursuit:
        """Continue to the next frame from the detected `box`, with the motion from the previous frame."""
        motion = box - (self.box - self.motion)
        return _Pursuit(self.frame + self.step, self.step, self.end, box + motion, motion)


def _propagate(
    segments: Sequence[_Segment], faces_by_frame: dict[int, Faces], analysis: _ShotAnalysis, search: FrameSearch
) -> tuple[dict[int, Faces], list[_Segment]]:
    """Search the inner frames of segments; return their faces by frame, and the segments to split."""
    expected_by_segment, to_split = dict[_Segment, _ExpectedFaces](), list[_Segment]()
    for segment in segments:
        first, last = faces_by_frame[segment.first], faces_by_frame[segment.last]
        expected = _interpolate(segment, first, last, analysis.motion(segment))
        if expected is None:
            to_split.append(segment)
        else:
            expected_by_segment[segment] = expected
    rois = [(expected.frame_indices, expected.boxes, expected.is_required) for expected in expected_by_segment.values()]
    faces_in_rois = _detect_in_rois(search, rois)
    detections, pursuits = dict[int, Faces](), list[_Pursuit]()
    for segment, expected in expected_by_segment.items():
        segment_faces = {frame_index: faces_in_rois.get(frame_index, Faces.empty()) for frame_index in segment.inside()}
        if len(segment) > _MIN_SEGMENT_FRAMES and any(
            _misses_any(faces, expected.boxes[expected.is_required & (expected.frame_indices == frame_index)])
            for frame_index, faces in segment_faces.items()
        ):
            to_split.append(segment)
        else:
            detections |= segment_faces
            pursuits += expected.pursuits
    _pursue(pursuits, detections, search)
    return detections, to_split


def _interpolate(segment: _Segment, first: Faces, last: Faces, motion: Boxes) -> _ExpectedFaces | None:
    """Return the ROIs of a segment, on the straight line between each face's boxes in its first and last frame.

    A certain face that appears or disappears is pursued; an uncertain one is searched where it would be if it moved
    with the camera, by `motion` (4,) over the segment. Returns None if a certain face appears or disappears and the
    segment is long enough to be split.
    """
    pairs = _match_boxes(first.boxes_xyxy + motion, last.boxes_xyxy)
    in_last, in_first = np.array(list(pairs), np.intp), np.array(list(pairs.values()), np.intp)
    only_first, only_last = (
        faces.select(np.setdiff1d(np.arange(len(faces)), matched))
        for faces, matched in ((first, in_first), (last, in_last))
    )
    step_motion = (motion / len(segment)).astype(np.float32)
    pursuits = [
        _Pursuit(start + step, step, end, box + step * step_motion, step * step_motion)
        for faces, start, end, step in (
            (only_first, segment.first, segment.last, 1),
            (only_last, segment.last, segment.first, -1),
        )
        for box in faces.boxes_xyxy[faces.scores > _CERTAIN_SCORE]
    ]
    if pursuits and len(segment) > _MIN_SEGMENT_FRAMES:
        return None
    disappearing, appearing = (faces.boxes_xyxy[faces.scores <= _CERTAIN_SCORE] for faces in (only_first, only_last))
    start = np.concatenate([first.boxes_xyxy[in_first], disappearing, appearing - motion])
    end = np.concatenate([last.boxes_xyxy[in_last], disappearing + motion, appearing])
    is_required = np.zeros(len(start), bool)
    is_required[: len(in_first)] = np.minimum(first.scores[in_first], last.scores[in_last]) > _CERTAIN_SCORE
    inside = np.array(segment.inside())
    fraction = ((inside - segment.first) / len(segment)).astype(np.float32)[:, None, None]
    boxes = (1 - fraction) * start + fraction * end
    frame_indices = inside.repeat(len(start))
    return _ExpectedFaces(frame_indices, boxes.reshape(-1, 4), np.tile(is_required, len(inside)), pursuits)


def _pursue(pursuits: list[_Pursuit], detections: dict[int, Faces], search: FrameSearch) -> None:
    """Add the faces found by the pursuits to `detections`; a pursuit continues if it loses its face in a frame."""
    while pursuits:
        frame_indices = np.array([pursuit.frame for pursuit in pursuits])
        boxes = np.array([pursuit.box for pursuit in pursuits])
        faces_in_rois = _detect_in_rois(search, [(frame_indices, boxes, np.ones(len(pursuits), bool))])
        advanced = []
        for pursuit in pursuits:
            faces = faces_in_rois[pursuit.frame]
            detections[pursuit.frame] = _merge(detections[pursuit.frame], faces)
            pairs = _match_boxes(pursuit.box[None], faces.boxes_xyxy)
            advanced.append(pursuit.advanced(faces.boxes_xyxy[next(iter(pairs))] if pairs else pursuit.box))
        pursuits = [pursuit for pursuit in advanced if pursuit.frame != pursuit.end]


def _detect_in_rois(
    search: FrameSearch, rois: list[tuple[NDArray[np.int64], Boxes, NDArray[np.bool_]]]
) -> dict[int, Faces]:
    if not sum(len(frame_indices) for frame_indices, *_ in rois):
        return {}
    return search.detect_in_rois(Rois(*(np.concatenate(arrays) for arrays in zip(*rois, strict=True))))


def _misses_any(faces: Faces, boxes: Boxes) -> bool:
    """Return whether there is no face near one of the boxes (M, 4)."""
    rois = Rois(np.zeros(len(boxes), np.int64), boxes, np.ones(len(boxes), bool))
    roi_indices = np.repeat(np.arange(len(boxes)), len(faces))
    is_near = rois.are_near(roi_indices, np.tile(faces.boxes_xyxy, (len(boxes), 1))).reshape(len(boxes), len(faces))
    return not bool(is_near.any(axis=1).all())


def _match_boxes(expected: Boxes, detected: Boxes) -> dict[int, int]:
    """Match detected with expected boxes: {index in `detected`: index in `expected`}."""
    return greedy_match(box_affinity(expected.astype(np.float64), detected.astype(np.float64)))


def _merge(faces: Faces, added: Faces) -> Faces:
    """Return `faces` and those of `added` that are not among them, by descending score."""
    iou = box_iou(added.boxes_xyxy, faces.boxes_xyxy)
    new = added.select(iou.max(axis=1, initial=0) <= _SAME_FACE_IOU)
    boxes, scores, landmarks = (
        np.concatenate([getattr(part, name) for part in (faces, new)]) for name in ("boxes_xyxy", "scores", "landmarks")
    )
    order = np.argsort(-scores, kind="stable")
    return Faces(boxes[order], scores[order], landmarks[order])
