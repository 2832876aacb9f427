"""Smooth warps of a face's proportions: larger eyes, a longer jaw, a narrower mouth."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .portraits import Face, Image, Points

Field = NDArray[np.float32]
"""A scalar or vector for each pixel, float32."""


@dataclass(frozen=True, kw_only=True)
class Proportions:
    """Relative change in size of each part of a face: 0.1 is 10 % larger, -0.1 is 10 % smaller, 0 is unchanged.

    Beyond about +-0.3 the warp would fold over itself.
    """

    eyes: float = 0.0
    nose: float = 0.0
    mouth: float = 0.0
    jaw: float = 0.0
    width: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not -0.3 <= value <= 0.3:
                raise ValueError(f"{name}={value}: must lie within -0.3 and 0.3, or the picture folds")


UNCHANGED_PROPORTIONS = Proportions()


def _displacement(points: Field, face: Face, proportions: Proportions) -> Field:
    """Displacement of each point of the warped image, (..., 2), px.

    A sum of scalings about the parts of the face, each with a Gaussian falloff, so that the warp is smooth.
    """
    left_eye, right_eye, nose, mouth_left, mouth_right = face.landmarks
    mouth = (mouth_left + mouth_right) / 2
    p = proportions
    scalings = (  # centre, sigma in eye distances, relative change in x, in y
        (left_eye, 0.35, p.eyes, p.eyes),
        (right_eye, 0.35, p.eyes, p.eyes),
        (nose, 0.30, p.nose, p.nose),
        (mouth, 0.45, p.mouth, p.mouth / 2),
        (mouth, 0.80, 0.0, p.jaw),
        (nose, 1.10, p.width, 0.0),
    )
    total = np.zeros_like(points)
    for center, sigma, change_x, change_y in scalings:
        offset = points - center
        falloff = np.exp(-np.square(offset).sum(axis=-1) / (2 * (sigma * face.eye_distance) ** 2))
        total += falloff[..., None] * offset * np.array([change_x, change_y], np.float32)
    return total


def warp_image(image: Image, face: Face, proportions: Proportions) -> Image:
    """Manipulation the proportions of the face in an image; same shape and dtype."""
    if proportions == UNCHANGED_PROPORTIONS:
        return image
    height, width = image.shape[:2]
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)
    source = grid - _displacement(grid, face, proportions)
    warped: Image = cv2.remap(image, source, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101)
    return warped


def warp_points(points: Points, face: Face, proportions: Proportions) -> Points:
    """Positions in the warped image of points of the unwarped one, (n, 2), px."""
    moved = points.copy()
    # The displacement is a function of the new position, which is therefore a fixed point; the iteration converges
    # fast because the displacement is a contraction.
    for _ in range(12):
        moved = points + _displacement(moved, face, proportions)
    return moved
