"""Filming a still picture: camera path, light, focus and grain, all functions of time.

Two scenes of the same shot and seed differ only where their pictures differ: that is what keeps a fake
aligned with its original, frame by frame, as in a real re-blended video.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sin

import cv2
import numpy as np
from numpy.typing import NDArray

from .portraits import Image, Portrait

GRAIN_SLACK = 64
"""The grain pattern is this many px larger than a frame, each way; every frame cuts it elsewhere."""


@dataclass(frozen=True, kw_only=True)
class Shot:
    """How a picture is filmed. Frequencies are in hertz, `phase` in radians.

    `face_share`: height of the (first) face's hull as a share of the frame's height, at rest; with no face,
    of the picture's height. `pan`: largest way of the camera as a share of the frame, in x and y.
    `zoom`: largest change of scale as a share. `sway_degrees`: largest tilt. `flicker`: largest change of
    light as a share. `blur_px`: largest sigma of lost focus. `grain`: standard deviation of the noise, on a
    scale of 0 to 255.
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
    """A picture being filmed; `frame(k, seconds)` gives the frame.

    `seed` decides the grain alone. Making one costs a resize of the picture, a frame one affine warp.
    """

    def __init__(self, portrait: Portrait, shot: Shot, *, seed: int) -> None:
        self._shot = shot
        scale, focus = _framing(portrait, shot)
        # Resized once with a good filter: the warp of each frame is then close to 1:1 and cannot alias.
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        self._image: Image = cv2.resize(portrait.image, None, fx=scale, fy=scale, interpolation=how)
        self._focus = focus * scale
        rng = np.random.default_rng(seed)
        width, height = shot.size
        pattern = rng.normal(0, shot.grain, (height + GRAIN_SLACK, width + GRAIN_SLACK, 1))
        pattern = np.repeat(np.rint(pattern).astype(np.int16), 3, axis=2)
        # What the grain adds and what it takes, apart: two saturating uint8 sums cost less than an int16 one.
        self._brighter = np.maximum(pattern, 0).astype(np.uint8)
        self._darker = np.maximum(-pattern, 0).astype(np.uint8)
        self._grain_steps = rng.integers(0, GRAIN_SLACK, (64, 2))

    def frame(self, index: int, seconds: float) -> Image:
        """Film the frame at a time since the start: (height, width, 3) uint8 BGR."""
        image = cv2.warpAffine(self._image, self.camera(seconds), self._shot.size, borderMode=cv2.BORDER_REFLECT_101)
        sigma = self._shot.blur_px * max(0.0, self._wave(seconds, 0.7, 2.0))
        if sigma > 0.3:
            image = cv2.GaussianBlur(image, (7, 7), sigma)
        image = cv2.convertScaleAbs(image, alpha=1 + self._shot.flicker * self._wave(seconds, 1.3, 5.0))
        dx, dy = self._grain_steps[index % len(self._grain_steps)]
        cut = np.s_[dy : dy + self._shot.size[1], dx : dx + self._shot.size[0]]
        grainy: Image = cv2.subtract(cv2.add(image, self._brighter[cut]), self._darker[cut])
        return grainy

    def camera(self, seconds: float) -> NDArray[np.float64]:
        """Give the affine map from the resized picture to the frame, (2, 3)."""
        shot, (width, height) = self._shot, self._shot.size
        zoom = 1 + shot.zoom * self._wave(seconds, 0.6, 1.0)
        degrees = shot.sway_degrees * self._wave(seconds, 1.0, 0.0)
        focus_x = self._focus[0] + shot.pan[0] * width * self._wave(seconds, 0.8, 3.0)
        focus_y = self._focus[1] + shot.pan[1] * height * self._wave(seconds, 0.9, 4.0)
        focus_y = _kept_inside(focus_y, height / zoom, self._image.shape[0])
        matrix: NDArray[np.float64] = cv2.getRotationMatrix2D((focus_x, focus_y), degrees, zoom)
        matrix[:, 2] += width / 2 - focus_x, height / 2 - focus_y
        return matrix

    def _wave(self, seconds: float, tempo: float, offset: float) -> float:
        return sin(2 * pi * self._shot.hertz * tempo * seconds + self._shot.phase + offset)


def _framing(portrait: Portrait, shot: Shot) -> tuple[float, NDArray[np.float64]]:
    """Frame px per picture px, and the picture's point in the middle of the frame, at rest."""
    width, height = portrait.size
    subject = portrait.faces[0].height if portrait.faces else float(height)
    scale = shot.face_share * shot.size[1] / subject
    if not portrait.faces:
        return scale, np.array([width / 2, height / 2])
    centers = np.stack([face.center for face in portrait.faces])
    visible = shot.size[1] / scale
    # Heads stand a little above the middle.
    middle = _kept_inside(float(centers[:, 1].mean()) + 0.06 * visible, visible, height)
    return scale, np.array([float(centers[:, 0].mean()), middle])


def _kept_inside(middle: float, visible: float, length: int) -> float:
    """Keep the view off the picture's upper edge (above it lies a mirrored head) and its lower one."""
    return max(min(middle, length - visible / 2), visible / 2)
