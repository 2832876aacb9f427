"""Frames of one input to record batches of the schema: detect, follow, cut, outline, encode."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from .faces.crop import crop_square, cut, to_crop
from .faces.hull import TemplateLandmarker
from .faces.regions import regions, sharpness
from .faces.track import Tracker
from .job import Job
from .schema import face_schema
from .sources import Entry
from .video import Frame

_BATCH_FRAMES = 16


class RowMaker:
    """Makes the rows of inputs, one input after the other; holds the detector, so one serves a whole process."""

    def __init__(self, job: Job) -> None:
        self._detector = job.detector
        self._options = job.options
        self._landmarker = TemplateLandmarker()
        self.schema = face_schema(job.labels)

    def batches(self, entry: Entry, split: str, frames: Iterable[Frame]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of `entry`, in the order of its frames, a few frames' worth at a time."""
        tracker = Tracker()
        rows: list[dict[str, Any]] = []
        for number, frame in enumerate(frames, 1):
            rows += self._frame_rows(entry, split, frame, tracker)
            if number % _BATCH_FRAMES == 0 and rows:
                yield pa.RecordBatch.from_pylist(rows, schema=self.schema)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=self.schema)

    def _frame_rows(self, entry: Entry, split: str, frame: Frame, tracker: Tracker) -> Iterator[dict[str, Any]]:
        options = self._options
        faces = options.keep(self._detector.detect(frame.rgb))
        track_ids = tracker.update(faces.boxes_xyxy, frame.pts_seconds)
        hulls = self._landmarker(frame.rgb, faces)
        frame_height, frame_width = frame.rgb.shape[:2]
        for box, score, landmarks, hull, track_id in zip(
            faces.boxes_xyxy, faces.scores, faces.landmarks, hulls, track_ids, strict=True
        ):
            x0, y0, side = crop_square(box, options.margin)
            crop, scale = cut(frame.rgb, x0, y0, side, options.size_px)
            landmarks_in_crop = to_crop(landmarks, x0, y0, scale)
            hull_in_crop = to_crop(hull, x0, y0, scale)
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
                "crop_xyxy": np.array([x0, y0, x0 + side, y0 + side], np.float32),
                "score": float(score),
                "landmarks": list(landmarks_in_crop),
                "hull": list(hull_in_crop),
                "hull_method": self._landmarker.name,
                "regions": regions(landmarks_in_crop, hull_in_crop),
                "sharpness": sharpness(crop),
                "manipulated": None,
                "mask": None,
                "image": image,
                "image_crc32": zlib.crc32(image),
                "height": crop.shape[0],
                "width": crop.shape[1],
            }
