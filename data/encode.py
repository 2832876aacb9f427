"""Writes an H.264 file, reproducible byte for byte for the same frames and library versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import cv2

from .portraits import Image


@dataclass(frozen=True, kw_only=True)
class VideoEncoding:
    """Encoding parameters of a clip. `pts`: presentation times in units of `time_base` seconds, one for each frame.

    `rate` is the nominal frame rate in hertz; `crf` is x264's: 18 nearly lossless, 36 poor.
    """

    rate: Fraction
    time_base: Fraction
    pts: tuple[int, ...]
    crf: int

    def __post_init__(self) -> None:
        if not self.pts or list(self.pts) != sorted(set(self.pts)):
            raise ValueError("pts: must be rising, with at least one frame")


def write_video(path: Path, frames: Iterable[Image], size: tuple[int, int], encoding: VideoEncoding) -> None:
    """Encode frames, (height, width, 3) uint8 BGR of even width and height, into the container that the suffix names.

    `size` is (width, height) in px. Raises av.FFmpegError where the file cannot be written.
    """
    # bitexact: no random ids (mkv), no library version in the header. One thread: x264 does not guarantee
    # reproducible output with several.
    with av.open(str(path), "w", options={"fflags": "+bitexact"}) as container:
        stream = container.add_stream("libx264", rate=encoding.rate, options=_x264_options(encoding))
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = encoding.time_base
        stream.codec_context.thread_count = 1
        for image, pts in zip(frames, encoding.pts, strict=True):
            # OpenCV's conversion is twice as fast as swscale's; both are BT.601, limited range.
            frame = av.VideoFrame.from_ndarray(cv2.cvtColor(image, cv2.COLOR_BGR2YUV_I420), format="yuv420p")
            frame.pts, frame.time_base = pts, encoding.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _x264_options(encoding: VideoEncoding) -> dict[str, str]:
    return {
        "crf": str(encoding.crf),
        "preset": "superfast",
        "g": str(2 * round(encoding.rate)),
        "x264-params": "threads=1:lookahead-threads=1",
    }


def write_rotation_tag(path: Path) -> None:
    """Mark an mp4 or mov as rotated: players turn its frames by 90 degrees clockwise.

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
    # Stored (x, y) is displayed at (height - y, x); 16.16 fixed point, the third column 2.30.
    data[matrix : matrix + 36] = _big_endian((0, one, 0, minus_one, 0, 0, stored_height, 0, w_one))
    path.write_bytes(data)


def _big_endian(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "big", signed=True) for value in values)
