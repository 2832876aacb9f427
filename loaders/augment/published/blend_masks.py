"""Blending masks of `SelfBlend`: polygons of the face, deformed and blurred at random."""

from __future__ import annotations

import random
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ..areas import FRACTION_BITS
from ..points import FacePoints

KERNEL_SIZES: Final = range(5, 26, 2)
"""Sides of a Gaussian kernel, px."""

_ELASTIC_ALPHA_PX: Final = 50
_ELASTIC_SIGMA_PX: Final = 7
_ELASTIC_STEP_PX: Final = 4
_MASK_SIDES_PX: Final = (192, 256)
_SECOND_SIGMAS_PX: Final = (5, 45)
_ALL_68_SHARE: Final = 0.25

_CHIN: Final = (8,)
_COMPONENTS: Final = (
    (*range(9), 17),
    (*range(8, 17), 26),
    (*range(17, 20), *_CHIN),
    (*range(24, 27), *_CHIN),
    (*range(19, 25), *_CHIN),
    (*range(17, 22), 27, *range(31, 36), *_CHIN),
    (*range(22, 27), 27, *range(31, 36), *_CHIN),
    (*range(27, 31), *range(31, 36)),
)
_DFL_FULL: Final = (
    (*range(17), *range(48, 68)),
    (*range(27, 31), 33),
    (*range(17, 27), 0, 27, 16, 33),
)


def draw_face_mask(rng: random.Random, face: FacePoints, size: tuple[int, int]) -> NDArray[np.float32]:
    """Float32 (H, W): 1 within one of the four published shapes of the 68 points; without these, within the hull."""
    points = face.landmarks_68
    if not len(points):
        return _filled([face.hull], size)
    with_forehead = rng.random() >= _ALL_68_SHARE
    shape = rng.choice(("dfl_full", "extended", "components", "facehull"))
    if shape == "facehull":
        return _filled([np.concatenate([points, face.hull]) if with_forehead else points], size)
    if shape == "extended":
        points = _with_raised_brows(points)
    parts = _DFL_FULL if shape == "dfl_full" else _COMPONENTS
    return _filled([points[list(part)] for part in parts], size)


def draw_blend_mask(
    generator: np.random.Generator, rng: random.Random, mask: NDArray[np.float32]
) -> NDArray[np.float32] | None:
    """Deforms a mask (H, W) of 0 and 1 elastically, and blurs it twice: float32 (H, W), 0..1; None if nothing is left.

    Between the two blurs only what the first left at 1 is kept, so the mask shrinks and what it fades into lies in the
    face. Both are applied at a random size, so that kernels have other sizes, and other ones along each axis.
    """
    height, width = mask.shape
    map_x, map_y = _elastic_map(generator, height, width)
    mask = cv2.remap(mask, map_x, map_y, cv2.INTER_NEAREST)
    scaled = cv2.resize(mask, (rng.randint(*_MASK_SIDES_PX), rng.randint(*_MASK_SIDES_PX)))
    first, second = rng.choice(KERNEL_SIZES), rng.choice(KERNEL_SIZES)
    blurred = cv2.GaussianBlur(scaled, (first, first), 0)
    core = (blurred >= blurred.max() * (1 - 1e-5)).astype(np.float32) if blurred.max() > 0 else blurred
    soft = cv2.GaussianBlur(core, (second, second), rng.randint(*_SECOND_SIGMAS_PX))
    peak = float(soft.max())
    if not peak > 0:
        return None
    result: NDArray[np.float32] = cv2.resize(soft / peak, (width, height))
    return np.clip(result, 0, 1)


def _elastic_map(generator: np.random.Generator, height: int, width: int) -> tuple[NDArray[np.float32], ...]:
    """Where each pixel (H, W) comes from, x and y: displaced by noise of -1..1, blurred and multiplied.

    The noise is drawn, and blurred, for every `_ELASTIC_STEP_PX`th pixel: blurring leaves nothing finer. Its variance
    is that of the mean over so many pixels.
    """
    step = _ELASTIC_STEP_PX
    noise = generator.random((2, -(-height // step), -(-width // step)), np.float32) * 2 - 1
    fields = (cv2.GaussianBlur(field, (0, 0), _ELASTIC_SIGMA_PX / step) for field in noise)
    dx, dy = (cv2.resize(field, (width, height), interpolation=cv2.INTER_CUBIC) for field in fields)
    scale = np.float32(_ELASTIC_ALPHA_PX / step)
    dx, dy = dx * scale, dy * scale
    dx += np.arange(width, dtype=np.float32)
    dy += np.arange(height, dtype=np.float32)[:, None]
    return dx, dy


def _with_raised_brows(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """The 68 points with the brows moved up by half of their distance from the eyes."""
    raised = points.copy()
    left_temple, right_temple = (0.75 * points[eye] + 0.25 * points[jaw] for eye, jaw in ((36, 0), (45, 16)))
    below_left = np.stack([left_temple, *points[36:40]])
    below_right = np.stack([*points[42:46], right_temple])
    raised[17:22] += (points[17:22] - below_left) / 2
    raised[22:27] += (points[22:27] - below_right) / 2
    return raised


def _filled(polygons: list[NDArray[np.float32]], size: tuple[int, int]) -> NDArray[np.float32]:
    mask = np.zeros(size, np.float32)
    for polygon in polygons:
        hull = cv2.convexHull(np.clip(polygon, -1e4, 1e4).astype(np.float32))
        cv2.fillConvexPoly(mask, np.rint(hull * (1 << FRACTION_BITS)).astype(np.int32), 1.0, shift=FRACTION_BITS)
    return mask
