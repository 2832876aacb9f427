"""Wire protocol between the reader and its decoder process.

Parent to child: one JSON object per line, one line per file. Child to parent: messages of a header (kind, payload
size in bytes) and a payload: `FRAME` is the fields of a `Frame`, then its pixels; `HEARTBEAT` is empty; `TIMES` is
three arrays; the others are JSON. The answer to a request ends with exactly one of `END`, `INFO`, `TIMES` and `ERROR`.
"""

from __future__ import annotations

import json
import os
import struct
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from .frame import Frame, FrameTimes

HEADER = struct.Struct("<BxxxxxxxQ")
FRAME_HEADER = struct.Struct("<qqddII")
MAX_JSON_BYTES = 1 << 20
"""Longest valid JSON payload; a header that states more is corrupt."""
TIMES_HEADER = struct.Struct("<QQQQ")
MAX_TIMES_BYTES = 1 << 27
"""Longest valid `TIMES` payload: 8 million frames of a video, all of them wanted."""


class MessageKind(IntEnum):
    """Kinds of messages from the child."""

    HEARTBEAT = 1  # still making progress
    PLAN = 2  # {"frames_wanted"}; counts are of the sampling alone, without extra frames
    FRAME = 3
    END = 4  # {"frames_wanted", "frames_decoded", "damage"}
    INFO = 5  # the fields of a MediaInfo
    ERROR = 6  # {"reason", "detail", "frames_wanted", "frames_decoded"}
    WARNING = 7  # {"text"}; comes before all others
    TIMES = 8  # three lengths and is_timed, then pts_seconds as float64, wanted_indices and numbers as int64


def write_all(fd: int, *parts: bytes | memoryview) -> None:
    """Write all parts completely to a blocking descriptor; raises OSError (EPIPE if the reader is gone)."""
    remaining: list[memoryview] = [memoryview(part).cast("B") for part in parts if len(part)]
    while remaining:
        written = os.writev(fd, remaining)
        while remaining and written >= len(remaining[0]):
            written -= len(remaining.pop(0))
        if remaining:
            remaining[0] = remaining[0][written:]


def send_json(fd: int, kind: MessageKind, fields: dict[str, Any] | None = None) -> None:
    """Send a message whose payload is `fields` as JSON, or empty for None."""
    payload = json.dumps(fields).encode() if fields is not None else b""
    write_all(fd, HEADER.pack(kind, len(payload)), payload)


def send_frame(fd: int, frame: Frame) -> None:
    """Send one frame."""
    head = FRAME_HEADER.pack(
        frame.frame_index, frame.frame_number, frame.pts_seconds, frame.start_seconds, frame.height, frame.width
    )
    write_all(fd, HEADER.pack(MessageKind.FRAME, len(head) + frame.rgb.nbytes), head, frame.rgb.data.cast("B"))


def send_times(fd: int, times: FrameTimes) -> None:
    """Send the presentation times of all frames, the indices of the wanted ones, and the frames' numbers, if any."""
    numbers = () if times.numbers is None else times.numbers
    head = TIMES_HEADER.pack(len(times.pts_seconds), len(times.wanted_indices), len(numbers), times.is_timed)
    arrays = ((times.pts_seconds, "<f8"), (times.wanted_indices, "<i8"), (numbers, "<i8"))
    parts = (head, *(np.asarray(values, kind).tobytes() for values, kind in arrays))
    write_all(fd, HEADER.pack(MessageKind.TIMES, sum(map(len, parts))), *parts)


def unpack_times(payload: bytearray) -> FrameTimes:
    """Return the times that `send_times` sent; raises ValueError where the payload holds none."""
    if len(payload) < TIMES_HEADER.size:
        raise ValueError(f"{len(payload)} bytes")
    frames, wanted, numbers, is_timed = TIMES_HEADER.unpack_from(payload)
    if not frames or numbers not in (0, frames) or len(payload) != TIMES_HEADER.size + 8 * (frames + wanted + numbers):
        raise ValueError(f"of {frames} frames in {len(payload)} bytes")
    body = memoryview(payload)[TIMES_HEADER.size :]
    times = FrameTimes(
        np.frombuffer(body, "<f8", frames),
        np.frombuffer(body, "<i8", wanted, 8 * frames),
        np.frombuffer(body, "<i8", numbers, 8 * (frames + wanted)) if numbers else None,
        is_timed=bool(is_timed),
    )
    is_index = (times.wanted_indices >= 0) & (times.wanted_indices < frames)
    if not np.isfinite(times.pts_seconds).all() or not is_index.all():
        raise ValueError("a time is not finite, or an index is beyond the frames")
    return times


def pack_request(operation: str, path: Path, **fields: Any) -> bytes:
    """Return a request as one line of JSON. File names that are not UTF-8 are sent as escaped surrogates."""
    return json.dumps({"operation": operation, "path": str(path), **fields}).encode("ascii") + b"\n"
