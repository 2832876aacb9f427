"""Sampling: which frames of a video to decode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError

_DUE_TOLERANCE_SECONDS = 1e-6
"""Tolerance of the `fps` schedule: containers round time stamps, at the finest to microseconds."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which frames of a video to decode; exactly one of the four fields is set.

    every: each N-th frame, ``frame_index % N == 0``.
    fps: F frames per second of presentation time: the first frame at or after each multiple of 1 / F seconds since
        the first frame. No frame is selected twice, so a video slower than F gives all its frames.
    frames: K frames, evenly spaced: the middles of K equal segments, ``(2 i + 1) N // 2 K``; all if there are fewer.
    keyframes: key frames only; nothing else is decoded where packets and frames are one to one.

    Raises UsageError for invalid values. An image is always one frame.

    >>> Sampling(frames=2).select([0.0, 0.1, 0.2, 0.3], [0])
    [1, 3]
    >>> Sampling(fps=5).select([0.0, 0.1, 0.2, 0.3, 0.4], [0])
    [0, 2, 4]
    """

    every: int | None = None
    fps: float | None = None
    frames: int | None = None
    keyframes: bool = False

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
        if self.fps is not None and not (math.isfinite(self.fps) and self.fps > 0):
            raise UsageError(f"fps={self.fps!r}: must be a finite number above 0; try 3")

    def as_dict(self) -> dict[str, Any]:
        """The field that is set, as plain JSON."""
        fields = {"every": self.every, "fps": self.fps, "frames": self.frames, "keyframes": self.keyframes}
        return {name: value for name, value in fields.items() if value}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Sampling:
        """The inverse of `as_dict`; raises UsageError for unknown fields."""
        unknown = set(fields) - {"every", "fps", "frames", "keyframes"}
        if unknown:
            raise UsageError(f"sampling={sorted(unknown)}: no such field; use every, fps, frames or keyframes")
        return cls(**fields)

    def select(self, pts_seconds: Sequence[float], key_indices: Sequence[int]) -> list[int]:
        """Return the indices of the wanted frames, ascending.

        pts_seconds: presentation times of all frames, ascending. key_indices: indices of the key frames.
        """
        num_frames = len(pts_seconds)
        if self.keyframes:
            return sorted(key_indices)
        if self.every is not None:
            return list(range(0, num_frames, self.every))
        if self.frames is not None:
            count = min(self.frames, num_frames)
            return [(2 * i + 1) * num_frames // (2 * count) for i in range(count)]
        assert self.fps is not None
        return _select_at_fps(pts_seconds, self.fps)


def _select_at_fps(pts_seconds: Sequence[float], fps: float) -> list[int]:
    chosen: list[int] = []
    due_number = 0
    for index, seconds in enumerate(pts_seconds):
        elapsed_seconds = seconds - pts_seconds[0] + _DUE_TOLERANCE_SECONDS
        if elapsed_seconds >= due_number / fps:
            chosen.append(index)
            due_number = math.floor(elapsed_seconds * fps) + 1
    return chosen
