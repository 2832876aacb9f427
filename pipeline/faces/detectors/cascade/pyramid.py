"""The levels of the pyramid, and which pixels are averaged into one: as facenet does, by `adaptive_avg_pool2d`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WINDOW_PX: Final = 12
"""PNet looks through a window of 12 x 12 px; a frame is scaled by 12 / min_face_px."""
_LEVEL_FACTOR: Final = 0.709

PIXEL_MEAN, PIXEL_SCALE = 127.5, 0.0078125
"""What the networks were trained on: (pixel - 127.5) / 128."""


def bins(length: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First and past-the-last pixel of each of `count` bins over `length` pixels: two (count,) arrays.

    Neighbours overlap by one pixel where `count` does not divide `length`.

    >>> bins(5, 3)
    (array([0, 1, 3]), array([2, 4, 5]))
    """
    each = np.arange(count)
    return each * length // count, -(-(each + 1) * length // count)


def window_bins(windows: Any, each: Any) -> tuple[Any, Any, Any, Any]:
    """The bins of windows (M, 4) int64 that are brought to S x S px: tops, bottoms, lefts and rights, each (M, S).

    `each` is 0, 1, ... S - 1; arrays of NumPy, or tensors of torch.
    """
    lengths = (windows[:, 2:] - windows[:, :2])[:, :, None]
    starts = windows[:, :2, None] + each * lengths // len(each)
    ends = windows[:, :2, None] - (-(each + 1) * lengths // len(each))
    return starts[:, 1], ends[:, 1], starts[:, 0], ends[:, 0]


def scales(height: int, width: int, min_face_px: int) -> list[float]:
    """By how much the levels of the pyramid are smaller than the frame; none where the frame is below a face.

    >>> [round(scale, 3) for scale in scales(120, 160, 40)]
    [0.3, 0.213, 0.151, 0.107]
    """
    scale = WINDOW_PX / min_face_px
    shortest = min(height, width) * scale
    found = []
    while shortest >= WINDOW_PX:
        found.append(scale)
        scale, shortest = scale * _LEVEL_FACTOR, shortest * _LEVEL_FACTOR
    return found
