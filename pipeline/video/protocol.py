"""What parent and child say to each other.

Parent to child: one JSON object a line, one line a file. Child to parent: messages of a header (kind, payload
bytes) and a payload: `FRAME` is frame_index, pts_seconds, height, width and then the pixels; `BEAT` is empty;
`TIMES` is arrays; the others are JSON. A file ends with exactly one of `END`, `INFO`, `TIMES` and `ERROR`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HEADER = struct.Struct("<BxxxxxxxQ")
FRAME_HEAD = struct.Struct("<qdII")
MAX_JSON_BYTES = 1 << 20
"""A longer JSON payload is not from our child, whatever the header says."""
TIMES_HEAD = struct.Struct("<QQ")
MAX_TIMES_BYTES = 1 << 27
"""Likewise: 8 million frames, all of them wanted."""


class Kind(IntEnum):
    """What a message from the child says."""

    BEAT = 1  # still making progress
    PLAN = 2  # {"frames_wanted"}, which here are all that are to come, and in END those that the sampling wants
    FRAME = 3
    END = 4  # {"frames_wanted", "frames_decoded", "damage"}
    INFO = 5  # a MediaInfo
    ERROR = 6  # {"reason", "detail", "frames_wanted", "frames_decoded"}
    WARNING = 7  # {"text"}; comes before all others
    TIMES = 8  # both lengths, then pts_seconds as doubles, then the wanted indices as 64-bit integers


def write_all(fd: int, *parts: bytes | memoryview) -> None:
    """Write every byte of the parts to a blocking descriptor; raises OSError (EPIPE: the reader is gone)."""
    waiting: list[memoryview] = [memoryview(part).cast("B") for part in parts if len(part)]
    while waiting:
        written = os.writev(fd, waiting)
        while waiting and written >= len(waiting[0]):
            written -= len(waiting.pop(0))
        if waiting:
            waiting[0] = waiting[0][written:]


def send_json(fd: int, kind: Kind, fields: dict[str, Any] | None = None) -> None:
    """Send a message whose payload is JSON, or nothing."""
    payload = json.dumps(fields).encode() if fields is not None else b""
    write_all(fd, HEADER.pack(kind, len(payload)), payload)


def send_frame(fd: int, frame_index: int, pts_seconds: float, rgb: npt.NDArray[np.uint8]) -> None:
    """Send one frame; rgb is contiguous uint8 (H, W, 3)."""
    height, width = rgb.shape[:2]
    head = FRAME_HEAD.pack(frame_index, pts_seconds, height, width)
    write_all(fd, HEADER.pack(Kind.FRAME, len(head) + rgb.nbytes), head, rgb.data.cast("B"))


def send_times(fd: int, pts_seconds: Sequence[float], wanted: Sequence[int]) -> None:
    """Send when the frames are shown and which are wanted."""
    head = TIMES_HEAD.pack(len(pts_seconds), len(wanted))
    parts = (head, np.array(pts_seconds, "<f8").tobytes(), np.array(wanted, "<i8").tobytes())
    write_all(fd, HEADER.pack(Kind.TIMES, sum(map(len, parts))), *parts)


def pack_request(
    operation: str, path: Path, sampling: dict[str, Any], limits: dict[str, Any], also: Sequence[int] = ()
) -> bytes:
    """One line for the child. File names that are not UTF-8 travel as escaped surrogates."""
    fields = {
        "operation": operation, "path": str(path), "sampling": sampling, "also": list(also), "limits": limits,
    }  # fmt: skip
    return json.dumps(fields).encode("ascii") + b"\n"
