"""Detectors and decoders that go wrong in a chosen way or record what is around; imported by worker processes too."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from facefeed.pipeline.faces import Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.detectors.mtcnn import MTCNNDetector
from numpy.typing import NDArray

POISON_SIZE = (96, 176)
"""(height, width) of a video whose frames the faulty detectors choke on; all others have another size."""


@dataclass(frozen=True)
class FaultyDetector:
    """`FixedBoxDetector`, but on frames of `POISON_SIZE`: "kill", "raise", or "kill once" (marked by a file)."""

    fault: str
    marker: str = ""
    inner: FixedBoxDetector = field(default_factory=FixedBoxDetector)

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    frames_at_once = 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        if any(rgb.shape[:2] == POISON_SIZE for rgb in frames):
            if self.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == "raise":
                raise ZeroDivisionError("a bug in the detector")
            if self.fault == "kill once" and not Path(self.marker).exists():
                Path(self.marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.inner.detect(frames)


@dataclass(frozen=True)
class BrokenProcessDetector(FixedBoxDetector):
    """One that fails for good in the first process that uses it, as a GPU does after a sticky error."""

    marker: str = ""

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        pid = str(os.getpid())
        with contextlib.suppress(FileExistsError), Path(self.marker).open("x") as file:
            file.write(pid)
        if Path(self.marker).read_text() == pid:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return super().detect(frames)


@dataclass(frozen=True)
class SlowDetector:
    """`FixedBoxDetector` that takes its time, so that a kill finds it in mid-unit."""

    seconds: float = 0.05
    inner: FixedBoxDetector = field(default_factory=FixedBoxDetector)

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    frames_at_once = 1

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        time.sleep(self.seconds * len(frames))
        return self.inner.detect(frames)


@dataclass(frozen=True)
class UnloadableDetector(FixedBoxDetector):
    """One whose weights cannot be read on the worker."""

    def load(self) -> None:
        raise RuntimeError("CUDA error: no kernel image is available")


def faulty_child(fault: str) -> tuple[str, ...]:
    """Command of a decoder's child that does `fault` on files whose name holds "poison", and its work on others."""
    return (sys.executable, "-P", str(Path(__file__).resolve()), fault)


def _serve(fault: str) -> None:
    from facefeed.pipeline.video.decoder import child  # noqa: PLC0415 (in the child alone)

    genuine = child.open_media_file

    def open_media_file(path: str) -> Any:
        if "poison" in path:
            if fault == "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif fault == "hang":
                signal.pause()
            elif fault == "memory":
                hoard = []
                while True:
                    hoard.append(bytearray(64 << 20))
        return genuine(path)

    child.open_media_file = open_media_file
    child.main()


if __name__ == "__main__":
    _serve(sys.argv[1])


@dataclass(frozen=True)
class RecordingDetector(FixedBoxDetector):
    """MTCNN on the CPU beside fixed boxes; after each frame, a file holds the names of its process's modules."""

    modules: str = ""

    def detect(self, frames: Sequence[NDArray[np.uint8]]) -> list[Faces]:
        MTCNNDetector(device="cpu").detect(frames)
        Path(self.modules).write_text("\n".join(sys.modules))
        return super().detect(frames)
