"""Resized pixels of one frame from a summed-area table: each is four numbers away, however large its bin is.

Crow 1984, "Summed-area tables for texture mapping". The sums are exact, so the means are those of torch's
`adaptive_avg_pool2d` but for the rounding of one division.
"""

from __future__ import annotations

from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from .bins import PIXEL_MEAN, PIXEL_SCALE

Array = NDArray[Any]

_BAND_PIXELS: Final = 1 << 14
"""How much of the table is worked on at once, so that it stays in a core's cache."""


class PixelSums:
    """Sums over all pixels above and left of each, of a frame (H, W, 3) uint8: 16 bytes a pixel.

    All means are normalised as the networks want them, float32, of four channels; the fourth is of no use.
    """

    def __init__(self, rgb: NDArray[np.uint8]) -> None:
        # Four channels, since what NumPy gathers is then one number of 16 bytes, which it does fast. In int32 the
        # table of a frame beyond 8 million pixels may overflow, and differences are right all the same.
        table = np.asarray(cv2.integral(cv2.cvtColor(rgb, cv2.COLOR_RGB2RGBA), sdepth=cv2.CV_32S))
        self._rows = table.view(np.complex128)[..., 0]
        self._band = np.empty((max(1, _BAND_PIXELS // table.shape[1]), *table.shape[1:]), np.int32)
        self._sums = [np.empty(self._band.shape[:2], np.complex128) for _ in range(2)]

    def tiles(self, tops: Array, bottoms: Array, columns: list[tuple[Array, Array]]) -> list[Array]:
        """Means of rows of bins, cut into tiles: for each of `columns`, which are lefts and rights (w,), (1, h, w, 4).

        `tops` and `bottoms` (h,): int64, of each bin the first pixel and the one past the last.
        """
        if 4 * sum(len(lefts) for lefts, _ in columns) < self._rows.shape[1]:  # whole rows would be mostly in vain
            return [self.windows(tops[None], bottoms[None], lefts[None], rights[None]) for lefts, rights in columns]
        tiles = [np.empty((1, len(tops), len(lefts), 4), np.float32) for lefts, _ in columns]
        for first in range(0, len(tops), len(self._band)):
            rows = slice(first, first + len(self._band))
            band = self._row_sums(tops[rows], bottoms[rows])
            for tile, (lefts, rights) in zip(tiles, columns, strict=True):
                sums, others = (one.reshape(-1)[: len(band) * len(lefts)].reshape(len(band), -1) for one in self._sums)
                totals = band.take(rights, 1, out=sums, mode="clip").view(np.int32)  # "raise" would copy
                totals -= band.take(lefts, 1, out=others, mode="clip").view(np.int32)
                tile[0, rows] = totals.reshape(*sums.shape, 4)
        for tile, (lefts, rights) in zip(tiles, columns, strict=True):
            _normalise(tile, tops[None], bottoms[None], lefts[None], rights[None])
        return tiles

    def _row_sums(self, tops: Array, bottoms: Array) -> Array:
        table = self._rows.view(np.int32).reshape(*self._rows.shape, 4)
        band = self._band[: len(tops)]
        for row, top, bottom in zip(band, tops, bottoms, strict=True):
            np.subtract(table[bottom], table[top], out=row)
        return band.view(np.complex128)[..., 0]

    def windows(self, tops: Array, bottoms: Array, lefts: Array, rights: Array) -> Array:
        """Means of M windows of h x w bins each, wherever they lie: (M, h, w, 4).

        `tops` and `bottoms` (M, h), `lefts` and `rights` (M, w): as above.
        """
        table, width = self._rows.reshape(-1), self._rows.shape[1]
        tops_at, bottoms_at = ((rows * width)[:, :, None] for rows in (tops, bottoms))

        def corners(rows: Array, columns: Array) -> Array:
            return table.take(rows + columns[:, None, :]).view(np.int32)

        totals = corners(bottoms_at, rights)
        totals -= corners(tops_at, rights)
        totals -= corners(bottoms_at, lefts)
        totals += corners(tops_at, lefts)
        means = totals.reshape(*tops.shape, -1, 4).astype(np.float32)
        _normalise(means, tops, bottoms, lefts, rights)
        return means


def _normalise(sums: Array, tops: Array, bottoms: Array, lefts: Array, rights: Array) -> None:
    flat = sums.reshape(*tops.shape, -1)
    flat *= np.repeat((PIXEL_SCALE / (rights - lefts)).astype(np.float32), 4, axis=1)[:, None]
    flat *= (1 / (bottoms - tops)).astype(np.float32)[:, :, None]
    flat -= np.float32(PIXEL_MEAN * PIXEL_SCALE)
