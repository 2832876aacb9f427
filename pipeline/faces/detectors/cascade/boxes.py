"""The arithmetic of MTCNN's windows: facenet-pytorch's, operation by operation, so that results agree.

Boxes are (M, 4) float32 tensors, xyxy, `frame` px, counted from 1 and inclusive as in the authors' MATLAB code.
"""

from __future__ import annotations

import torch
from torchvision.ops import nms

Tensor = torch.Tensor


def cell_boxes(rows: Tensor, columns: Tensor, scales: Tensor) -> Tensor:
    """The boxes of PNet's cells (M,) at levels of the pyramid of `scales` (M,): windows of 12 px, two px apart."""
    corner = torch.stack([columns, rows], 1).float() * 2
    return torch.cat([corner + 1, corner + 12], 1).div_(scales[:, None]).floor_()


def moved_by_pnet(boxes: Tensor, offsets: Tensor) -> Tensor:
    """Boxes moved by offsets (M, 4), which are shares of width and height."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return boxes + offsets * sides.repeat(1, 2)


def moved(boxes: Tensor, offsets: Tensor) -> Tensor:
    """The same after RNet and ONet, which count the last pixel too."""
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    return boxes + offsets * sides.repeat(1, 2)


def squared(boxes: Tensor) -> Tensor:
    """The square around each box's middle, as wide as its longer side."""
    sides = boxes[:, 2:] - boxes[:, :2]
    longest = sides.amax(1, keepdim=True)
    corner = boxes[:, :2] + sides * 0.5 - longest * 0.5
    return torch.cat([corner, corner + longest], 1)


def windows(boxes: Tensor, sizes: Tensor) -> Tensor:
    """What of each box lies in its frame: (M, 4) int64, xyxy from 0, the last pixel not included; may be empty.

    `sizes`: width and height of each frame (M, 2), or of all (2,), int64.
    """
    # Regression is unbounded: what is beyond int32 would be undefined when it is cast, and is outside anyway.
    whole = boxes.nan_to_num(0, 0, 0).clamp(-(2**30), 2**30).trunc().long()
    first = whole[:, :2].clamp(min=1) - 1
    last = torch.minimum(whole[:, 2:], sizes)
    return torch.cat([first, last], 1)


def points_in_frame(boxes: Tensor, points: Tensor) -> Tensor:
    """ONet's points (M, 10), first all x, then all y, as shares of a box: (M, 5, 2), `frame` px."""
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    return torch.stack(
        [sides[:, :1] * points[:, :5] + boxes[:, :1] - 1, sides[:, 1:] * points[:, 5:] + boxes[:, 1:2] - 1], 2
    )


def suppressed(boxes: Tensor, scores: Tensor, groups: Tensor, overlap: float) -> Tensor:
    """Which boxes stay where of two in the same group (M,) that overlap by more, the surer one stays; surest first."""
    if not len(boxes):
        return groups
    # Groups are moved apart; float64, for float32 would round boxes that are moved far.
    apart = groups.double() * (boxes.max().double() - boxes.min().double() + 1)
    kept: Tensor = nms(boxes.double() + apart[:, None], scores.double(), overlap)
    return kept
