"""MTCNN's arithmetic on boxes: facenet-pytorch's, operation by operation, so that results agree.

Boxes are (M, 4) float32, xyxy, `frame` px, counted from 1 and inclusive as in the authors' MATLAB code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def cell_boxes(rows: Array, columns: Array, scales: Array) -> Array:
    """Return the boxes of PNet's cells (M,) on levels with `scales` (M,) float32: windows of 12 px at stride 2 px."""
    corner = np.stack([columns, rows], 1).astype(np.float32) * 2
    return np.floor(np.concatenate([corner + 1, corner + 12], 1) / scales[:, None])


def apply_pnet_offsets(boxes: Array, offsets: Array) -> Array:
    """Shift the edges of boxes by PNet's offsets (M, 4), in fractions of width and height."""
    sides = boxes[:, 2:] - boxes[:, :2]
    shifted: Array = boxes + offsets * np.tile(sides, 2)
    return shifted


def apply_offsets(boxes: Array, offsets: Array) -> Array:
    """Shift the edges of boxes by RNet's or ONet's offsets (M, 4), in fractions of width + 1 and height + 1."""
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    shifted: Array = boxes + offsets * np.tile(sides, 2)
    return shifted


def to_squares(boxes: Array) -> Array:
    """Return the square around each box's centre with the box's longer side."""
    sides = boxes[:, 2:] - boxes[:, :2]
    longest = sides.max(axis=1, keepdims=True)
    corner = boxes[:, :2] + sides * 0.5 - longest * 0.5
    return np.concatenate([corner, corner + longest], 1)


def clip_to_frame(boxes: Array, width: int, height: int) -> NDArray[np.int64]:
    """Clip boxes to their frame: (M, 4) int64, xyxy, counted from 0, end exclusive; may be empty."""
    # Regression is unbounded: casting values beyond int64 is undefined, and they are outside of any frame.
    integral = np.nan_to_num(boxes, nan=0, posinf=0, neginf=0).clip(-(2**30), 2**30).astype(np.int64)
    return np.concatenate([integral[:, :2].clip(min=1) - 1, np.minimum(integral[:, 2:], (width, height))], 1)


def points_in_frame(boxes: Array, points: Array) -> Array:
    """Convert ONet's points (M, 10), all x then all y, in fractions of a box, to (M, 5, 2), `frame` px."""
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    return np.stack(
        [sides[:, :1] * points[:, :5] + boxes[:, :1] - 1, sides[:, 1:] * points[:, 5:] + boxes[:, 1:2] - 1], 2
    )
