"""Takes rows of blocks out of a JPEG without decoding it, so that no other rows need be decoded.

A JPEG is coded in blocks of 8 or 16 px (MCUs), each as a difference to the one before, up to a restart marker, where
coding begins anew (ITU-T T.81, A.2 and F.2.2.4). facefeed writes one after every row of blocks: so rows that follow
each other are an image of their own once its header states their height and its markers are numbered from 0.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

_BASELINE, _HUFFMAN = 0xC0, 0xC1  # types of frames that are coded in one pass
_OTHER_FRAMES: Final = {*range(0xC2, 0xD0)} - {0xC4, 0xC8, 0xCC}
_MARKER, _START_OF_SCAN, _RESTART_INTERVAL, _FIRST_RESTART, _END = 0xFF, 0xDA, 0xDD, 0xD0, b"\xff\xd9"
_BLOCK_PX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JpegRows:
    """Rows `top` to `bottom` of an image, px, as a JPEG of their own."""

    jpeg: bytes
    top: int
    bottom: int


def rows_of_jpeg(jpeg: bytes, top: int, bottom: int) -> JpegRows | None:
    """The rows of blocks that hold the px rows `top` to `bottom` of an image, whose pixels are as in the whole image.

    None where that is the whole image, or where it has no restart marker after every row of blocks.
    """
    layout = _Layout.of(jpeg)
    if layout is None:
        return None
    # One px more, since colour at half the resolution is interpolated from the rows above and below.
    first, last = max(top - 1, 0) // layout.block_px, min(-(-(bottom + 1) // layout.block_px), layout.num_rows)
    if first >= last or last - first == layout.num_rows or not jpeg.endswith(_END):
        return None
    markers = _restart_markers(jpeg, layout.scan_at)
    if len(markers) != layout.num_rows - 1:
        return None
    start = markers[first - 1] + 2 if first else layout.scan_at
    end = markers[last - 1] if last < layout.num_rows else len(jpeg) - len(_END)
    coded_rows = bytearray(jpeg[start:end])
    for number, marker in enumerate(markers[first : last - 1]):
        coded_rows[marker + 1 - start] = _FIRST_RESTART + number % 8
    first_px, last_px = first * layout.block_px, min(last * layout.block_px, layout.height_px)
    height = struct.pack(">H", last_px - first_px)
    header = (jpeg[: layout.height_at], height, jpeg[layout.height_at + len(height) : layout.scan_at])
    return JpegRows(jpeg=b"".join((*header, coded_rows, _END)), top=first_px, bottom=last_px)


def _restart_markers(jpeg: bytes, scan_at: int) -> list[int]:
    """Where they begin, in bytes. In coded pixels a byte of 0xFF is followed by 0, so these are all."""
    coded = np.frombuffer(jpeg, np.uint8)
    (at,) = np.nonzero(coded[scan_at:-1] == _MARKER)
    at += scan_at
    positions: list[int] = at[(coded[at + 1] & 0xF8) == _FIRST_RESTART].tolist()
    return positions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where a JPEG states its height and where its coded pixels begin, in bytes; `block_px`: height of its blocks."""

    height_at: int
    height_px: int
    block_px: int
    scan_at: int

    @property
    def num_rows(self) -> int:
        """Rows of blocks."""
        return -(-self.height_px // self.block_px)

    @classmethod
    def of(cls, jpeg: bytes) -> Self | None:
        """None of what is coded in several passes, of one channel, or without restart markers between its rows."""
        at, interval, frame = 2, 0, None
        try:
            while (kind := jpeg[at + 1]) != _START_OF_SCAN:
                if jpeg[at] != _MARKER or kind in _OTHER_FRAMES:
                    return None
                if kind in (_BASELINE, _HUFFMAN):
                    frame = at
                if kind == _RESTART_INTERVAL:
                    (interval,) = struct.unpack_from(">H", jpeg, at + 4)
                at += 2 + int.from_bytes(jpeg[at + 2 : at + 4])
            if frame is None:
                return None
            height_px, width_px, channels = struct.unpack_from(">HHB", jpeg, frame + 5)
            sampling = [jpeg[frame + 11 + 3 * channel] for channel in range(channels)]
            scan_length, channels_in_scan = struct.unpack_from(">HB", jpeg, at + 2)
        except (struct.error, IndexError):
            return None
        block_width_px = _BLOCK_PX * max((factors >> 4 for factors in sampling), default=0)
        block_px = _BLOCK_PX * max((factors & 15 for factors in sampling), default=0)
        if channels < 2 or channels_in_scan != channels or not (height_px and block_px and block_width_px):
            return None
        if interval != math.ceil(width_px / block_width_px):
            return None
        return cls(height_at=frame + 5, height_px=height_px, block_px=block_px, scan_at=at + 2 + scan_length)
