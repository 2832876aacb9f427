"""Renders video frames from a still image: camera path, light, focus and grain as functions of time.

Two scenes of the same shot and seed differ only where their images differ, so a fake stays aligned with its original
frame by frame, as in a real re-blended video.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sin

import cv2
import numpy as np
from numpy.typing import NDArray

from .portraits import Image, Portrait

GRAIN_MARGIN_PX = 64
"""The grain pattern is this much larger than a frame in each dimension; every frame crops it at another offset."""


@dataclass(frozen=True, kw_only=True)
class Shot:
    """Camera parameters. `size` is (width, height) in px, `hertz` the base frequency, `phase` in radians.

    `face_share`: height of the (first) face's hull as a fraction of the frame's height, at rest; without a face, of the
    image's height. `pan`: amplitude of the camera's motion as a fraction of the frame, in x and y. `zoom`: amplitude of
    the relative scale. `sway_degrees`: amplitude of the tilt. `flicker`: amplitude of the relative brightness.
    `blur_px`: largest sigma of the defocus. `grain`: standard deviation of the noise, on a scale of 0 to 255.
    """

    size: tuple[int, int]
    face_share: float
    pan: tuple[float, float]
    zoom: float
    sway_degrees: float
    hertz: float
    phase: float
    flicker: float
    blur_px: float
    grain: float


class Scene:
    """Renders frames of a still image; `seed` determines the grain alone.

    Construction resizes the image once, each frame is one affine warp.
    """

    def __init__(self, portrait: Portrait, shot: Shot, *, seed: int) -> None:
        self._shot = shot
        scale, focus = _framing(portrait, shot)
        # Resized once with a good filter: the warp of each frame is then close to 1:1 and cannot alias.
        interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        self._image: Image = cv2.resize(portrait.image, None, fx=scale, fy=scale, interpolation=interpolation)
        self._focus = focus * scale
        rng = np.random.default_rng(seed)
        width, height = shot.size
        pattern = rng.normal(0, shot.grain, (height + GRAIN_MARGIN_PX, width + GRAIN_MARGIN_PX, 1))
        pattern = np.repeat(np.rint(pattern).astype(np.int16), 3, axis=2)
        # Positive and negative grain separately: two saturating uint8 operations cost less than one int16 addition.
        self._positive_grain = np.maximum(pattern, 0).astype(np.uint8)
        self._negative_grain = np.maximum(-pattern, 0).astype(np.uint8)
        self._grain_offsets = rng.integers(0, GRAIN_MARGIN_PX, (64, 2))

    def frame(self, index: int, seconds: float) -> Image:
        """Render the frame at a time since the start: (height, width, 3) uint8 BGR."""
        image = cv2.warpAffine(self._image, self.camera(seconds), self._shot.size, borderMode=cv2.BORDER_REFLECT_101)
        sigma = self._shot.blur_px * max(0.0, self._wave(seconds, 0.7, 2.0))
        if sigma > 0.3:
            image = cv2.GaussianBlur(image, (7, 7), sigma)
        image = cv2.convertScaleAbs(image, alpha=1 + self._shot.flicker * self._wave(seconds, 1.3, 5.0))
        dx, dy = self._grain_offsets[index % len(self._grain_offsets)]
        window = np.s_[dy : dy + self._shot.size[1], dx : dx + self._shot.size[0]]
        grainy: Image = cv2.subtract(cv2.add(image, self._positive_grain[window]), self._negative_grain[window])
        return grainy

    def camera(self, seconds: float) -> NDArray[np.float64]:
        """The affine map from the resized image to the frame, (2, 3)."""
        shot, (width, height) = self._shot, self._shot.size
        zoom = 1 + shot.zoom * self._wave(seconds, 0.6, 1.0)
        degrees = shot.sway_degrees * self._wave(seconds, 1.0, 0.0)
        focus_x = self._focus[0] + shot.pan[0] * width * self._wave(seconds, 0.8, 3.0)
        focus_y = self._focus[1] + shot.pan[1] * height * self._wave(seconds, 0.9, 4.0)
        focus_y = _clamp_view(focus_y, height / zoom, self._image.shape[0])
        matrix: NDArray[np.float64] = cv2.getRotationMatrix2D((focus_x, focus_y), degrees, zoom)
        matrix[:, 2] += width / 2 - focus_x, height / 2 - focus_y
        return matrix

    def _wave(self, seconds: float, tempo: float, offset: float) -> float:
        return sin(2 * pi * self._shot.hertz * tempo * seconds + self._shot.phase + offset)


def _framing(portrait: Portrait, shot: Shot) -> tuple[float, NDArray[np.float64]]:
    """Frame px per image px, and the point of the image at the centre of the frame, at rest."""
    width, height = portrait.size
    subject = portrait.faces[0].height if portrait.faces else float(height)
    scale = shot.face_share * shot.size[1] / subject
    if not portrait.faces:
        return scale, np.array([width / 2, height / 2])
    centers = np.stack([face.center for face in portrait.faces])
    visible = shot.size[1] / scale
    # Heads are slightly above the centre.
    center_y = _clamp_view(float(centers[:, 1].mean()) + 0.06 * visible, visible, height)
    return scale, np.array([float(centers[:, 0].mean()), center_y])


def _clamp_view(center: float, visible: float, length: int) -> float:
    """Clamp the view to the image: beyond its upper edge a mirrored head would show."""
    return max(min(center, length - visible / 2), visible / 2)
