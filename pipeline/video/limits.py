"""Limits of the decoder: time, memory and frame size per file, and how many frames may be damaged."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ..errors import UsageError


def max_damaged_frames(num_wanted: int, max_damaged_percent: float) -> int:
    """Number of the `num_wanted` frames of a video that may be damaged: the percentage rounded up, but never all.

    Rounded up so that any percentage above 0 allows at least one damaged frame, however few are wanted.

    >>> max_damaged_frames(30, 10), max_damaged_frames(5, 10), max_damaged_frames(5, 0), max_damaged_frames(5, 100)
    (3, 1, 0, 4)
    """
    return min(math.ceil(max_damaged_percent * num_wanted / 100 - 1e-9), num_wanted - 1)


@dataclass(frozen=True, kw_only=True)
class DecoderLimits:
    """Resources the decoder's child process may use for one file.

    Args:
        deadline_seconds: longest wait for a byte from the child before it counts as hung. While it makes progress it
            sends a heartbeat every second, so a sparse sampling of a long video does not count as a hang.
        total_seconds: longest total wait for the child on one file, without the time the caller spends on its frames.
            Four hours let a 2 h 1080p video pass at 15 frames a second.
        cpu_seconds: CPU time of the child on one file, all threads together.
        memory_bytes: address space of the child (RLIMIT_AS), including about 600 MB of its libraries.
        max_pixels: pixels of one frame, stored or upright, checked before anything is decoded.
        threads: codec threads; each keeps one more frame in memory. With more than one, a pixel aspect ratio that
            changes in mid-video is not followed.
        max_damaged_percent: share of the sampled frames of a video that may be damaged, rounded up, but never all. With
            more the file fails; 0 allows none.
        command: command line of the child; None runs facefeed's own child with the current Python interpreter.

    Raises:
        UsageError: a value is out of range.

    """

    deadline_seconds: float = 60.0
    total_seconds: float = 4 * 3600.0
    cpu_seconds: float = 4 * 3600.0
    memory_bytes: int = 4 * 1024**3
    max_pixels: int = 64_000_000
    threads: int = 1
    max_damaged_percent: float = 10.0
    command: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "total_seconds", "cpu_seconds"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
                raise UsageError(f"{name}={value!r}: must be finite and above 0; try 60")
        if not (isinstance(self.max_damaged_percent, Real) and 0 <= self.max_damaged_percent <= 100):
            raise UsageError(f"max_damaged_percent={self.max_damaged_percent!r}: must be 0 to 100; try 10")
        for name in ("memory_bytes", "max_pixels", "threads"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and math.isfinite(value) and value >= 1):
                raise UsageError(f"{name}={value!r}: must be at least 1")
            object.__setattr__(self, name, int(value))  # 8e9: the system's limits are whole numbers
        if self.command is not None and not self.command:
            raise UsageError("command=(): must name the decoder's child process; leave the default")

    def child_command(self) -> tuple[str, ...]:
        """Command line of the child; resolved where it is started, since hosts may have Python in different places."""
        # -P keeps a user's own `av.py` in the working directory out.
        return self.command or (sys.executable, "-P", "-m", "facefeed.pipeline.video.decoder.child")

    def for_child(self) -> dict[str, Any]:
        """The limits that the child itself enforces, as plain JSON."""
        names = ("cpu_seconds", "memory_bytes", "max_pixels", "threads", "max_damaged_percent")
        return {name: getattr(self, name) for name in names}
