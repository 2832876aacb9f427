"""Bounding boxes of a face's parts, and the sharpness of its crop."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

REGIONS: Final = ("left_eye", "right_eye", "nose", "mouth", "face")
"""Names of the parts; left and right as the viewer sees them."""

# The mouth lies 1.09 eye distances below the eyes in the mean face (hull.TEMPLATE5).
_EYES_TO_MOUTH: Final = 1.09


def region_boxes(landmarks5: ArrayLike, hull: ArrayLike) -> dict[str, NDArray[np.float32]]:
    """Return a box (4,) float32 xyxy for each of `REGIONS`, in the frame of the landmarks and the hull.

    `landmarks5` is (5, 2), `hull` (M, 2). The unit u is the larger of the eyes' distance and the distance from their
    midpoint to that of the mouth corners / 1.09: in profile the eyes' distance shrinks, the height does not.
    Each part is a rectangle that rotates with the head (down = from eyes to mouth); its bounding box is returned. The
    rectangle extends beyond the part's points by
    eyes: .35 u across, .22 u up and down, from the eye's centre;
    nose: .30 u across, .25 u up and down, from the line between the eyes' midpoint and the tip;
    mouth: .15 u across, .30 u up and down, from the line between the corners.
    `face` is the hull's bounding box.
    """
    points = np.asarray(landmarks5, np.float64)
    left, right, nose, mouth_left, mouth_right = points
    bridge, mouth = (left + right) / 2, (mouth_left + mouth_right) / 2
    height = float(np.hypot(*(mouth - bridge)))
    unit = max(float(np.hypot(*(right - left))), height / _EYES_TO_MOUTH)
    down = (mouth - bridge) / height if height > 0 else np.array([0.0, 1.0])
    axes = np.stack([(down[1], -down[0]), down])
    corners = np.stack([mouth_left, mouth_right])
    nose_line = np.stack([bridge, nose])
    outline = np.asarray(hull, np.float64)
    return {
        "left_eye": _enclosing_box(left[None], axes, unit * np.array([0.35, 0.22])),
        "right_eye": _enclosing_box(right[None], axes, unit * np.array([0.35, 0.22])),
        "nose": _enclosing_box(nose_line, axes, unit * np.array([0.30, 0.25])),
        "mouth": _enclosing_box(corners, axes, unit * np.array([0.15, 0.30])),
        "face": np.concatenate([outline.min(axis=0), outline.max(axis=0)]).astype(np.float32),
    }


def _enclosing_box(
    points: NDArray[np.float64], axes: NDArray[np.float64], pad: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Axis-aligned bounding box of the points' rectangle along `axes` (rows: across, down), extended by `pad`."""
    rotated_points = points @ axes.T
    low, high = rotated_points.min(axis=0) - pad, rotated_points.max(axis=0) + pad
    corners = np.array([(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]) @ axes
    return np.concatenate([corners.min(axis=0), corners.max(axis=0)]).astype(np.float32)


def sharpness(crop: NDArray[np.uint8]) -> float:
    """Variance of the Laplacian of the grey crop (H, W, 3) uint8: 0 is flat; higher is sharper, or noisier.

    Pech-Pacheco et al. 2000, "Diatom autofocusing in brightfield microscopy". It grows with contrast and
    noise and falls if a crop is enlarged, so compare only crops of similar size.
    """
    grey = cv2.cvtColor(np.ascontiguousarray(crop), cv2.COLOR_RGB2GRAY)
    return float(cv2.Laplacian(grey, cv2.CV_64F).var())
