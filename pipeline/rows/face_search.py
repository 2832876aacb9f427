"""`FaceSearch`: which faces of a frame become rows, and their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..faces import FaceDetector, FaceFilter, Faces
from ..faces.detection import run_detector
from ..faces.landmarks import FaceShape
from ..planning.options import JobSpec

Frames = Sequence[NDArray[np.uint8]]
Boxes = NDArray[np.float32]
"""(M, 4), `frame` px: all detected faces of a frame, also those that are not kept."""
LocatedFaces = tuple[Faces, list[FaceShape], Boxes]
"""The faces of a frame to keep, their shapes, and the boxes of all detected ones."""


class FaceSearch:
    """Detects the faces of frames, keeps those that pass `keep`, and locates their landmarks.

    Holds the detector and the landmarker, so one serves a whole process; not thread-safe, as these are not.
    """

    def __init__(self, job: JobSpec, detector: FaceDetector, keep: FaceFilter) -> None:
        self._detector, self._landmarker, self.keep = detector, job.landmarker, keep
        self._min_landmark_score = job.options.min_landmark_score

    @property
    def frames_at_once(self) -> int:
        """The detector's preferred number of frames."""
        return self._detector.frames_at_once

    def __call__(self, frames: Frames) -> list[LocatedFaces]:
        """The faces to keep of each frame, with their shapes."""
        detections = run_detector(self._detector, frames)
        boxes = [faces.boxes_xyxy for faces in detections]
        if not self._min_landmark_score:
            kept = [self.keep(faces) for faces in detections]
            return list(zip(kept, self.shapes(frames, kept), boxes, strict=True))
        # The most confident ones are chosen among those that pass.
        candidates = [replace(self.keep, max_faces=None)(faces) for faces in detections]
        shapes = self.shapes(frames, candidates)
        return [
            (*self._passing(faces, of_faces), detected)
            for faces, of_faces, detected in zip(candidates, shapes, boxes, strict=True)
        ]

    def faces(self, frames: Frames) -> list[tuple[Faces, Boxes]]:
        """The faces to keep of each frame, and the boxes of all detected ones."""
        if self._min_landmark_score:
            return [(faces, detected) for faces, _, detected in self(frames)]
        return [(self.keep(faces), faces.boxes_xyxy) for faces in run_detector(self._detector, frames)]

    def shapes_of_known_faces(self, rgb: NDArray[np.uint8], faces: Faces) -> tuple[NDArray[np.intp], list[FaceShape]]:
        """The indices of those of a frame's known faces that pass, and their shapes."""
        (shapes,) = self.shapes([rgb], [faces])
        indices = self._passing_indices(shapes)
        return indices, [shapes[index] for index in indices]

    def shapes(self, frames: Frames, faces: Sequence[Faces]) -> list[list[FaceShape]]:
        """The shapes of known faces; raises `UsageError` where a landmarker of the user's breaks its contract."""
        shapes = self._landmarker.locate(frames, faces)
        if [len(in_frame) for in_frame in shapes] != [len(in_frame) for in_frame in faces]:
            given, wanted = sum(map(len, shapes)), sum(map(len, faces))
            problem = f"{type(self._landmarker).__name__} gave {given} shapes for {wanted} faces"
            raise UsageError(f"{problem} of {len(frames)} frames: must give one for each, in their order")
        return shapes

    def _passing(self, faces: Faces, shapes: list[FaceShape]) -> tuple[Faces, list[FaceShape]]:
        indices = self._passing_indices(shapes)
        indices = indices[self.keep.passing_indices(faces.select(indices))]
        return faces.select(indices), [shapes[index] for index in indices]

    def _passing_indices(self, shapes: list[FaceShape]) -> NDArray[np.intp]:
        if not self._min_landmark_score:
            return np.arange(len(shapes))
        scores = np.array([np.inf if shape.score is None else shape.score for shape in shapes])
        return np.flatnonzero(scores >= self._min_landmark_score)
