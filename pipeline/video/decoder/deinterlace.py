"""Deinterlacing: keep the upper field of a frame and interpolate the lines of the lower one ("bob").

It reads no neighbouring frames, so a frame looks the same whichever others are decoded. The upper field may be the
later of the two; the picture is then half a frame interval later than its presentation time.
"""

from __future__ import annotations

from typing import Any

import av.video
import numpy as np


def bob_upper_field(frame: av.video.VideoFrame) -> av.video.VideoFrame:
    """Return a frame of the same size and format whose lower field is interpolated from the upper one, in every plane.

    Colour tags and rotation are not copied: read those from `frame`.
    """
    output = av.VideoFrame(frame.width, frame.height, frame.format.name)
    samples = _sample_type(frame)
    for input_plane, output_plane in zip(frame.planes, output.planes, strict=True):
        source, target = (
            np.frombuffer(memoryview(plane), samples).reshape(plane.height, -1) for plane in (input_plane, output_plane)
        )
        width = min(source.shape[1], target.shape[1])  # lines may be padded differently
        upper = source[::2, :width]
        target[::2, :width] = upper
        below = np.concatenate((upper[1:], upper[-1:]))[: len(target) // 2]
        above = upper[: len(below)].astype(np.uint32)
        target[1::2, :width] = (above + below + 1) >> 1
    return output


def _sample_type(frame: av.video.VideoFrame) -> np.dtype[Any]:
    if max(component.bits for component in frame.format.components) <= 8:
        return np.dtype(np.uint8)
    return np.dtype(">u2" if frame.format.is_big_endian else "<u2")
