"""The label of a clip whose frames have labels of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_REAL = -2  # below all others while they are compared


def clip_labels(labels: NDArray[Any], real: int) -> NDArray[np.int64]:
    """Labels of clips, int64 (N,), of those of their frames, (N, T). `real`: the label of real frames.

    Where the frames agree, theirs. Else the largest that is not real: fake if any frame is fake. Where none is fake and
    some are unknown (-1), the clip is unknown.
    """
    highest = np.where(labels == real, _REAL, labels).max(axis=1).astype(np.int64)
    return np.where(highest == _REAL, real, highest)
