"""Resize windows of frames by area: each pixel is the mean of a bin, as in torch's `adaptive_avg_pool2d`.

Compiled by Numba without the GIL, so that frames are processed in parallel. The sums are exact, so the means equal
torch's up to the rounding of one division.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import cv2
import numpy as np
from numba import uint64
from numpy.typing import NDArray

from .numba_compile import numba_compile
from .pyramid import PIXEL_MEAN, PIXEL_SCALE

Array = NDArray[Any]

_SCALE: Final = np.float32(PIXEL_SCALE)
_SHIFT: Final = np.float32(PIXEL_MEAN * PIXEL_SCALE)
_MAX_PACKED_PIXELS: Final = 257
"""Largest bin, in pixels, whose sum fits into 16 bits."""
_ONE: Final = uint64(1)


_SIGNATURE: Final = "void(u1[:,::1], i8[:,::1], i8[:,::1], i8[:,::1], i8[:,::1], f4[:,:,::1])"


class AreaResizer:
    """Resizes windows of frames and normalises their pixels for the networks. Keeps 4 bytes per source pixel.

    `regions`: (H, W, 3) uint8, one part of each frame. `origins`: (x, y) of its upper left pixel in the frame. Bins are
    clipped to the region.
    """

    def __init__(self, regions: Sequence[NDArray[np.uint8]], origins: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
        sizes = np.array([region.shape[:2] for region in regions])
        ends = sizes[:, 0].cumsum()
        self._first_rows = ends - sizes[:, 0]
        stacked = np.empty((ends[-1], sizes[:, 1].max(), 4), np.uint8)  # stacked vertically
        for region, first, end in zip(regions, self._first_rows, ends, strict=True):
            cv2.cvtColor(region, cv2.COLOR_RGB2RGBA, dst=stacked[first:end, : region.shape[1]])
        self._rows = stacked.reshape(len(stacked), -1)
        self._sizes, self._origins = sizes, np.array(origins)

    def __call__(self, frame_indices: Array, tops: Array, bottoms: Array, lefts: Array, rights: Array) -> Array:
        """Return M windows of h x w bins each: (M, h, w, 4) float32; the fourth channel is padding.

        `frame_indices` (M,): the frame of each window. `tops`, `bottoms` (M, h) and `lefts`, `rights` (M, w) int64: of
        each bin the first pixel and the one past the last, `frame` px, ascending.
        """
        first_rows, (heights, widths) = self._first_rows[frame_indices, None], self._sizes[frame_indices].T[..., None]
        xs, ys = self._origins[frame_indices].T[..., None]
        tops, lefts = (tops - ys).clip(0, heights - 1), (lefts - xs).clip(0, widths - 1)
        bottoms, rights = (bottoms - ys).clip(tops + 1, heights), (rights - xs).clip(lefts + 1, widths)
        edges = [np.ascontiguousarray(edge) for edge in (tops + first_rows, bottoms + first_rows, lefts, rights)]
        means = np.empty((*tops.shape, 4 * lefts.shape[1]), np.float32)
        max_bin_pixels = (bottoms - tops).max(initial=0) * (rights - lefts).max(initial=0)
        (_average_small_bins if max_bin_pixels <= _MAX_PACKED_PIXELS else _average_large_bins)(
            self._rows, *edges, means
        )
        return means.reshape(*tops.shape, -1, 4)


# Plain loops over unsigned indices: Numba vectorises these, and omits the wraparound check of negative indices.


@numba_compile()
def _add_rows(pixels: Array, top: int, bottom: int, first: int, column_sums: Array) -> None:
    count = len(column_sums)
    line = pixels[top, first : first + count]
    for i in range(count):
        column_sums[i] = line[i]
    for y in range(top + 1, bottom):
        line = pixels[y, first : first + count]
        for i in range(count):
            column_sums[i] += line[i]


@numba_compile(_SIGNATURE)
def _average_small_bins(  # noqa: PLR0917 (Numba's signatures have no keywords)
    pixels: Array, tops: Array, bottoms: Array, lefts: Array, rights: Array, means: Array
) -> None:
    """Average bins of at most 257 px: the four channels of a pixel are added as one number of 4 x 16 bits."""
    count = lefts.shape[1]
    column_sums = np.empty(pixels.shape[1], np.uint16)
    packed_columns = column_sums.view(np.uint64)
    sums = np.empty(4 * count, np.uint16)
    packed_sums = sums.view(np.uint64)
    scales = np.empty(4 * count, np.float32)
    for window in range(len(tops)):
        start, stop = lefts[window, 0], rights[window, -1]
        for i in range(4 * count):
            scales[i] = _SCALE / np.float32(rights[window, i // 4] - lefts[window, i // 4])
        for row in range(tops.shape[1]):
            top, bottom = tops[window, row], bottoms[window, row]
            _add_rows(pixels, top, bottom, 4 * start, column_sums[: 4 * (stop - start)])
            for column in range(count):
                left, right = uint64(lefts[window, column] - start), uint64(rights[window, column] - start)
                total = packed_columns[left]
                for i in range(left + _ONE, right):
                    total += packed_columns[i]
                packed_sums[column] = total
            row_scale, line = np.float32(1) / np.float32(bottom - top), means[window, row]
            for i in range(4 * count):
                line[i] = np.float32(sums[i]) * (scales[i] * row_scale) - _SHIFT


@numba_compile(_SIGNATURE)
def _average_large_bins(  # noqa: PLR0917 (Numba's signatures have no keywords)
    pixels: Array, tops: Array, bottoms: Array, lefts: Array, rights: Array, means: Array
) -> None:
    """Average bins of any size, with 32-bit sums."""
    column_sums = np.empty(pixels.shape[1], np.int32)
    for window in range(len(tops)):
        start, stop = lefts[window, 0], rights[window, -1]
        for row in range(tops.shape[1]):
            top, bottom = tops[window, row], bottoms[window, row]
            _add_rows(pixels, top, bottom, 4 * start, column_sums[: 4 * (stop - start)])
            line = means[window, row]
            for column in range(lefts.shape[1]):
                left, right = lefts[window, column], rights[window, column]
                scale = _SCALE / np.float32((right - left) * (bottom - top))
                red = green = blue = np.int32(0)
                for i in range(uint64(4 * (left - start)), uint64(4 * (right - start)), uint64(4)):
                    red += column_sums[i]
                    green += column_sums[i + _ONE]
                    blue += column_sums[i + uint64(2)]
                line[4 * column] = np.float32(red) * scale - _SHIFT
                line[4 * column + 1] = np.float32(green) * scale - _SHIFT
                line[4 * column + 2] = np.float32(blue) * scale - _SHIFT
                line[4 * column + 3] = 0
