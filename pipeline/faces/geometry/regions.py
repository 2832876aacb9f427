"""Bounding boxes of a face's parts, from five landmarks or from 68, and the sharpness of its crop."""

from __future__ import annotations

from typing import Final

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

REGIONS: Final = ("left_eye", "right_eye", "nose", "mouth", "face", "left_brow", "right_brow")
"""Names of the parts; left and right as the viewer sees them."""

_PARTS_OF_68: Final = {
    "left_eye": slice(36, 42), "right_eye": slice(42, 48), "nose": slice(27, 36), "mouth": slice(48, 68),
    "left_brow": slice(17, 22), "right_brow": slice(22, 27),
}  # fmt: skip
_PAD_OF_68: Final = 0.1

# The mouth lies 1.09 eye distances below the eyes in the mean face (hull.TEMPLATE5).
_EYES_TO_MOUTH: Final = 1.09
# And the brows lie 1.6 distances between the eyes' outer corners above the chin.
_BROWS_TO_CHIN: Final = 1.6


def region_boxes(landmarks5: ArrayLike, hull: ArrayLike) -> dict[str, NDArray[np.float32]]:
    """Return a box (4,) float32 xyxy for each of `REGIONS`, in the frame of the landmarks and the hull.

    `landmarks5` is (5, 2), `hull` (M, 2). The unit u is the larger of the eyes' distance and the distance from their
    midpoint to that of the mouth corners / 1.09: in profile the eyes' distance shrinks, the height does not.
    Each part is a rectangle that rotates with the head (down = from eyes to mouth); its bounding box is returned. The
    rectangle extends beyond the part's points by
    eyes: .35 u across, .22 u up and down, from the eye's centre;
    nose: .30 u across, .25 u up and down, from the line between the eyes' midpoint and the tip;
    mouth: .15 u across, .30 u up and down, from the line between the corners;
    brows: .40 u across, .12 u up and down, from .33 u above the eye's centre.
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
        "face": _box_of(outline),
        "left_brow": _enclosing_box(left[None] - 0.33 * unit * down, axes, unit * np.array([0.40, 0.12])),
        "right_brow": _enclosing_box(right[None] - 0.33 * unit * down, axes, unit * np.array([0.40, 0.12])),
    }


def region_boxes_68(points_68: ArrayLike, hull: ArrayLike) -> dict[str, NDArray[np.float32]]:
    """Return a box (4,) float32 xyxy for each of `REGIONS`, in the frame of the 68 points and the hull.

    `points_68` is (68, 2), `hull` (M, 2). A part's box bounds its points and extends beyond them by a tenth of the
    distance between the outer corners of the eyes, or of that between brows and chin / 1.6 where that is larger, as in
    profile. `face` is the hull's bounding box.
    """
    points = np.asarray(points_68, np.float64)
    height = float(np.hypot(*(points[8] - points[17:27].mean(axis=0))))
    pad = _PAD_OF_68 * max(float(np.hypot(*(points[45] - points[36]))), height / _BROWS_TO_CHIN)
    grow = pad * np.array([-1, -1, 1, 1])
    boxes = {name: (_box_of(points[part]) + grow).astype(np.float32) for name, part in _PARTS_OF_68.items()}
    boxes["face"] = _box_of(np.asarray(hull, np.float64))
    return {name: boxes[name] for name in REGIONS}


def mouth_openness(points_68: ArrayLike) -> float:
    """Return the opening of the lips of a face with 68 points (68, 2): 0 is closed, about 1 as high as wide.

    It is the mean distance between upper and lower lip at three places of the inner outline, divided by the distance
    between its corners: the mouth aspect ratio, after the eye's (Soukupova & Cech 2016).
    """
    points = np.asarray(points_68, np.float64)
    openings = np.linalg.norm(points[[61, 62, 63]] - points[[67, 66, 65]], axis=1)
    width = float(np.linalg.norm(points[64] - points[60]))
    return float(openings.mean()) / width if width > 0 else 0.0


def _box_of(points: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.concatenate([points.min(axis=0), points.max(axis=0)]).astype(np.float32)


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
