"""Boxes of a face's parts, and how sharp its crop is."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

REGIONS: Final = ("left_eye", "right_eye", "nose", "mouth", "face")
"""The parts, left and right as the viewer sees them."""

# The mouth lies 1.09 eye distances below the eyes in the mean face (hull.TEMPLATE5).
_EYES_TO_MOUTH: Final = 1.09


def regions(landmarks5: ArrayLike, hull: ArrayLike) -> dict[str, NDArray[np.float32]]:
    """Return a box (4,) float32 xyxy for each of `REGIONS`, in the frame of the landmarks and the hull.

    `landmarks5` is (5, 2), `hull` (M, 2). The unit is u = max(distance of the eyes, distance from between
    the eyes to between the mouth corners / 1.09): in profile the eyes draw together, the height stays.
    Each part is a rectangle that turns with the head (down = from eyes to mouth), of which the box that
    holds it is taken. It reaches past its points by
    eyes: .35 u across, .22 u up and down, from the eye's centre;
    nose: .30 u across, .25 u up and down, from the line between the eyes' middle and the tip;
    mouth: .15 u across, .30 u up and down, from the line between the corners.
    `face` is the hull's own box.
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
        "left_eye": _box(left[None], axes, unit * np.array([0.35, 0.22])),
        "right_eye": _box(right[None], axes, unit * np.array([0.35, 0.22])),
        "nose": _box(nose_line, axes, unit * np.array([0.30, 0.25])),
        "mouth": _box(corners, axes, unit * np.array([0.15, 0.30])),
        "face": np.concatenate([outline.min(axis=0), outline.max(axis=0)]).astype(np.float32),
    }


def _box(points: NDArray[np.float64], axes: NDArray[np.float64], pad: NDArray[np.float64]) -> NDArray[np.float32]:
    """Box, in image axes, of the points' rectangle along `axes` (rows: across, down) widened by `pad`."""
    along = points @ axes.T
    low, high = along.min(axis=0) - pad, along.max(axis=0) + pad
    turned = np.array([(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]) @ axes
    return np.concatenate([turned.min(axis=0), turned.max(axis=0)]).astype(np.float32)


def sharpness(crop: NDArray[np.uint8]) -> float:
    """Variance of the Laplacian of the grey crop (H, W, 3) uint8: 0 is flat; higher is sharper, or noisier.

    Pech-Pacheco et al. 2000, "Diatom autofocusing in brightfield microscopy". It grows with contrast and
    noise and falls where a crop was enlarged, so compare only crops of a like size.
    """
    grey = cv2.cvtColor(np.ascontiguousarray(crop), cv2.COLOR_RGB2GRAY)
    return float(cv2.Laplacian(grey, cv2.CV_64F).var())
