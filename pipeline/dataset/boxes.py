"""Boxes of rows: as fractions of their frames, and their overlap, pair by pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .index_like import IndexLike


def relative_boxes(index: IndexLike, rows: ArrayLike) -> NDArray[np.float32]:
    """Boxes as fractions of the frame, xyxy, float32 (rows, 4): a source and its fake may differ in resolution."""
    width, height = (index.numbers(name, rows) for name in ("frame_width", "frame_height"))
    sides: NDArray[np.float32] = np.stack([width, height, width, height], axis=1).astype(np.float32)
    return index.boxes("box_xyxy", rows) / sides


def paired_iou(boxes_xyxy: ArrayLike, others_xyxy: ArrayLike) -> NDArray[np.float64]:
    """Intersection over union (N,) of each of the boxes (N, 4) with the one (N, 4) at its position, or one (1, 4).

    0 for boxes without an area.

    >>> paired_iou([(0, 0, 4, 2), (0, 0, 4, 2)], [(0, 0, 2, 2), (4, 0, 8, 2)]).tolist()
    [0.5, 0.0]
    >>> paired_iou([(0, 0, 4, 2), (4, 0, 0, 2), (4, 2, 0, 0)], [(0, 0, 4, 2)]).tolist()
    [1.0, 0.0, 0.0]
    """
    a, b = np.asarray(boxes_xyxy, np.float64), np.asarray(others_xyxy, np.float64)
    overlap = (np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])).clip(0).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - overlap
    iou: NDArray[np.float64] = overlap / np.maximum(union, 1e-9)
    return iou
