"""Non-maximum suppression: torchvision's within groups, compiled by Numba, and facenet-pytorch's last one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .numba_compile import numba_compile

Array = NDArray[Any]


def grouped_nms(boxes: Array, scores: Array, groups: Array, overlap: float) -> NDArray[np.int64]:
    """Suppress boxes (M, 4) that overlap a better-scoring one of their group; return the kept indices by falling score.

    `groups` (M,) int64. They overlap at IoUs above `overlap`. The results are those of `torchvision.ops.batched_nms`
    in float64, also in the order of equal scores: by index.
    """
    by_score = np.argsort(-scores, kind="stable")
    by_group = by_score[np.argsort(groups[by_score], kind="stable")]
    is_kept = _suppress(boxes.astype(np.float64)[by_group], groups[by_group], overlap)
    is_kept[by_group] = is_kept.copy()
    keep: NDArray[np.int64] = by_score[is_kept[by_score]]
    return keep


@numba_compile("b1[::1](f8[:,::1], i8[::1], f8)")
def _suppress(boxes: Array, groups: Array, overlap: float) -> Array:
    """Return whether each box is kept (M,), for boxes sorted by group, then by falling score."""
    is_kept = np.zeros(len(boxes), np.bool_)
    kept, first, count = np.empty(len(boxes), np.int64), 0, 0  # kept[first:count]: the current group's
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in range(len(boxes)):
        if i and groups[i] != groups[i - 1]:
            first = count
        is_kept[i] = True
        for j in kept[first:count]:
            width = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
            height = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            shared = max(width, 0.0) * max(height, 0.0)
            if shared / (areas[j] + areas[i] - shared) > overlap:
                is_kept[i] = False
                break
        if is_kept[i]:
            kept[count] = i
            count += 1
    return is_kept


def nested_nms(boxes: Array, scores: Array, overlap: float) -> NDArray[np.int64]:
    """Suppress boxes (M, 4) that share more than `overlap` of their own or of a better-scoring box's area.

    Return the kept indices by falling score. The results are those of facenet-pytorch's `nms_numpy` with "Min".
    """
    areas = (boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)
    keep, remaining = [], np.argsort(scores)
    while len(remaining):
        best, remaining = remaining[-1], remaining[:-1]
        keep.append(best)
        sides = np.minimum(boxes[best, 2:], boxes[remaining, 2:]) - np.maximum(boxes[best, :2], boxes[remaining, :2])
        width, height = np.maximum(sides + 1, 0).T
        remaining = remaining[width * height / np.minimum(areas[best], areas[remaining]) <= overlap]
    return np.array(keep, np.int64)
