"""Builds record batches from the frames of one input: detect, track, crop, hull, mask, encode.

Three stages overlap, each on a thread of its own and one batch of frames ahead of the next: reading frames from the
decoder process, detecting faces, and building the rows, which runs on the caller's thread.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ..dataset.image_codec import encode_mask
from ..dataset.schema import WHOLE_FRAME_HULL, face_schema
from ..faces import Faces
from ..faces.detectors.by_name import whole_frame_detector, whole_frame_filter
from ..faces.geometry.alignment import tilt_degrees
from ..faces.geometry.crop import CropSquare
from ..faces.geometry.regions import sharpness
from ..faces.geometry.smoothing import FrameBoxes, smooth_boxes
from ..faces.identity.tracker import Tracker
from ..faces.landmarks import FaceShape
from ..manipulation.mask import FrameComparison, ManipulationMask
from ..manipulation.own_masks import OwnMaskFrames, crop_own_mask
from ..manipulation.source_frames import AlignedSourceFrame, AlignedSourceFrames, SourceFrameCache, TrackedFaces
from ..planning.options import JobSpec
from ..sources import Entry
from ..video import Frame
from .cache_filler import CacheFiller
from .face_search import Boxes, FaceSearch
from .frame_batches import frame_batches
from .landmark_columns import dense_columns, points_columns
from .prefetch import prefetch_one

_BATCH_FRAMES = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _FrameFaces:
    frame: Frame
    tracked: TrackedFaces
    shapes: list[FaceShape]
    source_frame: AlignedSourceFrame | None


class RowBuilder:
    """Builds the rows of inputs, one input after the other; holds the models, so one serves a whole process.

    `read_executor`: its one thread reads all inputs, since a decoder process ends with the thread that started it.
    """

    def __init__(self, job: JobSpec) -> None:
        self._search = FaceSearch(job, job.detector, job.options.keep)
        self._whole_frame_search = FaceSearch(job, whole_frame_detector(), whole_frame_filter(job.options.keep))
        self._options = job.options
        self._columns = tuple(job.columns)
        self._has_dense_landmarks = job.landmarker.is_dense
        self.schema = face_schema(job.labels, job.schema, job.columns, has_dense_landmarks=self._has_dense_landmarks)
        self.read_executor = ThreadPoolExecutor(1, "facefeed-read")
        self._detect_executor = ThreadPoolExecutor(1, "facefeed-detect")

    def close(self) -> None:
        """Shuts the threads down once their current items are done, without waiting for that."""
        self.read_executor.shutdown(wait=False)
        self._detect_executor.shutdown(wait=False)

    def read(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a function of a reader on the thread that reads."""
        return self.read_executor.submit(function, *arguments).result()

    def prefetched(self, frames: Iterator[Frame]) -> Generator[Frame, None, None]:
        """Yields `frames`, each of them read while the one before is processed."""
        with prefetch_one(frames, self.read_executor) as prefetched:
            yield from prefetched

    def fill_cache(self, cache: SourceFrameCache, frames: Iterator[Frame]) -> None:
        """Stores the frames of a source that gives no rows now, with its faces where fakes take these.

        Detects and tracks them on the caller's thread.
        """
        if self._options.boxes != "source":
            with closing(self.prefetched(frames)) as prefetched:
                for frame in prefetched:
                    cache.add(frame, None)
            return
        tracker, search = Tracker(), self._search_of(cache.whole_frame)
        filler = CacheFiller(cache, search)
        with prefetch_one(self._detector_batches(frames, cache.extra_indices), self.read_executor) as batches:
            for batch in batches:
                if batch[0].frame_index in cache.extra_indices:
                    filler.add_extra(*batch)
                    continue
                for frame, found in zip(batch, search.faces([frame.rgb for frame in batch]), strict=True):
                    filler.add(frame, _track(frame, *found, tracker))
        filler.finish()

    def _detector_batches(self, frames: Iterable[Frame], extra_indices: frozenset[int]) -> Iterator[list[Frame]]:
        return frame_batches(frames, self._search.frames_at_once, extra_indices)

    def batches(
        self,
        entry: Entry,
        split: str,
        frames: Iterable[Frame],
        *,
        source_cache: SourceFrameCache | None = None,
        own_cache: SourceFrameCache | None = None,
        own_mask: OwnMaskFrames | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of `entry` in the order of its frames, as record batches of a few frames each.

        Args:
            entry: the input.
            split: the split that its rows go into.
            frames: its frames, in order.
            source_cache: frames of the video that `entry` was made from.
            own_cache: stores frames and faces of `entry` for its fakes; its `extra_indices` give no rows.
            own_mask: what the set says is manipulated in `entry`, in place of a comparison.

        """
        options, input_columns = self._options, self._input_columns(entry, split)
        rows: list[dict[str, Any]] = []
        with prefetch_one(self._analyze(entry, frames, source_cache, own_cache), self._detect_executor) as batches:
            analyzed = chain.from_iterable(batches)
            for number, (frame_faces, frame_boxes) in enumerate(
                smooth_boxes(analyzed, self._margin(entry)) if options.smooth else analyzed, 1
            ):
                rows += self._frame_rows(entry, input_columns, frame_faces, frame_boxes, own_mask)
                if number % _BATCH_FRAMES == 0 and rows:
                    yield pa.RecordBatch.from_pylist(rows, schema=self.schema)
                    rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=self.schema)

    def _analyze(
        self,
        entry: Entry,
        frames: Iterable[Frame],
        source_cache: SourceFrameCache | None,
        own_cache: SourceFrameCache | None,
    ) -> Iterator[list[tuple[_FrameFaces, FrameBoxes]]]:
        """Yields batches of frames with their faces and the boxes to crop, before any smoothing.

        Until it ends, no other thread may use the two caches.
        """
        source_frames = AlignedSourceFrames(source_cache, entry.video_id) if source_cache else None
        search = self._search_of(entry.whole_frame)
        reuses_boxes = self._options.boxes == "source"
        tracker = Tracker(first_id=source_frames.next_track_id if source_frames and reuses_boxes else 0)
        filler = CacheFiller(own_cache, search if reuses_boxes else None) if own_cache else None
        extra_indices = own_cache.extra_indices if own_cache else frozenset[int]()
        with prefetch_one(self._detector_batches(frames, extra_indices), self.read_executor) as batches:
            for batch in batches:
                if filler and batch[0].frame_index in extra_indices:
                    filler.add_extra(*batch)
                    continue
                matching = [source_frames.for_frame(frame) if source_frames else None for frame in batch]
                if source_frames and not tracker.has_started:
                    self._seed_tracker(search, tracker, batch[0], source_frames)
                yield list(self._analyze_batch(search, batch, matching, tracker, filler))
        if filler:
            filler.finish()

    def _seed_tracker(self, search: FaceSearch, tracker: Tracker, frame: Frame, sources: AlignedSourceFrames) -> None:
        """Gives the tracker the source's people and ids, for frames before the first that has a matching frame."""
        first = sources.first_with_faces(frame)
        if first is not None and (tracked := self._source_faces(search, first)) is not None:
            tracker.update_with_ids(first.rgb, tracked.faces, tracked.track_ids, frame.pts_seconds)

    def _analyze_batch(
        self,
        search: FaceSearch,
        batch: Sequence[Frame],
        source_frames: Sequence[AlignedSourceFrame | None],
        tracker: Tracker,
        filler: CacheFiller | None,
    ) -> Iterator[tuple[_FrameFaces, FrameBoxes]]:
        reused = [self._source_faces(search, source_frame) for source_frame in source_frames]
        to_search = [frame.rgb for frame, known in zip(batch, reused, strict=True) if known is None]
        located = iter(search(to_search))
        for frame, source_frame, known in zip(batch, source_frames, reused, strict=True):
            if known is not None:
                passing, shapes = search.shapes_of_known_faces(frame.rgb, known.faces)
                tracked = known.select(passing)
                tracker.update_with_ids(frame.rgb, tracked.faces, tracked.track_ids, frame.pts_seconds)
            else:
                faces, shapes, detected_xyxy = next(located)
                tracked = _track(frame, faces, detected_xyxy, tracker)
            if filler is not None:
                filler.add(frame, tracked)
            frame_boxes = self._frame_boxes(frame, tracked, tracker.num_cuts)
            yield _FrameFaces(frame, tracked, shapes, source_frame), frame_boxes

    def _search_of(self, whole_frame: bool) -> FaceSearch:
        return self._whole_frame_search if whole_frame else self._search

    def _margin(self, entry: Entry) -> float:
        return 0.0 if entry.whole_frame else self._options.margin

    def _frame_boxes(self, frame: Frame, tracked: TrackedFaces, num_cuts: int) -> FrameBoxes:
        align, boxes_xyxy = self._options.align, tracked.faces.boxes_xyxy.astype(np.float64)
        tilts = np.array([tilt_degrees(points) if align else 0.0 for points in tracked.faces.landmarks], np.float64)
        shot = num_cuts, frame.height, frame.width
        return FrameBoxes(frame.pts_seconds, tracked.track_ids, boxes_xyxy, tilts, shot)

    def _source_faces(self, search: FaceSearch, source_frame: AlignedSourceFrame | None) -> TrackedFaces | None:
        """The source's faces, where a fake's are taken from there (`boxes="source"`)."""
        if source_frame is None or source_frame.tracked is None or self._options.boxes != "source":
            return None
        tracked = source_frame.tracked
        kept = search.keep.passing_indices(tracked.faces)  # filtered anew: a fake may be smaller than its source
        return tracked.select(kept)

    def _masks(
        self,
        frame_faces: _FrameFaces,
        frame_boxes: FrameBoxes,
        squares: Iterable[CropSquare],
        own_mask: OwnMaskFrames | None,
    ) -> Iterator[ManipulationMask | None]:
        """Yields the mask of each box's square: the own one where the input has one, else by comparison, else None."""
        frame, size_px = frame_faces.frame, self._options.size_px
        own = own_mask.for_frame(frame) if own_mask is not None and len(frame_faces.tracked.faces) else None
        source = frame_faces.source_frame if own_mask is None else None
        comparison = None
        if source is not None and len(frame_boxes.boxes_xyxy):
            comparison = FrameComparison(frame.rgb, source.rgb, frame_faces.tracked.detected_xyxy)
        for box, square in zip(frame_boxes.boxes_xyxy, squares, strict=True):
            if own is not None:
                yield crop_own_mask(own, square, size_px=size_px)
            elif comparison is not None:
                yield comparison.mask(square, box_xyxy=box, size_px=size_px)
            else:
                yield None

    def _input_columns(self, entry: Entry, split: str) -> dict[str, Any]:
        """The columns that are the same in all rows of an input."""
        return {
            "video_id": entry.video_id,
            "source_id": entry.source_id,
            "identity": entry.identity,
            "dataset": entry.dataset,
            "method": entry.method,
            "compression": entry.compression,
            "split": split,
            "fake_segments": entry.fake_segments,
            **({"hull_method": WHOLE_FRAME_HULL} if entry.whole_frame else {}),
            **dict(zip(self._columns, entry.values, strict=True) if entry.values else ()),
        }

    def _frame_rows(
        self,
        entry: Entry,
        input_columns: dict[str, Any],
        frame_faces: _FrameFaces,
        frame_boxes: FrameBoxes,
        own_mask: OwnMaskFrames | None,
    ) -> Iterator[dict[str, Any]]:
        options, frame, faces = self._options, frame_faces.frame, frame_faces.tracked.faces
        squares = [*map(CropSquare.around, frame_boxes.boxes_xyxy, repeat(self._margin(entry)), frame_boxes.degrees)]
        masks = self._masks(frame_faces, frame_boxes, squares, own_mask)
        frame_height, frame_width = frame.rgb.shape[:2]
        for box, score, landmarks, shape, track_id, square, manipulation in zip(
            faces.boxes_xyxy, faces.scores, faces.landmarks, frame_faces.shapes, frame_boxes.track_ids, squares, masks,
            strict=True,
        ):  # fmt: skip
            crop, scale = square.crop(frame.rgb, options.size_px)
            image = options.image(crop)
            yield {
                "face_id": f"{entry.video_id}/{frame.frame_index}/{track_id}",
                "label": entry.label_at(frame.elapsed_seconds),
                "frame_index": frame.frame_index,
                "frame_number": frame.frame_number,
                "pts_seconds": frame.pts_seconds,
                "frame_width": frame_width,
                "frame_height": frame_height,
                "track_id": int(track_id),
                "box_xyxy": box,
                "crop_xyxy": square.xyxy,
                "crop_degrees": square.degrees,
                "score": float(score),
                **points_columns(landmarks, shape, square, scale),
                **(dense_columns(shape, square, scale) if self._has_dense_landmarks else {}),
                "sharpness": sharpness(crop),
                "manipulated": manipulation.changed_fraction if manipulation else None,
                "mask": encode_mask(manipulation.mask) if manipulation else None,
                "image": image,
                "image_crc32": zlib.crc32(image),
                "height": crop.shape[0],
                "width": crop.shape[1],
                **input_columns,  # of a whole frame, in place of the landmarker's hull_method
            }


def _track(frame: Frame, faces: Faces, detected_xyxy: Boxes, tracker: Tracker) -> TrackedFaces:
    return TrackedFaces(faces, tracker.update(frame.rgb, faces, frame.pts_seconds), detected_xyxy)
