"""MTCNN's arithmetic on boxes: facenet-pytorch's, operation by operation, so that results agree.

Boxes are (M, 4) float32 tensors, xyxy, `frame` px, counted from 1 and inclusive as in the authors' MATLAB code.
"""

from __future__ import annotations

import torch
from torchvision.ops import nms

Tensor = torch.Tensor


def cell_boxes(rows: Tensor, columns: Tensor, scales: Tensor) -> Tensor:
    """Return the boxes of PNet's cells (M,) on levels with `scales` (M,): windows of 12 px at a stride of 2 px."""
    corner = torch.stack([columns, rows], 1).float() * 2
    return torch.cat([corner + 1, corner + 12], 1).div_(scales[:, None]).floor_()


def apply_pnet_offsets(boxes: Tensor, offsets: Tensor) -> Tensor:
    """Shift the edges of boxes by PNet's offsets (M, 4), in fractions of width and height."""
    sides = boxes[:, 2:] - boxes[:, :2]
    return boxes + offsets * sides.repeat(1, 2)


def apply_offsets(boxes: Tensor, offsets: Tensor) -> Tensor:
    """Shift the edges of boxes by RNet's or ONet's offsets (M, 4), in fractions of width + 1 and height + 1."""
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    return boxes + offsets * sides.repeat(1, 2)


def to_squares(boxes: Tensor) -> Tensor:
    """Return the square around each box's centre with the box's longer side."""
    sides = boxes[:, 2:] - boxes[:, :2]
    longest = sides.amax(1, keepdim=True)
    corner = boxes[:, :2] + sides * 0.5 - longest * 0.5
    return torch.cat([corner, corner + longest], 1)


def clip_to_frame(boxes: Tensor, sizes: Tensor) -> Tensor:
    """Clip boxes to their frames: (M, 4) int64, xyxy, counted from 0, end exclusive; may be empty.

    `sizes`: width and height of each box's frame (M, 2), or of all frames (2,), int64.
    """
    # Regression is unbounded: casting values beyond int32 is undefined, and they are outside of any frame.
    integral = boxes.nan_to_num(0, 0, 0).clamp(-(2**30), 2**30).trunc().long()
    first = integral[:, :2].clamp(min=1) - 1
    last = torch.minimum(integral[:, 2:], sizes)
    return torch.cat([first, last], 1)


def points_in_frame(boxes: Tensor, points: Tensor) -> Tensor:
    """Convert ONet's points (M, 10), all x then all y, in fractions of a box, to (M, 5, 2), `frame` px."""
    sides = boxes[:, 2:] - boxes[:, :2] + 1
    return torch.stack(
        [sides[:, :1] * points[:, :5] + boxes[:, :1] - 1, sides[:, 1:] * points[:, 5:] + boxes[:, 1:2] - 1], 2
    )


def grouped_nms(boxes: Tensor, scores: Tensor, groups: Tensor, overlap: float) -> Tensor:
    """Non-maximum suppression within groups (M,) at IoUs above `overlap`; return the kept indices by falling score."""
    if not len(boxes):
        return groups
    # Groups are shifted apart; in float64, since float32 would round boxes that are shifted far.
    group_offsets = groups.double() * (boxes.max().double() - boxes.min().double() + 1)
    keep: Tensor = nms(boxes.double() + group_offsets[:, None], scores.double(), overlap)
    return keep
