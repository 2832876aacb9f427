"""From an interlaced frame to a picture of one moment: its upper field, and between its lines what lies between them.

It takes the frame alone, never its neighbours, so a frame looks the same whichever others are decoded. The upper field
may be the later one of the two: then the picture is half a frame younger than its time.
"""

from __future__ import annotations

from typing import Any

import av.video
import numpy as np


def upper_field(frame: av.video.VideoFrame) -> av.video.VideoFrame:
    """Return a frame of the same size and format; the lines of the lower field are interpolated, in every plane.

    It says nothing of its colours and its rotation: those are the given frame's.
    """
    made = av.VideoFrame(frame.width, frame.height, frame.format.name)
    samples = _sample_type(frame)
    for given, filled in zip(frame.planes, made.planes, strict=True):
        source, target = (np.frombuffer(memoryview(one), samples).reshape(one.height, -1) for one in (given, filled))
        width = min(source.shape[1], target.shape[1])  # lines may be padded differently
        upper = source[::2, :width]
        target[::2, :width] = upper
        below = np.concatenate((upper[1:], upper[-1:]))[: len(target) // 2]
        above = upper[: len(below)].astype(np.uint32)
        target[1::2, :width] = (above + below + 1) >> 1
    return made


def _sample_type(frame: av.video.VideoFrame) -> np.dtype[Any]:
    if max(component.bits for component in frame.format.components) <= 8:
        return np.dtype(np.uint8)
    return np.dtype(">u2" if frame.format.is_big_endian else "<u2")
