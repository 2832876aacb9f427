"""From a decoded frame to upright RGB with square pixels and the right colours."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import av.video
import numpy as np
import numpy.typing as npt
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter

from ...errors import InputError
from .deinterlace import upper_field
from .tone_mapping import HLG, PQ, WIDE_GAMUTS, to_standard_range

Rgb = npt.NDArray[np.uint8]

_HD_HEIGHT = 720
_MAX_STRETCH = 4
"""A sample aspect ratio beyond 4:1 is a mistake in the header, not a shape of pixels."""

# AVColorSpace (ITU-T H.273, matrix coefficients) to swscale's tables.
_MATRICES = {
    1: Colorspace.ITU709,
    4: Colorspace.FCC,
    5: Colorspace.ITU601,
    6: Colorspace.ITU601,
    7: Colorspace.SMPTE240M,
    9: Colorspace.BT2020,
    10: Colorspace.BT2020,
}
_UNSUPPORTED_MATRICES = {
    8: "YCgCo", 11: "YDzDx", 12: "of a matrix derived from primaries", 13: "of a matrix derived from primaries",
    14: "ICtCp", 15: "IPT-C2", 16: "YCgCo-Re", 17: "YCgCo-Ro",
}  # fmt: skip
# Exact rounding and chroma at full resolution: swscale's fast paths are off by up to 5 of 255, and only wanted
# frames are converted.
_EXACT = Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP


class RgbConverter:
    """Turns decoded frames into uint8 (H, W, 3); keeps swscale's tables between frames.

    sample_aspect_ratio: width of a pixel over its height. The smaller side is stretched, so nothing is lost.
    """

    def __init__(self, sample_aspect_ratio: Fraction | None, max_pixels: int) -> None:
        ratio = sample_aspect_ratio or Fraction(1)
        plausible = Fraction(1, _MAX_STRETCH) <= ratio <= _MAX_STRETCH
        self._ratio = ratio if plausible else Fraction(1)
        self._max_pixels = max_pixels
        self._reformatter = VideoReformatter()
        self._rotation: int | None = None
        self._matrix = (1, 0, 0, 1)

    def convert(self, frame: av.video.VideoFrame) -> Rgb:
        """Return the frame as contiguous RGB of standard range, for BT.709, and of one field.

        Raises InputError: too_large, unsupported.
        """
        width, height = self._square_size(frame)
        if width * height > self._max_pixels:
            raise InputError("too_large", f"{width} x {height} pixels: more than {self._max_pixels} are allowed")
        same_size = (width, height) == (frame.width, frame.height)
        scaler = Interpolation.BILINEAR if same_size else Interpolation.BICUBIC
        transfer, primaries = int(frame.color_trc), int(frame.color_primaries)
        is_standard = transfer not in (PQ, HLG) and primaries not in WIDE_GAMUTS
        converted = self._reformatter.reformat(
            upper_field(frame) if frame.interlaced_frame else frame,
            width=width,
            height=height,
            format="rgb24" if is_standard else "rgb48le",
            src_colorspace=_coefficients(frame),
            src_color_range=_color_range(frame),
            dst_color_range=ColorRange.JPEG,
            interpolation=scaler | _EXACT,
            threads=1,
        )
        rgb = converted.to_ndarray()
        if not is_standard:
            rgb = to_standard_range(np.asarray(rgb, np.uint16), transfer, primaries)
        stored: Rgb = np.asarray(rgb, np.uint8)
        return np.ascontiguousarray(turn_upright(stored, self._display_matrix(frame)))

    def _square_size(self, frame: av.video.VideoFrame) -> tuple[int, int]:
        if self._ratio >= 1:
            return round(frame.width * self._ratio), frame.height
        return frame.width, round(frame.height / self._ratio)

    def _display_matrix(self, frame: av.video.VideoFrame) -> tuple[int, int, int, int]:
        """Return (a, b, c, d) of ISO/IEC 14496-12, 8.2.2: a point (x, y) goes to (a x + c y, b x + d y).

        Read again only when the rotation changes: a frame that was asked for its side data holds a reference to
        itself, so its planes would stay until the garbage collector's next full round (600 MB at 1080p).
        """
        if self._rotation != frame.rotation:
            self._rotation = frame.rotation
            side_data: Mapping[Any, Any] = frame.side_data
            data = side_data.get("DISPLAYMATRIX")
            a, b, _, c, d = struct.unpack("=5i", bytes(data)[:20]) if data is not None else (1, 0, 0, 0, 1)
            self._matrix = (a, b, c, d)
        return self._matrix


def _coefficients(frame: av.video.VideoFrame) -> Colorspace:
    """Take the tag; raises InputError: unsupported for matrices that swscale has not.

    Untagged video is BT.709 from 720 lines on, else BT.601, as players have it, and HDR is BT.2020.
    """
    if int(frame.colorspace) in _UNSUPPORTED_MATRICES:
        raise InputError("unsupported", f"its colours are {_UNSUPPORTED_MATRICES[int(frame.colorspace)]}")
    if int(frame.color_trc) in (PQ, HLG):
        return _MATRICES.get(int(frame.colorspace), Colorspace.BT2020)
    untagged = Colorspace.ITU709 if frame.height >= _HD_HEIGHT else Colorspace.ITU601
    return _MATRICES.get(int(frame.colorspace), untagged)


def _color_range(frame: av.video.VideoFrame) -> ColorRange:
    """Take the tag; untagged is limited (H.273), except in the old JPEG formats (yuvj*) and RGB."""
    if frame.format.name.startswith("yuvj") or frame.format.is_rgb:
        return ColorRange.JPEG
    return ColorRange.JPEG if int(frame.color_range) == int(ColorRange.JPEG) else ColorRange.MPEG


def turn_upright(rgb: Rgb, matrix: tuple[int, int, int, int]) -> Rgb:
    """Turn and mirror by whole quarter turns, the nearest to what the matrix asks; returns a view.

    rgb: uint8 (H, W, 3) as stored. matrix: see `_display_matrix`.
    """
    a, b, c, d = matrix
    if abs(a) + abs(d) < abs(b) + abs(c):  # stored rows become columns
        rgb = rgb.transpose(1, 0, 2)
        a, d = c, b
    if a < 0:
        rgb = rgb[:, ::-1]
    if d < 0:
        rgb = rgb[::-1]
    return rgb
