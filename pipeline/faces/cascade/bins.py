"""Which pixels are averaged into one: torch's `adaptive_avg_pool2d`, by which facenet resizes everything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
