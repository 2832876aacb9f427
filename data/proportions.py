"""Changing a face's proportions smoothly: larger eyes, a longer jaw, a narrower mouth."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .portraits import Face, Image, Points

Field = NDArray[np.float32]
"""One number or one vector a pixel, float32."""


@dataclass(frozen=True, kw_only=True)
class Proportions:
    """How much larger each part of a face becomes: 0.1 is a tenth larger, -0.1 a tenth smaller, 0 no change.

    Beyond about +-0.3 the picture would fold over itself.
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


UNCHANGED = Proportions()


def _displacement(points: Field, face: Face, proportions: Proportions) -> Field:
    """How far the change pushes each point of the changed picture, (..., 2), px.

    A sum of scalings round the parts of the face, each fading out as a Gaussian, so that nothing tears.
    """
    left_eye, right_eye, nose, mouth_left, mouth_right = face.landmarks
    mouth = (mouth_left + mouth_right) / 2
    p = proportions
    pushes = (  # centre; reach in eye distances; how much in x, in y
        (left_eye, 0.35, p.eyes, p.eyes),
        (right_eye, 0.35, p.eyes, p.eyes),
        (nose, 0.30, p.nose, p.nose),
        (mouth, 0.45, p.mouth, p.mouth / 2),
        (mouth, 0.80, 0.0, p.jaw),
        (nose, 1.10, p.width, 0.0),
    )
    total = np.zeros_like(points)
    for center, reach, in_x, in_y in pushes:
        away = points - center
        fade = np.exp(-np.square(away).sum(axis=-1) / (2 * (reach * face.eye_distance) ** 2))
        total += fade[..., None] * away * np.array([in_x, in_y], np.float32)
    return total


def change_picture(image: Image, face: Face, proportions: Proportions) -> Image:
    """Change the proportions of the face in a picture; same shape and dtype."""
    if proportions == UNCHANGED:
        return image
    height, width = image.shape[:2]
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).astype(np.float32)
    source = grid - _displacement(grid, face, proportions)
    changed: Image = cv2.remap(image, source, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101)
    return changed


def change_points(points: Points, face: Face, proportions: Proportions) -> Points:
    """Find where points of the old picture lie in the changed one, (n, 2), px."""
    moved = points.copy()
    # The displacement is given at the new place, so the new place is a fixed point; it converges fast because
    # the pushes are contractions.
    for _ in range(12):
        moved = points + _displacement(moved, face, proportions)
    return moved
