"""Writing one H.264 file, byte for byte the same for the same frames and library versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2

from .portraits import Image


@dataclass(frozen=True, kw_only=True)
class Coding:
    """How a clip is encoded. `pts` counts `time_base` seconds and says how many frames there are.

    `rate` is the nominal frame rate in hertz; `crf` is x264's: 18 nearly lossless, 36 poor.
    """

    rate: Fraction
    time_base: Fraction
    pts: tuple[int, ...]
    crf: int

    def __post_init__(self) -> None:
        if not self.pts or list(self.pts) != sorted(set(self.pts)):
            raise ValueError("pts: must be rising, with at least one frame")


def write_video(path: Path, frames: Iterable[Image], size: tuple[int, int], coding: Coding) -> None:
    """Encode frames, (height, width, 3) uint8 BGR of even width and height, into the container of the suffix.

    `size` is (width, height) in px. Raises av.FFmpegError where the file cannot be written.
    """
    # bitexact: no random ids (mkv), no library version in the header; one thread: x264 with several is not
    # promised to repeat itself.
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libx264", rate=coding.rate, options=_x264_options(coding))
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = coding.time_base
        stream.codec_context.thread_count = 1
        for image, pts in zip(frames, coding.pts, strict=True):
            # OpenCV's conversion takes half the time of swscale's; both are BT.601, limited range.
            frame = av.VideoFrame.from_ndarray(cv2.cvtColor(image, cv2.COLOR_BGR2YUV_I420), format="yuv420p")
            frame.pts, frame.time_base = pts, coding.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _x264_options(coding: Coding) -> dict[str, str]:
    return {
        "crf": str(coding.crf),
        "preset": "superfast",
        "g": str(2 * round(coding.rate)),
        "x264-params": "threads=1:lookahead-threads=1",
    }


def mark_turned(path: Path) -> None:
    """Say in an mp4 or mov that its pictures must be turned by 90 degrees clockwise to be upright.

    Writes the transformation matrix of the track header box, as phones do (ISO/IEC 14496-12, 8.3.2). Done on
    the finished file because PyAV before 18 cannot write it. Raises ValueError for a file without such a box.
    """
    data = bytearray(path.read_bytes())
    box = data.find(b"tkhd")
    if box < 0 or data[box + 4] != 0:
        raise ValueError(f"{path}: no track header of version 0; only mp4 and mov can be marked")
    # After the type: 4 bytes of version and flags, 20 of times, id and duration, 16 of layer and volume.
    matrix = box + 4 + 4 + 20 + 16
    stored_height = int.from_bytes(data[matrix + 40 : matrix + 44], "big")
    one, minus_one, w_one = 0x10000, -0x10000, 0x40000000
    # Stored (x, y) is shown at (height - y, x): 16.16 fixed point, the third column 2.30.
    data[matrix : matrix + 36] = _big_endian((0, one, 0, minus_one, 0, 0, stored_height, 0, w_one))
    path.write_bytes(data)


def _big_endian(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "big", signed=True) for value in values)
