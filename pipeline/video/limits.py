"""How much time and memory one file may cost, and how much of it may be damaged."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError


def most_damaged(num_wanted: int, max_damaged_percent: float) -> int:
    """How many of the wanted frames of a video may be damaged: rounded up, and never all.

    Of a few frames the share is below one, and any share above 0 is meant to allow one.

    >>> most_damaged(30, 10), most_damaged(5, 10), most_damaged(5, 0), most_damaged(5, 100)
    (3, 1, 0, 4)
    """
    return min(math.ceil(max_damaged_percent * num_wanted / 100 - 1e-9), num_wanted - 1)


@dataclass(frozen=True, kw_only=True)
class DecoderLimits:
    """What the decoder's child process may use; raises UsageError for values that cannot be meant.

    deadline_seconds: no byte from the child for this long is a hang. While it makes progress it reports every
        second, so a sparse sampling of a long video is none.
    total_seconds: time spent waiting for the child on one file (not the time its frames take to be used). Four
        hours let a 2 h 1080p video pass at 15 frames a second.
    cpu_seconds: processor time of the child on one file, all threads together.
    memory_bytes: address space of the child (RLIMIT_AS), its libraries' some 600 MB included.
    max_pixels: pixels of one frame, stored or upright, checked before anything is decoded.
    threads: threads of the codec; each holds a frame more.
    max_damaged_percent: wanted frames of a video that may be damaged, rounded up, but never all; with more it fails.
        0 allows none.
    command: what is started; None is this facefeed's own child, under the Python of whoever reads.
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
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name}={value!r}: must be finite and above 0; try 60")
        if not 0 <= self.max_damaged_percent <= 100:
            raise UsageError(f"max_damaged_percent={self.max_damaged_percent!r}: must be 0 to 100; try 10")
        for name, smallest in (("memory_bytes", 1), ("max_pixels", 1), ("threads", 1)):
            value = getattr(self, name)
            if value < smallest:
                raise UsageError(f"{name}={value!r}: must be at least {smallest}")
        if self.command is not None and not self.command:
            raise UsageError("command=(): must name the decoder's child process; leave the default")

    def child_command(self) -> tuple[str, ...]:
        """Command line of the child; made where it is started, since hosts may keep Python in different places."""
        # -P keeps a user's own `av.py` in the working directory out.
        return self.command or (sys.executable, "-P", "-m", "facefeed.pipeline.video.decoder.child")

    def for_child(self) -> dict[str, Any]:
        """The part that the child itself has to keep, as plain JSON."""
        names = ("cpu_seconds", "memory_bytes", "max_pixels", "threads", "max_damaged_percent")
        return {name: getattr(self, name) for name in names}
