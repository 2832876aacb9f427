"""Convert decoded frames to upright RGB with square pixels and correct colours."""

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
from .deinterlace import bob_upper_field
from .tone_mapping import HLG, PQ, WIDE_GAMUTS, tone_map_to_bt709

Rgb = npt.NDArray[np.uint8]

_HD_HEIGHT = 720
_MAX_SAMPLE_ASPECT_RATIO = 4
"""A sample aspect ratio beyond 4:1 is an error in the header and ignored."""

# From AVColorSpace (ITU-T H.273, matrix coefficients) to swscale's tables.
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
# Exact rounding and full chroma resolution: swscale's fast paths are off by up to 5 of 255.
_EXACT_CONVERSION = Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT | Interpolation.FULL_CHR_H_INP


class RgbConverter:
    """Converts decoded frames to RGB uint8 (H, W, 3); caches swscale's tables between frames.

    max_pixels: limit on the size of a converted frame.
    """

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._reformatter = VideoReformatter()
        self._rotation: int | None = None
        self._matrix = (1, 0, 0, 1)

    def convert(self, frame: av.video.VideoFrame, sample_aspect_ratio: Fraction | None) -> Rgb:
        """Return the frame as contiguous full-range RGB for BT.709: upright, tone-mapped and deinterlaced.

        sample_aspect_ratio: width of a pixel over its height. The shorter side is enlarged, so no resolution is lost.

        Raises InputError: too_large, unsupported.
        """
        width, height = _square_pixel_size(frame, sample_aspect_ratio)
        if width * height > self._max_pixels:
            raise InputError("too_large", f"{width} x {height} pixels: more than {self._max_pixels} are allowed")
        keeps_size = (width, height) == (frame.width, frame.height)
        scaler = Interpolation.BILINEAR if keeps_size else Interpolation.BICUBIC
        transfer, primaries = int(frame.color_trc), int(frame.color_primaries)
        is_sdr = transfer not in (PQ, HLG) and primaries not in WIDE_GAMUTS
        converted = self._reformatter.reformat(
            bob_upper_field(frame) if frame.interlaced_frame else frame,
            width=width,
            height=height,
            format="rgb24" if is_sdr else "rgb48le",
            src_colorspace=_source_matrix(frame),
            src_color_range=_source_range(frame),
            dst_color_range=ColorRange.JPEG,
            interpolation=scaler | _EXACT_CONVERSION,
            threads=1,
        )
        rgb = converted.to_ndarray()
        if frame.format.name.startswith("gray") and int(frame.color_range) == int(ColorRange.MPEG):
            rgb = _from_limited_range(rgb)
        if not is_sdr:
            rgb = tone_map_to_bt709(np.asarray(rgb, np.uint16), transfer, primaries)
        stored: Rgb = np.asarray(rgb, np.uint8)
        return np.ascontiguousarray(apply_display_matrix(stored, self._display_matrix(frame)))

    def _display_matrix(self, frame: av.video.VideoFrame) -> tuple[int, int, int, int]:
        """Return (a, b, c, d) of ISO/IEC 14496-12, 8.2.2: a point (x, y) goes to (a x + c y, b x + d y).

        Read only when the rotation changes: a frame whose side data was read holds a reference to itself, so its
        planes stay in memory until the next full garbage collection (600 MB at 1080p).
        """
        if self._rotation != frame.rotation:
            self._rotation = frame.rotation
            side_data: Mapping[Any, Any] = frame.side_data
            data = side_data.get("DISPLAYMATRIX")
            a, b, _, c, d = struct.unpack("=5i", bytes(data)[:20]) if data is not None else (1, 0, 0, 0, 1)
            self._matrix = (a, b, c, d)
        return self._matrix


def _square_pixel_size(frame: av.video.VideoFrame, sample_aspect_ratio: Fraction | None) -> tuple[int, int]:
    ratio = sample_aspect_ratio or Fraction(1)
    if not Fraction(1, _MAX_SAMPLE_ASPECT_RATIO) <= ratio <= _MAX_SAMPLE_ASPECT_RATIO:
        ratio = Fraction(1)
    if ratio >= 1:
        return round(frame.width * ratio), frame.height
    return frame.width, round(frame.height / ratio)


def _source_matrix(frame: av.video.VideoFrame) -> Colorspace:
    """Return the YUV matrix that the frame is tagged with.

    Untagged video is BT.709 from 720 lines on, else BT.601, as players assume; untagged HDR is BT.2020. Raises
    InputError: unsupported for matrices that swscale lacks.
    """
    if int(frame.colorspace) in _UNSUPPORTED_MATRICES:
        raise InputError("unsupported", f"its colours are {_UNSUPPORTED_MATRICES[int(frame.colorspace)]}")
    if int(frame.color_trc) in (PQ, HLG):
        return _MATRICES.get(int(frame.colorspace), Colorspace.BT2020)
    untagged = Colorspace.ITU709 if frame.height >= _HD_HEIGHT else Colorspace.ITU601
    return _MATRICES.get(int(frame.colorspace), untagged)


def _source_range(frame: av.video.VideoFrame) -> ColorRange:
    """Return the tagged range; untagged is limited (H.273), except in the old JPEG formats (yuvj*) and RGB."""
    if frame.format.name.startswith("yuvj") or frame.format.is_rgb:
        return ColorRange.JPEG
    return ColorRange.JPEG if int(frame.color_range) == int(ColorRange.JPEG) else ColorRange.MPEG


def _from_limited_range(rgb: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Stretch grey levels whose black is at 16 and whose white is at 235 of 255: swscale takes all grey for full range.

    H.273, 8.3. Grey of a stream that states no range stays as it is.
    """
    peak = np.iinfo(rgb.dtype).max
    levels = (np.arange(peak + 1) - peak * 16 / 255) * (255 / 219)
    stretched: npt.NDArray[Any] = np.rint(np.clip(levels, 0, peak)).astype(rgb.dtype)[rgb]
    return stretched


def apply_display_matrix(rgb: Rgb, matrix: tuple[int, int, int, int]) -> Rgb:
    """Rotate by a multiple of 90 degrees and flip, whichever is nearest to the display matrix; returns a view.

    rgb: uint8 (H, W, 3) as stored. matrix: (a, b, c, d) of `RgbConverter._display_matrix`.
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
