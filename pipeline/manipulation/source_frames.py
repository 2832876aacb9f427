"""A cache of the source video's frames that its fakes are compared with.

The source video is decoded and searched for faces once for all of its fakes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ..dataset.image_codec import ImageEncoder, decode_rgb_strictly
from ..errors import PASSING_REASONS, InputError
from ..faces import Faces
from ..video import Frame

# Raw frames of a long video would fill the disk; JPEG takes a tenth, and is off by a step or two of 255.
_ENCODER: Final = ImageEncoder(format="jpeg", quality=95, chroma="444")
_MAX_JPEG_SIDE_PX: Final = 65_500
_MEMORY_BYTES: Final = 64 << 20
_ROUNDING_PX: Final = 2.0


@dataclass(frozen=True, slots=True)
class TrackedFaces:
    """The N faces of a frame that become rows, in `frame` px; `track_ids` (N,) int32: their identities.

    `detected_xyxy`: (M, 4) float32, boxes of all detected faces of the frame, also of those that become no rows.
    """

    faces: Faces
    track_ids: NDArray[np.int32]
    detected_xyxy: NDArray[np.float32]

    def select(self, index: NDArray[np.intp]) -> TrackedFaces:
        """The faces at indices (K,); the others stay in `detected_xyxy`."""
        return TrackedFaces(self.faces.select(index), self.track_ids[index], self.detected_xyxy)

    def scaled(self, factor: float) -> TrackedFaces:
        """The same faces in a frame that is `factor` times as large."""
        return TrackedFaces(self.faces.scaled(factor), self.track_ids, self.detected_xyxy * np.float32(factor))


@dataclass(frozen=True, slots=True)
class AlignedSourceFrame:
    """The source's matching frame at the fake's size: `rgb` (H, W, 3) uint8; `tracked`: its faces, if searched."""

    rgb: NDArray[np.uint8]
    tracked: TrackedFaces | None


@dataclass(frozen=True, slots=True)
class _CachedFrame:
    offset: int
    size_bytes: int
    tracked: TrackedFaces | None


class SourceFrameCache:
    """Frames of one source video by index, as JPEG; beyond 64 MiB in an unnamed file in `folder`. Not thread-safe.

    `matches`: for each fake, by video_id, this video's frame index for each of the fake's frame indices; see
    `frame_matching.match_frames`. `extra_indices`: matching frames that are not among this video's own sampled frames.
    `signature`: of its file before any of it was read; None where frames are missing for a reason that may pass.
    `whole_frame`: whether each of its frames is one face.
    """

    def __init__(
        self,
        video_id: str,
        folder: Path,
        matches: Mapping[str, Mapping[int, int]],
        extra_indices: frozenset[int] = frozenset(),
        *,
        signature: tuple[int, ...] | None = None,
        whole_frame: bool = False,
    ) -> None:
        self.signature, self.whole_frame = signature, whole_frame
        self.video_id, self.matches, self.extra_indices = video_id, matches, extra_indices
        self._needed_indices = frozenset(index for frames in matches.values() for index in frames.values())
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 (`discard` closes it)
        self._frames: dict[int, _CachedFrame] = {}
        self._extra_faces: dict[str, Mapping[int, TrackedFaces]] = {}  # by the fake's video_id, then by frame index
        self._first_own_index: int | None = None  # of its own sampled frames, the first with a face
        self.next_own_id = 0
        """One more than the largest track id in this video's own sampled frames, whether stored or not."""

    def discard(self) -> None:
        """Frees memory and disk; the cache is empty from now on."""
        self._frames.clear()
        self._extra_faces.clear()
        self._file.close()

    def fail(self, error: InputError) -> None:
        """Nothing is compared with a source that cannot be read to its end."""
        self.discard()
        if error.reason in PASSING_REASONS:
            self.signature = None

    def add(self, frame: Frame, tracked: TrackedFaces | None) -> None:
        """Stores a frame if a fake needs it and JPEG allows its size.

        `tracked`: the faces of one of its own sampled frames; None if not searched, or for `set_extra_faces`.
        """
        is_needed = frame.frame_index in self._needed_indices
        if tracked is not None and len(tracked.faces):
            self.next_own_id = max(self.next_own_id, int(tracked.track_ids.max()) + 1)
            if self._first_own_index is None:  # `first_with_faces` needs it
                self._first_own_index, is_needed = frame.frame_index, True
        if not is_needed or max(frame.height, frame.width) > _MAX_JPEG_SIDE_PX:
            return
        data = _ENCODER(frame.rgb)
        offset = self._file.seek(0, 2)
        self._file.write(data)
        self._frames[frame.frame_index] = _CachedFrame(offset, len(data), tracked)

    def extra_indices_of(self, fake_id: str) -> frozenset[int]:
        """Those of `extra_indices` that match frames of the fake."""
        return self.extra_indices.intersection(self.matches[fake_id].values())

    def set_extra_faces(self, fake_id: str, tracked: Mapping[int, TrackedFaces]) -> None:
        """Sets the faces of the extra frames that match the fake's, by frame index, with their ids for this fake.

        People who are in none of this video's own sampled frames have ids from `next_own_id` on.
        """
        self._extra_faces[fake_id] = tracked

    def next_track_id(self, fake_id: str) -> int:
        """One more than the largest track id in own sampled frames and in those that match the fake's."""
        tracked = self._extra_faces.get(fake_id, {}).values()
        return max([self.next_own_id, *(int(extra.track_ids.max(initial=-1)) + 1 for extra in tracked)])

    def lookup(self, fake_id: str, frame_index: int) -> _CachedFrame | None:
        """The frame that matches frame `frame_index` of the fake, if there is one in the cache."""
        own_index = self.matches.get(fake_id, {}).get(frame_index)
        return None if own_index is None else self._frame_for(fake_id, own_index)

    def first_with_faces(self, fake_id: str) -> _CachedFrame | None:
        """The first frame with a face, of this video's own sampled frames and of those that match the fake's."""
        indices = self._frames.keys() & {*self.matches.get(fake_id, {}).values(), self._first_own_index}
        frames = (self._frame_for(fake_id, index) for index in sorted(indices))
        return next((frame for frame in frames if frame and frame.tracked and len(frame.tracked.faces)), None)

    def _frame_for(self, fake_id: str, own_index: int) -> _CachedFrame | None:
        cached, tracked = self._frames.get(own_index), self._extra_faces.get(fake_id, {}).get(own_index)
        return replace(cached, tracked=tracked) if cached and tracked else cached

    def read_rgb(self, cached: _CachedFrame) -> NDArray[np.uint8]:
        """Decodes a frame of the cache: (H, W, 3) uint8."""
        self._file.seek(cached.offset)
        return decode_rgb_strictly(self._file.read(cached.size_bytes), max_pixels=None)


class AlignedSourceFrames:
    """The source frames that match those of the fake `fake_id`, at the fake's size.

    A source of another size but the same aspect ratio is resized; one of another aspect ratio gives no frame.
    `next_track_id`: above all ids in these frames and in the source's own.
    """

    def __init__(self, cache: SourceFrameCache, fake_id: str) -> None:
        self._cache, self._fake_id = cache, fake_id
        self.next_track_id = cache.next_track_id(fake_id)

    def for_frame(self, frame: Frame) -> AlignedSourceFrame | None:
        """The source frame that matches a frame of the fake; None without one in the cache."""
        return self._at_size_of(frame, self._cache.lookup(self._fake_id, frame.frame_index))

    def first_with_faces(self, frame: Frame) -> AlignedSourceFrame | None:
        """The source's first frame that has a face, at the size of `frame`, whether or not it matches one."""
        return self._at_size_of(frame, self._cache.first_with_faces(self._fake_id))

    def _at_size_of(self, frame: Frame, cached: _CachedFrame | None) -> AlignedSourceFrame | None:
        """A source frame with its faces at the size of `frame`; None where the aspect ratio differs."""
        if cached is None:
            return None
        rgb, tracked = self._cache.read_rgb(cached), cached.tracked
        if rgb.shape == frame.rgb.shape:
            return AlignedSourceFrame(rgb, tracked)
        if not has_same_aspect(rgb.shape[:2], (frame.height, frame.width)):
            return None
        scale = frame.width / rgb.shape[1]
        interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        resized = cv2.resize(rgb, (frame.width, frame.height), interpolation=interpolation).astype(np.uint8, copy=False)
        return AlignedSourceFrame(resized, tracked and tracked.scaled(scale))


def has_same_aspect(size: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a frame of `size` (height, width) can be resized to the size `other` without distortion."""
    return abs(size[1] * other[0] / size[0] - other[1]) <= _ROUNDING_PX


class CurrentSource:
    """Holds the cache of one source video at a time, while its fakes are processed; the next one replaces it.

    `decode_source` stores the frames of a source in its cache, with their faces where these are wanted, and raises
    `InputError`. For the thread that builds the rows, while no input is in progress.
    """

    def __init__(self, decode_source: Callable[[SourceFrameCache], None]) -> None:
        self._decode_source = decode_source
        self._current: SourceFrameCache | None = None

    def replace(self, cache: SourceFrameCache) -> None:
        """Releases the current cache and makes `cache`, which is filled already, the current one."""
        self.release()
        self._current = cache

    def get(self, video_id: str) -> SourceFrameCache | None:
        """The current cache, if it is of `video_id`."""
        return self._current if self._current is not None and self._current.video_id == video_id else None

    def load(self, cache: SourceFrameCache) -> None:
        """Makes `cache` the current one and decodes its source into it; empty if that cannot be read to its end."""
        self.replace(cache)
        try:
            self._decode_source(cache)
        except InputError as error:
            cache.fail(error)

    def release(self) -> None:
        """Frees memory and disk."""
        if self._current is not None:
            self._current.discard()
        self._current = None
