"""The colour shift between a source and its fake: one map of RGB for the whole frame.

A fake that is decoded by another YUV matrix than its source, or was graded, differs in every pixel, and by more than
many manipulations do. Such a shift is the same everywhere, so the frame around the faces shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

_SIDE_PX: Final = 96  # of the reduced frames' longer side: averages encoding noise, and offsets of a few pixels
_FACE_MARGIN: Final = 0.2  # of a box's sides: manipulations may reach a little further, and are outliers there
_MIN_FRACTION: Final = 0.05  # of the reduced frame's pixels
_MIN_PIXELS: Final = 50
_CLIP_LEVELS: Final = 3  # from 0 and 255: values that near may have been cut off
_NUM_FITS: Final = 4
_OUTLIER_RATIO: Final = 3.0  # of the median residual
_MIN_OUTLIER: Final = 3.0  # levels
_PRIOR_VARIANCE: Final = 4.0  # squared levels; directions in which colours vary less stay as they are
_MIN_SHIFT: Final = 1.0  # levels (RMS); a smaller shift is rounding and encoding noise
_MIN_SHIFT_RATIO: Final = 0.5  # of the median residual: less is what the offset of two pictures looks like
_MAX_RESIDUAL: Final = 6.0  # levels (median)
_MAX_RESIDUAL_SHARE: Final = 0.5  # of the deviation of the fake's colours from their median
_MAX_LEVERAGE: Final = (
    100.0  # median of the faces' pixels; 2 to 53 in 36 photos, over 76 where all around is dark or grey
)
_SLOPES: Final = (0.2, 5.0)  # of a channel by itself, from black to white


@dataclass(frozen=True, slots=True)
class ColourMap:
    """Maps RGB of the source to that of the fake: affine, and the square of each channel, which follows gamma.

    `weights`: (3, 7) float64, of R, G, B, their squares / 255, and 1.
    """

    weights: NDArray[np.float64]

    def __call__(self, rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Maps a picture (H, W, 3) uint8 RGB."""
        mapped = cv2.transform(_with_squares(rgb), self.weights)
        rounded: NDArray[np.uint8] = np.rint(mapped).clip(0, 255).astype(np.uint8)
        return rounded


def fit_colour_map(
    source: NDArray[np.uint8], fake: NDArray[np.uint8], faces_xyxy: NDArray[np.float32]
) -> ColourMap | None:
    """Fits the map from two matching frames, (H, W, 3) uint8 RGB, by their colours outside all faces.

    Least squares on reduced frames, repeated without the largest residuals (what moves or was manipulated too) and
    biased towards no change, which decides where colours do not vary.
    None where nothing is to be mapped or nothing shows how: the shift is within rounding, too few pixels are left, the
    faces' colours are far from all others, or the map does not explain the difference, as between two scenes.

    Args:
        source: the source's frame.
        fake: the fake's frame, of the same size.
        faces_xyxy: (N, 4), `frame` px, boxes of all faces of the frame.

    """
    small_source, small_fake, is_face, is_used = _reduced(source, fake, faces_xyxy)
    if np.count_nonzero(is_used) < max(_MIN_PIXELS, _MIN_FRACTION * is_used.size):
        return None
    all_features = _with_squares(small_source)
    features = all_features[is_used]
    colours = small_fake[is_used].astype(np.float32)
    changes = colours - features[:, :3]
    is_kept: NDArray[np.bool_] = np.ones(len(changes), np.bool_)
    for _ in range(_NUM_FITS):
        weights = _least_squares(features[is_kept], changes[is_kept])
        shifts = features @ weights[:, :-1].T + weights[:, -1]
        residuals = np.sqrt(np.square(shifts - changes).sum(axis=1))
        residual = float(np.median(residuals))
        if np.sqrt(np.square(shifts).sum(axis=1).mean()) < max(_MIN_SHIFT, _MIN_SHIFT_RATIO * residual):
            return None
        is_kept = residuals <= max(_MIN_OUTLIER, _OUTLIER_RATIO * residual)
    if is_face.any() and np.median(_leverages(all_features[is_face], features[is_kept])) > _MAX_LEVERAGE:
        return None
    return _checked(weights, residual, colours)


def _checked(weights: NDArray[np.float32], residual: float, colours: NDArray[np.float32]) -> ColourMap | None:
    """The map of changes as one of colours, if it explains them and no channel is inverted or blown up by it."""
    deviation = float(np.median(np.sqrt(np.square(colours - np.median(colours, axis=0)).sum(axis=1))))
    of_colours = weights.astype(np.float64) + np.eye(3, 7)
    slopes = np.diagonal(of_colours)[:, None] + np.diagonal(of_colours, 3)[:, None] * [0, 2]
    is_monotonic = slopes.min() >= _SLOPES[0] and slopes.max() <= _SLOPES[1]
    is_explained = residual <= min(_MAX_RESIDUAL, _MAX_RESIDUAL_SHARE * deviation)
    return ColourMap(of_colours) if is_monotonic and is_explained else None


def _reduced(
    source: NDArray[np.uint8], fake: NDArray[np.uint8], faces_xyxy: NDArray[np.float32]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.bool_], NDArray[np.bool_]]:
    """Both frames at `_SIDE_PX`, where faces are, and what is compared: outside them, not cut off at black or white."""
    height, width = fake.shape[:2]
    scale = min(1.0, _SIDE_PX / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small_source, small_fake = (
        cv2.resize(rgb, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False) for rgb in (source, fake)
    )
    limits = (_CLIP_LEVELS,) * 3, (255 - _CLIP_LEVELS,) * 3
    is_used = (cv2.inRange(small_source, *limits) & cv2.inRange(small_fake, *limits)) > 0
    is_face = ~_outside_boxes(is_used.shape, scale * faces_xyxy, 0.0)
    return small_source, small_fake, is_face, is_used & _outside_boxes(is_used.shape, scale * faces_xyxy, _FACE_MARGIN)


def _outside_boxes(shape: tuple[int, ...], boxes_xyxy: NDArray[np.floating], margin: float) -> NDArray[np.bool_]:
    """False in every pixel that touches a box, grown by `margin` of its sides."""
    outside = np.ones(shape, np.bool_)
    for left, top, right, bottom in boxes_xyxy:
        across, down = margin * (right - left), margin * (bottom - top)
        x0, y0 = np.floor([left - across, top - down]).clip(0).astype(int)
        x1, y1 = np.ceil([right + across, bottom + down]).clip(0).astype(int)
        outside[y0:y1, x0:x1] = False
    return outside


def _with_squares(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W, 6) float32: R, G, B and their squares / 255."""
    levels = rgb.astype(np.float32)
    features: NDArray[np.float32] = cv2.merge([levels, levels * levels / 255]).astype(np.float32, copy=False)
    return features


def _least_squares(features: NDArray[np.float32], changes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Weights (3, 7) of the features and of 1; those of features that hardly vary tend to 0 (ridge regression)."""
    means = features.mean(axis=0)
    linear = np.linalg.solve(_covariance(features), (features - means).T @ changes / len(features)).T
    weights: NDArray[np.float32] = np.column_stack([linear, changes.mean(axis=0) - linear @ means]).astype(np.float32)
    return weights


def _leverages(points: NDArray[np.float32], features: NDArray[np.float32]) -> NDArray[np.float32]:
    """How far points (N, 6) are from `features`: squared Mahalanobis distance; about 6 among themselves."""
    offsets = points - features.mean(axis=0)
    leverages: NDArray[np.float32] = (offsets * np.linalg.solve(_covariance(features), offsets.T).T).sum(axis=1)
    return leverages


def _covariance(features: NDArray[np.float32]) -> NDArray[np.float64]:
    centred = features - features.mean(axis=0)
    covariance: NDArray[np.float64] = centred.T @ centred / len(centred) + _PRIOR_VARIANCE * np.eye(features.shape[1])
    return covariance
