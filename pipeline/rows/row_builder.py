"""Frames of one input to record batches of the schema: detect, follow, cut, outline, compare, encode.

Three stages overlap, each in a thread of its own and one list of frames ahead of the next: reading what the decoder's
child sends, finding the faces, and making the rows, which is done in the caller's thread.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..dataset.schema import face_schema
from ..errors import UsageError
from ..faces import Faces
from ..faces.geometry.alignment import tilt_degrees
from ..faces.geometry.crop import CropSquare
from ..faces.geometry.hull import TemplateLandmarker
from ..faces.geometry.regions import region_boxes, sharpness
from ..faces.geometry.smoothing import FrameBoxes, smooth_boxes
from ..faces.identity.tracker import Tracker
from ..manipulation.mask import Difference, difference, encode_mask
from ..manipulation.source_frames import Found, Original, Twin, Twins
from ..planning.options import JobSpec
from ..sources import Entry
from ..video import Frame
from .prefetch import ahead

_BATCH_FRAMES = 16
HELD_PIXELS = 32 << 20
"""How many pixels of frames are gathered for the detector at most; one frame may have more.

Each of the three stages holds so many, the second and third once more where frames are compared with an original's.
"""


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    frame: Frame
    faces: Faces
    twin: Twin | None


class RowMaker:
    """Makes the rows of inputs, one input after the other; holds the detector, so one serves a whole process.

    `reading`: the thread on which frames are read, one for all inputs: a decoder's child ends with the thread that
    started it.
    """

    def __init__(self, job: JobSpec) -> None:
        self._detector = job.detector
        self._options = job.options
        self._landmarker = TemplateLandmarker()
        self.schema = face_schema(job.labels)
        self.reading = ThreadPoolExecutor(1, "facefeed-read")
        self._finding = ThreadPoolExecutor(1, "facefeed-find")

    def close(self) -> None:
        """Lets the threads go, for good, as soon as they are through with what they are at; does not wait for that."""
        self.reading.shutdown(wait=False)
        self._finding.shutdown(wait=False)

    def read(self, frames: Iterator[Frame]) -> Iterator[Frame]:
        """The frames, each of them read while the one before is at work."""
        with ahead(frames, self.reading) as read:
            yield from read

    def search(self, frames: Iterable[Frame]) -> Iterator[tuple[Frame, Found]]:
        """Each frame of a video with what is found in it, for the caller's thread to find."""
        tracker = Tracker()
        with ahead(self._gathered(frames), self.reading) as gathered:
            for few in gathered:
                for frame, faces in zip(few, self._detected([frame.rgb for frame in few]), strict=True):
                    yield frame, self._found(frame, faces, tracker)

    def _detected(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        found = self._detector.detect(frames)
        if len(found) != len(frames):
            told = f"{type(self._detector).__name__} gave {len(found)} answers for {len(frames)} frames"
            raise UsageError(f"{told}: must give one for each, in their order")
        return found

    def _gathered(self, frames: Iterable[Frame], not_searched: frozenset[int] = frozenset()) -> Iterator[list[Frame]]:
        """As many frames at a time as the detector likes, if they are small enough to be held.

        `not_searched`: indices of frames that are passed along with the others.
        """
        few: list[Frame] = []
        frames_at_once = self._detector.frames_at_once
        for frame in frames:
            if few and sum(one.rgb.size for one in [*few, frame]) > 3 * HELD_PIXELS:
                yield few
                few = []
            few.append(frame)
            if sum(one.frame_index not in not_searched for one in few) >= frames_at_once:
                yield few
                few = []
        if few:
            yield few

    def _found(self, frame: Frame, faces: Faces, tracker: Tracker) -> Found:
        kept = self._options.keep(faces)
        return Found(kept, tracker.update(frame.rgb, kept, frame.pts_seconds))

    def batches(
        self,
        entry: Entry,
        split: str,
        frames: Iterable[Frame],
        *,
        source: Original | None = None,
        keep_in: Original | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of `entry`, in the order of its frames, a few frames' worth at a time.

        `source`: the video that `entry` was made from. `keep_in`: where frames and faces are kept, for fakes to come;
        of its `extra` frames no rows are made.
        """
        options = self._options
        rows: list[dict[str, Any]] = []
        with ahead(self._seen(entry.video_id, frames, source, keep_in), self._finding) as lists:
            seen = chain.from_iterable(lists)
            for number, (one, framing) in enumerate(smooth_boxes(seen, options.margin) if options.smooth else seen, 1):
                rows += self._frame_rows(entry, split, one, framing)
                if number % _BATCH_FRAMES == 0 and rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=self.schema)
                    rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=self.schema)

    def _seen(
        self, video_id: str, frames: Iterable[Frame], source: Original | None, keep_in: Original | None
    ) -> Iterator[list[tuple[_Seen, FrameBoxes]]]:
        """Frames with their faces and, before any smoothing, what is to be cut of them.

        As long as this goes on, no one else may touch the two originals.
        """
        twins = Twins(source, video_id) if source else None
        tracker = Tracker(first_id=twins.next_track_id if twins and self._options.boxes == "source" else 0)
        extra = keep_in.extra if keep_in else frozenset[int]()
        not_searched = extra if self._options.boxes == "own" else frozenset[int]()
        with ahead(self._gathered(frames, not_searched), self.reading) as gathered:
            for few in gathered:
                searched = list(_without(not_searched, few, keep_in))
                pairs = [twins.of(frame) if twins else None for frame in searched]
                if twins and searched and not tracker.has_started:
                    self._introduce(tracker, searched[0], twins)
                looked_at = self._looked_at(searched, pairs, tracker, keep_in)
                yield [seen for seen in looked_at if seen[0].frame.frame_index not in extra]

    def _introduce(self, tracker: Tracker, frame: Frame, twins: Twins) -> None:
        """Has the people of the original known by their ids, for frames before the first that has a counterpart."""
        first = twins.first_with_faces(frame)
        if first is not None and (found := self._reused(first)) is not None:
            tracker.update_with_ids(first.rgb, found.faces, found.track_ids, frame.pts_seconds)

    def _looked_at(
        self, few: Sequence[Frame], pairs: Sequence[Twin | None], tracker: Tracker, keep_in: Original | None
    ) -> Iterator[tuple[_Seen, FrameBoxes]]:
        reused = [self._reused(twin) for twin in pairs]
        unknown = [frame.rgb for frame, known in zip(few, reused, strict=True) if known is None]
        detected = iter(self._detected(unknown))
        for frame, twin, known in zip(few, pairs, reused, strict=True):
            if known is not None:
                tracker.update_with_ids(frame.rgb, known.faces, known.track_ids, frame.pts_seconds)
            found = known or self._found(frame, next(detected), tracker)
            if keep_in is not None:
                keep_in.add(frame, found)
            yield _Seen(frame, found.faces, twin), self._framing(frame, found)

    def _framing(self, frame: Frame, found: Found) -> FrameBoxes:
        align = self._options.align
        tilts = np.array([tilt_degrees(points) if align else 0.0 for points in found.faces.landmarks], np.float64)
        return FrameBoxes(frame.pts_seconds, found.track_ids, found.faces.boxes_xyxy.astype(np.float64), tilts)

    def _reused(self, twin: Twin | None) -> Found | None:
        if twin is None or twin.found is None or self._options.boxes != "source":
            return None
        kept = self._options.keep.passing_indices(twin.found.faces)  # anew: a fake may be smaller than its original
        return Found(twin.found.faces.select(kept), twin.found.track_ids[kept])

    def _difference(self, seen: _Seen, square: CropSquare) -> Difference | None:
        if seen.twin is None:
            return None
        size_px, boxes_xyxy = self._options.size_px, seen.faces.boxes_xyxy
        return difference(seen.frame.rgb, seen.twin.rgb, square, size_px=size_px, faces_xyxy=boxes_xyxy)

    def _frame_rows(self, entry: Entry, split: str, seen: _Seen, framing: FrameBoxes) -> Iterator[dict[str, Any]]:
        options, frame, faces = self._options, seen.frame, seen.faces
        hulls = self._landmarker(frame.rgb, faces)
        squares = map(CropSquare.around, framing.boxes_xyxy, repeat(options.margin), framing.degrees)
        frame_height, frame_width = frame.rgb.shape[:2]
        for box, score, landmarks, hull, track_id, square in zip(
            faces.boxes_xyxy, faces.scores, faces.landmarks, hulls, framing.track_ids, squares, strict=True
        ):
            crop, scale = square.crop(frame.rgb, options.size_px)
            landmarks_in_crop = square.to_crop(landmarks, scale)
            hull_in_crop = square.to_crop(hull, scale)
            changed = self._difference(seen, square)
            image = options.image(crop)
            yield {
                "face_id": f"{entry.video_id}/{frame.frame_index}/{track_id}",
                "video_id": entry.video_id,
                "source_id": entry.source_id,
                "identity": entry.identity,
                "dataset": entry.dataset,
                "method": entry.method,
                "compression": entry.compression,
                "split": split,
                "label": entry.label,
                "frame_index": frame.frame_index,
                "pts_seconds": frame.pts_seconds,
                "frame_width": frame_width,
                "frame_height": frame_height,
                "track_id": int(track_id),
                "box_xyxy": box,
                "crop_xyxy": square.xyxy,
                "crop_degrees": square.degrees,
                "score": float(score),
                "landmarks": list(landmarks_in_crop),
                "hull": list(hull_in_crop),
                "hull_method": self._landmarker.name,
                "regions": region_boxes(landmarks_in_crop, hull_in_crop),
                "sharpness": sharpness(crop),
                "manipulated": changed.share if changed else None,
                "mask": encode_mask(changed.mask) if changed else None,
                "image": image,
                "image_crc32": zlib.crc32(image),
                "height": crop.shape[0],
                "width": crop.shape[1],
            }


def _without(indices: frozenset[int], frames: Iterable[Frame], keep_in: Original | None) -> Iterator[Frame]:
    """The other frames; those that are taken out are kept for the fakes that need them."""
    for frame in frames:
        if keep_in is not None and frame.frame_index in indices:
            keep_in.add(frame, None)
        else:
            yield frame
