"""Value classes of the reader: a decoded frame, what became of all frames, a video's frame times, a file's metadata."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .sampling import ROUNDED_SECONDS


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One decoded frame, upright; of a video with square pixels.

    frame_index: ordinal in presentation order in the whole video, from 0.
    pts_seconds: the file's presentation time, not shifted: a stream that starts at 1.5 s has its first frame at 1.5.
    rgb: uint8 (H, W, 3), contiguous, full-range RGB; x right, y down. The receiver may modify the array.
    frame_number: of a clip of images: the number that the image's name ends in; -1 where not all names of the clip end
        in one of their own, and for videos.
    start_seconds: `pts_seconds` of the video's first frame, sampled or not.

    Raises ValueError where a field breaks this.
    """

    frame_index: int
    pts_seconds: float
    rgb: npt.NDArray[np.uint8]
    frame_number: int = -1
    start_seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.frame_index < 0:
            raise ValueError(f"frame_index={self.frame_index}: must be at least 0")
        if self.frame_number < -1:
            raise ValueError(f"frame_number={self.frame_number}: must be at least 0, or -1 for none")
        for name in ("pts_seconds", "start_seconds"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"{name}={getattr(self, name)}: must be finite")
        if self.rgb.ndim != 3 or self.rgb.shape[2] != 3 or self.rgb.dtype != np.uint8 or self.rgb.size == 0:
            raise ValueError(f"rgb is {self.rgb.dtype} {self.rgb.shape}: must be uint8 (H, W, 3), not empty")

    @property
    def elapsed_seconds(self) -> float:
        """Time since the video's first frame, as frame numbers count it, and 1 ms, by which it may have been rounded.

        So a frame at the start of a segment does not come to lie before it, nor one at its end within it.
        """
        return self.pts_seconds - self.start_seconds + ROUNDED_SECONDS

    @property
    def height(self) -> int:
        """Height in pixels, upright."""
        return int(self.rgb.shape[0])

    @property
    def width(self) -> int:
        """Width in pixels, upright."""
        return int(self.rgb.shape[1])

    def __repr__(self) -> str:
        return (
            f"Frame(frame_index={self.frame_index}, pts_seconds={self.pts_seconds:.6f}, "
            f"rgb={self.rgb.dtype} {self.rgb.shape})"
        )


@dataclass(slots=True)
class DecodeSummary:
    """What became of one file's frames; `MediaReader.frames` fills it, and it is complete when the iterator has ended.

    frames_wanted: number of frames that the sampling selects. frames_decoded: how many of them were decoded.
    damage: why some are missing: they are damaged, and no more than `DecoderLimits.max_damaged_percent`; else "".
    """

    frames_wanted: int = 0
    frames_decoded: int = 0
    damage: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FrameTimes:
    """Presentation times of all frames of a video, and which of them a sampling selects; read without decoding.

    pts_seconds: float64 (N,), of all frames in presentation order, on the clock of `Frame.pts_seconds`.
    wanted_indices: int64 (K,), frame indices, ascending.
    numbers: int64 (N,), of a clip of images: the numbers that the names end in; None where not all have one of their
        own, and for videos.
    is_timed: False for an image, and for a clip of images whose frame rate is unknown: its times only count frames.
    """

    pts_seconds: npt.NDArray[np.float64]
    wanted_indices: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64] | None = None
    is_timed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaInfo:
    """Metadata of a file, from its header and, for a video, its first frame; of a clip of images, from one image.

    width, height: upright, in square pixels. num_frames: from the header, else duration times frame rate; an
    estimate, 0 if unknown. duration_seconds: from the header, 0 if unknown. is_image: whether it is a still picture.
    """

    width: int
    height: int
    num_frames: int
    duration_seconds: float
    is_image: bool
