"""Levels of the image pyramid, and the pooling bins of a resize by area, as in torch's `adaptive_avg_pool2d`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WINDOW_PX: Final = 12
"""Side of PNet's receptive field; the first level of a frame is scaled by 12 / min_face_px."""
_LEVEL_FACTOR: Final = 0.709

PIXEL_MEAN, PIXEL_SCALE = 127.5, 0.0078125
"""Normalisation the networks were trained with: (pixel - 127.5) / 128."""


def pool_bins(length: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the past-the-last pixel of each of `count` bins over `length` pixels: two (count,) arrays.

    Neighbouring bins overlap by one pixel where `count` does not divide `length`.

    >>> pool_bins(5, 3)
    (array([0, 1, 3]), array([2, 4, 5]))
    """
    index = np.arange(count)
    return index * length // count, -(-(index + 1) * length // count)


def window_bins(windows: Any, index: Any) -> tuple[Any, Any, Any, Any]:
    """Return the bins to resize windows (M, 4) int64 to S x S px: tops, bottoms, lefts and rights, each (M, S).

    `index` is 0, 1, ... S - 1. Both are NumPy arrays, or both torch tensors.
    """
    lengths = (windows[:, 2:] - windows[:, :2])[:, :, None]
    starts = windows[:, :2, None] + index * lengths // len(index)
    ends = windows[:, :2, None] - (-(index + 1) * lengths // len(index))
    return starts[:, 1], ends[:, 1], starts[:, 0], ends[:, 0]


def pyramid_scales(height: int, width: int, min_face_px: int) -> list[float]:
    """Return the scales of the pyramid's levels; an empty list if the frame is smaller than a face.

    >>> [round(scale, 3) for scale in pyramid_scales(120, 160, 40)]
    [0.3, 0.213, 0.151, 0.107]
    """
    scale = WINDOW_PX / min_face_px
    shorter_side = min(height, width) * scale
    scales = []
    while shorter_side >= WINDOW_PX:
        scales.append(scale)
        scale, shorter_side = scale * _LEVEL_FACTOR, shorter_side * _LEVEL_FACTOR
    return scales
