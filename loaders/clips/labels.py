"""The label of a clip whose frames have labels of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def clip_labels(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Labels of clips, int64 (N,), of those of their frames, (N, T).

    Where the frames agree, theirs. Else the largest: fake (1) if any frame is fake. Where that would be 0, real, and
    some frames are unknown (-1), the clip is unknown.
    """
    lowest, highest = labels.min(axis=1).astype(np.int64), labels.max(axis=1).astype(np.int64)
    return np.where((lowest < 0) & (highest == 0), -1, highest)
