"""How a face and what surrounds it look: enough to tell, within one video, who is who. It is no face recognition."""

from __future__ import annotations

import math
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

# How far the region reaches from the box's centre, in longer sides of the box. Hair, clothes and what lies behind a
# person tell more than a face of a few pixels, and they change less when a head turns.
_LEFT_RIGHT: Final = 1.2
_UP: Final = 1.0
_DOWN: Final = 1.6

_LAYOUT_PX: Final = 8
_COLOUR_PX: Final = 24
# L* goes from 0 to 255 in OpenCV's 8 bits; a* and b* of what cameras see hardly leave the middle half.
_COLOUR_RANGES: Final = [0, 256, 64, 192, 64, 192]
_COLOUR_BINS: Final = 8
_LENGTH: Final = 3 * _LAYOUT_PX**2 + _COLOUR_BINS**3
# Products of colours differ by less than those of layouts: of one person mostly within 2 %, of others by 5 to 40 %.
_COLOUR_WEIGHT: Final = 6.0
# Contrast that all regions are brought to, and how far colours are strengthened or weakened with it at most.
_CONTRAST: Final = 48.0
_LEAST_GAIN, _LARGEST_GAIN = 0.5, 2.5

# Spreads each count over its neighbours, so that a light that changes a little does not empty a bin.
_SPREAD: Final = (
    0.5 * np.eye(_COLOUR_BINS) + 0.25 * np.eye(_COLOUR_BINS, k=1) + 0.25 * np.eye(_COLOUR_BINS, k=-1)
).astype(np.float32)


def looks(rgb: NDArray[np.uint8], boxes_xyxy: NDArray[np.float32]) -> NDArray[np.float32]:
    """Describe the faces of a frame (H, W, 3) uint8 by their boxes (N, 4), `frame` px: (N, 704) float32.

    Two parts, both of the region round the box that holds head, shoulders and some of what is behind: its layout, a
    thumbnail of 8 x 8 in L*a*b* without its mean lightness, and its colours, the square roots of a histogram in
    L*a*b* of one brightness and contrast. Their products add up to `likeness`.
    """
    regions = [_lab(_surroundings(rgb, box)) for box in boxes_xyxy]
    return np.array([_described(lab) for lab in regions], np.float32).reshape(-1, _LENGTH)


def scene(rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Describe a whole frame (H, W, 3) uint8 in the same way: (704,) float32."""
    return _described(_lab(rgb))


def likeness(looks_a: NDArray[np.float32], looks_b: NDArray[np.float32]) -> NDArray[np.float64]:
    """How alike (A, 704) and (B, 704) are: (A, B), 1 the same, about 0 as unlike as two scenes are; -7 the least.

    It is the layouts' correlation less six times the colours' squared Hellinger distance.
    """
    alike: NDArray[np.float64] = looks_a.astype(np.float64) @ looks_b.astype(np.float64).T - _COLOUR_WEIGHT
    return alike


def _surroundings(rgb: NDArray[np.uint8], box_xyxy: NDArray[np.float32]) -> NDArray[np.uint8]:
    """What is in the frame of the region round a box."""
    left, top, right, bottom = (float(edge) for edge in box_xyxy)
    side, height, width = max(right - left, bottom - top), *rgb.shape[:2]
    x, y = (left + right) / 2, (top + bottom) / 2
    x0, x1 = (int(min(max(edge, 0), width)) for edge in (x - _LEFT_RIGHT * side, x + _LEFT_RIGHT * side))
    y0, y1 = (int(min(max(edge, 0), height)) for edge in (y - _UP * side, y + _DOWN * side))
    return rgb[y0:y1, x0:x1]


def _lab(part: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """L*a*b* (24, 24, 3) uint8 of a part of a frame; black where that is empty."""
    if not part.size:
        return np.zeros((_COLOUR_PX, _COLOUR_PX, 3), np.uint8)
    step = max(1, min(part.shape[:2]) // (3 * _COLOUR_PX))  # every pixel of a large part would tell no more
    thinned = np.ascontiguousarray(part[::step, ::step])
    small = cv2.resize(thinned, (_COLOUR_PX, _COLOUR_PX), interpolation=cv2.INTER_AREA)
    lab: NDArray[np.uint8] = cv2.cvtColor(small, cv2.COLOR_RGB2LAB).astype(np.uint8, copy=False)
    return lab


def _described(lab: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.concatenate([_layout(lab), math.sqrt(_COLOUR_WEIGHT) * _colours(lab)]).astype(np.float32)


def _layout(lab: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(192,) of length 1; where all is one grey, the one direction that pictures with a layout hardly have."""
    thumb = cv2.resize(lab, (_LAYOUT_PX, _LAYOUT_PX), interpolation=cv2.INTER_AREA).astype(np.float32) - 128
    thumb[..., 0] -= thumb[..., 0].mean()
    thumb[..., 1:] *= 2
    length = float(np.linalg.norm(thumb))
    flat: NDArray[np.float32] = thumb.ravel() / length if length > 0 else np.full(thumb.size, thumb.size**-0.5)
    return flat


def _evenly_lit(lab: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The same brightness and contrast for all, since cameras and lamps change theirs in mid-scene; `lab`'s shape."""
    even = lab.astype(np.float32) - 128
    gain = _CONTRAST / (float(even[..., 0].std()) + 4)
    even[..., 0] = (even[..., 0] - even[..., 0].mean()) * gain
    even[..., 1:] *= min(max(gain, _LEAST_GAIN), _LARGEST_GAIN)
    return even + 128


def _colours(lab: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(512,) of length 1."""
    bins = [_COLOUR_BINS] * 3
    within = _evenly_lit(lab).clip(_COLOUR_RANGES[::2], np.array(_COLOUR_RANGES[1::2]) - 1).astype(np.uint8)
    counts = np.asarray(cv2.calcHist([within], [0, 1, 2], None, bins, _COLOUR_RANGES), np.float32)
    for _ in range(3):  # along each axis in turn
        counts = np.tensordot(counts, _SPREAD, axes=(0, 0))
    shares: NDArray[np.float32] = np.sqrt(counts.ravel() / counts.sum())
    return shares
