"""Overlap of boxes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def box_iou(boxes_xyxy: ArrayLike, others_xyxy: ArrayLike) -> NDArray[np.float64]:
    """Intersection over union (N, M) of boxes (N, 4) and others (M, 4) in the same frame; 0 for boxes without an area.

    >>> box_iou([(0, 0, 4, 2)], [(0, 0, 2, 2), (2, 0, 6, 2), (4, 0, 8, 2)]).round(3).tolist()
    [[0.5, 0.333, 0.0]]
    """
    a, b = np.asarray(boxes_xyxy, np.float64)[:, None], np.asarray(others_xyxy, np.float64)[None]
    overlap = (np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])).clip(0).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - overlap
    iou: NDArray[np.float64] = overlap / np.maximum(union, 1e-9)
    return iou
