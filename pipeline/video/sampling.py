"""Sampling: which frames of a video to decode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from statistics import median
from typing import Any

from ..errors import UsageError
from .image_folder import frame_step

ROUNDED_SECONDS = 1e-3
"""How far times may be from the true ones of an even rate: Matroska, WebM, FLV and ASF round them to milliseconds."""
_DEFAULT_EVERY = 10


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which frames of a video to decode; exactly one of the first four fields is set.

    An image is always one frame. All images of a clip are key frames.

    Args:
        every: each N-th frame, ``frame_index % N == 0``.
        fps: F frames per second of presentation time: the first frame at or after each multiple of 1 / F seconds since
            the first frame, or up to 1 ms before it, as which containers may have rounded it. No frame is selected
            twice, so a video slower than F gives all its frames.
        frames: K frames, evenly spaced: the middles of K equal segments, ``(2 i + 1) N // 2 K``; all if there are
            fewer.
        keyframes: key frames only; nothing else is decoded where packets and frames are one to one. The first frame of
            a video that shows none, as where an edit list leaves a part between two.
        all_images: a clip of images gives all of them, whatever is taken of videos: it has been sampled already.
        fps_of_images: frames per second of clips of images; None where their times are unknown: they count as 1 s
            apart.

    Raises:
        UsageError: a value is out of range, or not exactly one of the first four is set.

    >>> Sampling(frames=2).select([0.0, 0.1, 0.2, 0.3], [0])
    [1, 3]
    >>> Sampling(fps=5).select([0.0, 0.1, 0.2, 0.3, 0.4], [0])
    [0, 2, 4]

    """

    every: int | None = None
    fps: float | None = None
    frames: int | None = None
    keyframes: bool = False
    all_images: bool = False
    fps_of_images: float | None = None

    def __post_init__(self) -> None:
        chosen = [name for name in ("every", "fps", "frames") if getattr(self, name) is not None]
        chosen += ["keyframes"] if self.keyframes else []
        if len(chosen) != 1:
            given = ", ".join(chosen) or "none"
            raise UsageError(
                f"sampling={given}: exactly one of every, fps, frames, keyframes says which frames are wanted; "
                "try every=10"
            )
        for name in ("every", "frames"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"{name}={value!r}: must be a whole number of at least 1; try 10")
        for name, example in (("fps", 3), ("fps_of_images", 25)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
                raise UsageError(f"{name}={value!r}: must be a finite number above 0; try {example}")

    @classmethod
    def default(cls) -> Sampling:
        """Every 10th frame of videos, and every image of clips of images."""
        return cls(every=_DEFAULT_EVERY, all_images=True)

    def of_videos(self) -> Sampling:
        """The same with the fields on images reset: `fps_of_images` to None, `all_images` to what `every` implies."""
        return replace(self, all_images=self.every == _DEFAULT_EVERY, fps_of_images=None)

    def as_dict(self) -> dict[str, Any]:
        """The fields that are set, as plain JSON."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name))}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Sampling:
        """The inverse of `as_dict`; raises UsageError for unknown fields."""
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise UsageError(f"sampling={sorted(unknown)}: no such field; use every, fps, frames or keyframes")
        return cls(**values)

    def select(self, pts_seconds: Sequence[float], key_indices: Sequence[int]) -> list[int]:
        """Return the indices of the wanted frames, ascending.

        pts_seconds: presentation times of all frames, ascending. key_indices: indices of the key frames.
        """
        num_frames = len(pts_seconds)
        if self.keyframes:
            return sorted(key_indices) or list(range(num_frames)[:1])
        if self.every is not None:
            return list(range(0, num_frames, self.every))
        if self.frames is not None:
            count = min(self.frames, num_frames)
            return [(2 * i + 1) * num_frames // (2 * count) for i in range(count)]
        assert self.fps is not None
        return _select_at_fps(pts_seconds, self.fps)

    def select_images(self, num_images: int, numbers: Sequence[int] | None = None) -> list[int]:
        """Return the indices of the wanted images of a clip, ascending; `numbers` as in `image_times`.

        >>> Sampling(frames=2).select_images(4), Sampling(every=10, all_images=True).select_images(3)
        ([1, 3], [0, 1, 2])
        """
        indices = range(num_images)
        return list(indices) if self.all_images else self.select(self.image_times(num_images, numbers), indices)

    def image_times(self, num_images: int, numbers: Sequence[int] | None = None) -> list[float]:
        """Return the time in seconds of each image of a clip, since its first one.

        numbers: of the images, ascending, where they have some: at a known rate, images that are missing between
        others leave a gap in time. One step is the greatest common divisor of the distances between numbers.

        >>> Sampling(every=1, fps_of_images=25).image_times(3), Sampling(every=1).image_times(3)
        ([0.0, 0.04, 0.08], [0.0, 1.0, 2.0])
        >>> Sampling(every=1, fps_of_images=25).image_times(3, [30, 60, 120])
        [0.0, 0.04, 0.12]
        """
        if self.fps_of_images is None:
            return [float(index) for index in range(num_images)]
        if numbers is None:
            return [index / self.fps_of_images for index in range(num_images)]
        step = frame_step(numbers)
        return [(number - numbers[0]) // step / self.fps_of_images for number in numbers]


def _select_at_fps(pts_seconds: Sequence[float], fps: float) -> list[int]:
    chosen: list[int] = []
    due_number = 0
    tolerance_seconds = min(ROUNDED_SECONDS, 0.25 / fps)
    steps = [0.0, *(later - earlier for earlier, later in pairwise(pts_seconds))]
    longest_step = 1.5 * median(steps)
    for index, seconds in enumerate(pts_seconds):
        elapsed_seconds = seconds - pts_seconds[0]
        if elapsed_seconds + tolerance_seconds < due_number / fps:
            continue
        # After a gap, a frame at a due time is for that one, also where it was rounded to before it. Without one it may
        # be late for the due time before: frames that are a little slower than F drift from each to the next.
        early_seconds = tolerance_seconds if steps[index] > longest_step else 0.0
        due_number = max(due_number, math.floor((elapsed_seconds + early_seconds) * fps)) + 1
        chosen.append(index)
    return chosen
