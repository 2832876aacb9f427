"""Resized pixels of frames: each is the mean of a bin of the frame's own, as torch's `adaptive_avg_pool2d` has it.

Compiled by Numba, and without Python's lock: that is what lets frames run side by side. The sums are exact, so the
means are torch's but for the rounding of one division.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import cv2
import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from .pyramid import PIXEL_MEAN, PIXEL_SCALE

Array = NDArray[Any]

_SCALE: Final = np.float32(PIXEL_SCALE)
_SHIFT: Final = np.float32(PIXEL_MEAN * PIXEL_SCALE)
_PACKED_PIXELS: Final = 257
"""Of so many pixels, and no more, the sum stays within 16 bits."""
_ONE: Final = uint64(1)


def _compiled(*signature: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def compile_(function: Callable[..., None]) -> Callable[..., None]:
        options = {"nogil": True, "error_model": "numpy"}
        try:
            return njit(*signature, cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # no folder that can be written: compiled in every process, which takes a second
            return njit(*signature, **options)(function)  # type: ignore[no-any-return]

    return compile_


_MEANS: Final = "void(u1[:,::1], i8[:,::1], i8[:,::1], i8[:,::1], i8[:,::1], f4[:,:,::1])"


class PixelMeans:
    """Means over bins of frames (H, W, 3) uint8, normalised as the networks want them: 4 bytes a pixel of their own.

    Of frames of which there are only parts, whose left top px are `corners` (x, y), bins are cut off at their borders.
    """

    def __init__(self, parts: Sequence[NDArray[np.uint8]], corners: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
        sides = np.array([part.shape[:2] for part in parts])
        ends = sides[:, 0].cumsum()
        self._first_rows = ends - sides[:, 0]
        sheet = np.empty((ends[-1], sides[:, 1].max(), 4), np.uint8)  # one below the other
        for part, first, end in zip(parts, self._first_rows, ends, strict=True):
            cv2.cvtColor(part, cv2.COLOR_RGB2RGBA, dst=sheet[first:end, : part.shape[1]])
        self._rows = sheet.reshape(len(sheet), -1)
        self._sides, self._corners = sides, np.array(corners)

    def __call__(self, frames: Array, tops: Array, bottoms: Array, lefts: Array, rights: Array) -> Array:
        """Of M windows of h x w bins each, wherever they lie: (M, h, w, 4) float32, the fourth channel of no use.

        `frames` (M,): which frame; `tops` and `bottoms` (M, h), `lefts` and `rights` (M, w): int64, of each bin the
        first pixel and the one past the last, in order.
        """
        first_rows, (heights, widths) = self._first_rows[frames, None], self._sides[frames].T[..., None]
        xs, ys = self._corners[frames].T[..., None]
        tops, lefts = (tops - ys).clip(0, heights - 1), (lefts - xs).clip(0, widths - 1)
        bottoms, rights = (bottoms - ys).clip(tops + 1, heights), (rights - xs).clip(lefts + 1, widths)
        edges = [np.ascontiguousarray(one) for one in (tops + first_rows, bottoms + first_rows, lefts, rights)]
        means = np.empty((*tops.shape, 4 * lefts.shape[1]), np.float32)
        most_pixels = (bottoms - tops).max(initial=0) * (rights - lefts).max(initial=0)
        (_packed if most_pixels <= _PACKED_PIXELS else _unpacked)(self._rows, *edges, means)
        return means.reshape(*tops.shape, -1, 4)


# Plain loops over unsigned indices: Numba makes the best code of these, and looks at no index for being negative.


@_compiled()
def _add_rows(pixels: Array, top: int, bottom: int, first: int, column_sums: Array) -> None:
    count = len(column_sums)
    line = pixels[top, first : first + count]
    for at in range(count):
        column_sums[at] = line[at]
    for y in range(top + 1, bottom):
        line = pixels[y, first : first + count]
        for at in range(count):
            column_sums[at] += line[at]


@_compiled(_MEANS)
def _packed(  # noqa: PLR0917 (Numba's signatures have no keywords)
    pixels: Array, tops: Array, bottoms: Array, lefts: Array, rights: Array, means: Array
) -> None:
    """Small bins: the four channels of a pixel are added as one number of 4 x 16 bits."""
    count = lefts.shape[1]
    column_sums = np.empty(pixels.shape[1], np.uint16)
    of_pixels = column_sums.view(np.uint64)
    sums = np.empty(4 * count, np.uint16)
    of_bins = sums.view(np.uint64)
    scales = np.empty(4 * count, np.float32)
    for window in range(len(tops)):
        start, stop = lefts[window, 0], rights[window, -1]
        for at in range(4 * count):
            scales[at] = _SCALE / np.float32(rights[window, at // 4] - lefts[window, at // 4])
        for row in range(tops.shape[1]):
            top, bottom = tops[window, row], bottoms[window, row]
            _add_rows(pixels, top, bottom, 4 * start, column_sums[: 4 * (stop - start)])
            for column in range(count):
                left, right = uint64(lefts[window, column] - start), uint64(rights[window, column] - start)
                total = of_pixels[left]
                for at in range(left + _ONE, right):
                    total += of_pixels[at]
                of_bins[column] = total
            share, line = np.float32(1) / np.float32(bottom - top), means[window, row]
            for at in range(4 * count):
                line[at] = np.float32(sums[at]) * (scales[at] * share) - _SHIFT


@_compiled(_MEANS)
def _unpacked(  # noqa: PLR0917 (Numba's signatures have no keywords)
    pixels: Array, tops: Array, bottoms: Array, lefts: Array, rights: Array, means: Array
) -> None:
    """Large bins."""
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
                for at in range(uint64(4 * (left - start)), uint64(4 * (right - start)), uint64(4)):
                    red += column_sums[at]
                    green += column_sums[at + _ONE]
                    blue += column_sums[at + uint64(2)]
                line[4 * column] = np.float32(red) * scale - _SHIFT
                line[4 * column + 1] = np.float32(green) * scale - _SHIFT
                line[4 * column + 2] = np.float32(blue) * scale - _SHIFT
                line[4 * column + 3] = 0
