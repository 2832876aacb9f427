"""Appearance descriptors of a face and its surroundings, to match people within one video; not face recognition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Self

import cv2
import numpy as np
from numpy.typing import NDArray

# Extent of the described region from the box's centre, in longer sides of the box. Hair, clothes and background
# discriminate better than a face of a few pixels, and change less when a head turns.
_SIDE_REACH: Final = 1.2
_UP_REACH: Final = 1.0
_DOWN_REACH: Final = 1.6

_LAYOUT_PX: Final = 8
_COLOUR_PX: Final = 24
# L* is 0 to 255 in OpenCV's 8 bits; a* and b* of camera images rarely leave the middle half.
_COLOUR_RANGES: Final = [0, 256, 64, 192, 64, 192]
_COLOUR_BINS: Final = 8
_DESCRIPTOR_LENGTH: Final = 3 * _LAYOUT_PX**2 + _COLOUR_BINS**3
# Weight of colour against layout: colour products differ mostly within 2 % for one person, by 5 to 40 % for others.
_COLOUR_WEIGHT: Final = 6.0
# Standard deviation of L* that regions are normalised to, and limits of the gain that is applied to a* and b*.
_TARGET_CONTRAST: Final = 48.0
_MIN_GAIN, _MAX_GAIN = 0.5, 2.5

# Spreads each count over neighbouring bins, so that a small change of light does not empty a bin.
_BIN_SMOOTHING: Final = (
    0.5 * np.eye(_COLOUR_BINS) + 0.25 * np.eye(_COLOUR_BINS, k=1) + 0.25 * np.eye(_COLOUR_BINS, k=-1)
).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Appearance:
    """What is kept of a frame to track the N faces in it: `scene` (704,) and `faces` (N, 704), float32 descriptors."""

    scene: NDArray[np.float32]
    faces: NDArray[np.float32]

    @classmethod
    def of(cls, rgb: NDArray[np.uint8], boxes_xyxy: NDArray[np.float32]) -> Self:
        """Describe a frame (H, W, 3) uint8 with boxes (N, 4), `frame` px."""
        faces = [_descriptor(_context_region(rgb, box)) for box in boxes_xyxy]
        return cls(_descriptor(rgb), np.array(faces, np.float32).reshape(-1, _DESCRIPTOR_LENGTH))


def appearance_similarity(
    descriptors_a: NDArray[np.float32], descriptors_b: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Similarity in [-7, 1] of each pair of descriptors (A, 704) and (B, 704): (A, B) float64; about 0 if unrelated.

    It is the layouts' correlation minus six times the colours' squared Hellinger distance.
    """
    similarity: NDArray[np.float64] = (
        descriptors_a.astype(np.float64) @ descriptors_b.astype(np.float64).T - _COLOUR_WEIGHT
    )
    return similarity


def _context_region(rgb: NDArray[np.uint8], box_xyxy: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the part of the frame around a box that is described; may be empty."""
    left, top, right, bottom = (float(edge) for edge in box_xyxy)
    side, height, width = max(right - left, bottom - top), *rgb.shape[:2]
    x, y = (left + right) / 2, (top + bottom) / 2
    x0, x1 = (int(min(max(edge, 0), width)) for edge in (x - _SIDE_REACH * side, x + _SIDE_REACH * side))
    y0, y1 = (int(min(max(edge, 0), height)) for edge in (y - _UP_REACH * side, y + _DOWN_REACH * side))
    return rgb[y0:y1, x0:x1]


def _lab(region: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Resize a region to L*a*b* (24, 24, 3) uint8; black if it is empty."""
    if not region.size:
        return np.zeros((_COLOUR_PX, _COLOUR_PX, 3), np.uint8)
    step = max(1, min(region.shape[:2]) // (3 * _COLOUR_PX))  # large regions are subsampled first
    thinned = np.ascontiguousarray(region[::step, ::step])
    small = cv2.resize(thinned, (_COLOUR_PX, _COLOUR_PX), interpolation=cv2.INTER_AREA)
    lab: NDArray[np.uint8] = cv2.cvtColor(small, cv2.COLOR_RGB2LAB).astype(np.uint8, copy=False)
    return lab


def _descriptor(region: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Descriptor (704,) float32 of a region: of a face, that around its box with head, shoulders and some background.

    It has two parts: the layout, an 8 x 8 thumbnail in L*a*b* without its mean lightness, and the colours, the square
    roots of an L*a*b* histogram at normalised brightness and contrast. `appearance_similarity` is computed from their
    inner products.
    """
    lab = _lab(region)
    return np.concatenate([_layout_thumbnail(lab), math.sqrt(_COLOUR_WEIGHT) * _colour_histogram(lab)]).astype(
        np.float32
    )


def _layout_thumbnail(lab: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Unit vector (192,); for a region of one grey, the constant vector, which hardly correlates with any layout."""
    thumbnail = cv2.resize(lab, (_LAYOUT_PX, _LAYOUT_PX), interpolation=cv2.INTER_AREA).astype(np.float32) - 128
    thumbnail[..., 0] -= thumbnail[..., 0].mean()
    thumbnail[..., 1:] *= 2
    length = float(np.linalg.norm(thumbnail))
    flat: NDArray[np.float32] = (
        thumbnail.ravel() / length if length > 0 else np.full(thumbnail.size, thumbnail.size**-0.5)
    )
    return flat


def _normalize_light(lab: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Normalise brightness and contrast, which cameras and lamps change within a scene; same shape as `lab`."""
    normalized = lab.astype(np.float32) - 128
    gain = _TARGET_CONTRAST / (float(normalized[..., 0].std()) + 4)
    normalized[..., 0] = (normalized[..., 0] - normalized[..., 0].mean()) * gain
    normalized[..., 1:] *= min(max(gain, _MIN_GAIN), _MAX_GAIN)
    return normalized + 128


def _colour_histogram(lab: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Unit vector (512,): square roots of the smoothed L*a*b* histogram."""
    bins = [_COLOUR_BINS] * 3
    clipped = _normalize_light(lab).clip(_COLOUR_RANGES[::2], np.array(_COLOUR_RANGES[1::2]) - 1).astype(np.uint8)
    counts = np.asarray(cv2.calcHist([clipped], [0, 1, 2], None, bins, _COLOUR_RANGES), np.float32)
    for _ in range(3):  # along each axis in turn
        counts = np.tensordot(counts, _BIN_SMOOTHING, axes=(0, 0))
    histogram: NDArray[np.float32] = np.sqrt(counts.ravel() / counts.sum())
    return histogram
