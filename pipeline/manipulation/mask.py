"""Manipulation masks: the pixels of a face crop in which a fake differs from its source video.

Both videos were encoded lossily and independently, perhaps at very different qualities, so hardly any pixel is equal.
Smoothing removes most of the encoding noise; the rest depends on both qualities and on the image content, and is
largest at edges and in texture. A colour shift of the whole frame, by another YUV matrix or a grade, is neither: it is
measured outside the faces and removed first. Since a manipulation is local, the differences around the face show how
much of the difference in the face is encoding noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..faces.geometry.crop import CropSquare
from .colour_map import fit_colour_map

LOW_THRESHOLD: Final = 3.0
"""Minimum smoothed difference of a changed pixel, in L*a*b* on OpenCV's scale of 0 to 255."""
HIGH_THRESHOLD: Final = 7.0
"""Minimum of the largest difference within a changed area."""
LOW_NOISE_RATIO: Final = 1.5
HIGH_NOISE_RATIO: Final = 6.0
"""The same two as multiples of the encoding noise at pixels of like gradient around the face; the larger counts."""
METHOD: Final = f"lab-{LOW_THRESHOLD:g}-{HIGH_THRESHOLD:g}-all-faces-{LOW_NOISE_RATIO:g}-{HIGH_NOISE_RATIO:g}-colour"
"""Name of the method and its thresholds; part of a job's config, since masks of two methods must not be mixed."""

_COMPARED_MARGIN: Final = 0.3  # around the face's box; lengths go by this square, however wide the crop is
_WORK_SIDE_PX: Final = 256  # for twice the compared square; finer than what smoothing leaves
_SIGMA_FRACTION: Final = 5 / 256  # of the compared square's side
_MIN_SIGMA_PX: Final = 2.0  # in frame px, for small faces: the block size of encoders does not depend on faces
_SPECK_FRACTION: Final = 1 / 40  # of the compared square's side
_BLUR_FRACTION: Final = 0.25  # of the maximum within 1.5 sigma: weaker differences are blur from beyond the edge

_BOX_MARGIN: Final = 0.1  # of its sides: manipulations reach a little beyond the face's box
_EDGE_FRACTION: Final = 1 / 16  # of the frame's sides: its edge, of which swapped faces seldom reach much
_BORDER_PX: Final = 3  # of the crop, at the frame's border, where its colours may fade into the zeros beyond
_GRADIENT_EDGES: Final = np.array([0.5, 1, 1.5, 2.2, 3.2, 4.7, 7, 10], np.float32)  # L* per px
_QUANTILE: Final = 0.9  # of the differences in a gradient class; some of them are manipulated pixels beyond the box
_MIN_CLASS_FRACTION: Final = 0.002  # of the pixels; a smaller class takes the noise of the class below
_MAX_NOISE: Final = 9.0  # of one class; x264 at crf 40 reaches 7
_INCOMPARABLE_NOISE: Final = 7.0  # median noise, or difference at the frame's edge, of what cannot be compared
_LEVELS_PER_STEP: Final = 4  # histogram levels per unit of L*a*b*


@dataclass(frozen=True, slots=True)
class ManipulationMask:
    """`mask`: bool (s, s), crop px, True where the fake differs; `changed_fraction`: its mean, 0..1."""

    mask: NDArray[np.bool_]
    changed_fraction: float


class FrameComparison:
    """A fake's frame beside its source's matching one; `mask` compares one face after another.

    Args:
        fake: (H, W, 3) uint8 RGB, the fake's frame.
        source: the source's frame, of the same shape.
        faces_xyxy: (N, 4), `frame` px, boxes of all faces of the frame, also of those that become no rows; each may
            be manipulated.

    Raises:
        UsageError: the frames differ in size.

    """

    def __init__(self, fake: NDArray[np.uint8], source: NDArray[np.uint8], faces_xyxy: NDArray[np.float32]) -> None:
        if fake.shape != source.shape:
            raise UsageError(f"fake={fake.shape}, source={source.shape}: must be frames of one size")
        self._fake, self._source, self._faces_xyxy = fake, source, faces_xyxy
        self._frame_xyxy = np.array([[0, 0, *fake.shape[1::-1]]], np.float32)
        self._colour_map = fit_colour_map(source, fake, faces_xyxy)

    def mask(self, square: CropSquare, *, box_xyxy: NDArray[np.floating], size_px: int) -> ManipulationMask | None:
        """Compares the crop of the frames; the mask's side is min(square side, `size_px`).

        A colour shift of the whole frame is applied to the source first; see `colour_map`.
        The difference in L*a*b* is smoothed. What remains around the face, within twice the compared square (or the
        crop, where that is larger) but outside of all faces, is the encoding noise, measured per class of gradient
        magnitude. A region is changed if some channel differs everywhere by `LOW_THRESHOLD` and `LOW_NOISE_RATIO`
        times the noise, and somewhere by `HIGH_THRESHOLD` and `HIGH_NOISE_RATIO` times the noise (hysteresis
        thresholds, Canny 1986); specks are removed and pinholes filled.
        None where the noise is too strong to compare: one of the two is encoded very badly, shows another moment, or
        was generated as a whole. Where faces fill the frame, the noise is unknown and counts as 0, and the differences
        at the frame's edge decide whether it can be compared.

        Args:
            square: the crop around the face, `frame` px.
            box_xyxy: (4,), `frame` px, the box of that face.
            size_px: largest side of a crop.

        """
        # No longer than the frame, which may be a face's crop already.
        compared_side_px = min(CropSquare.around(box_xyxy, _COMPARED_MARGIN).side, max(self._fake.shape[:2]))
        context_side = compared_side_px + 2 * (compared_side_px // 2)
        pad = max(0, (context_side - square.side + 1) // 2)
        context = CropSquare(square.x0 - pad, square.y0 - pad, square.side + 2 * pad, square.degrees)
        fake_crop, source_crop, scale = self._crops(context, max(1, round(_WORK_SIDE_PX * context.side / context_side)))
        sigma = max(1.0, _SIGMA_FRACTION * compared_side_px * scale, _MIN_SIGMA_PX * scale)
        fake_lab, source_lab = (
            cv2.cvtColor(rgb, cv2.COLOR_RGB2LAB).astype(np.float32) for rgb in (fake_crop, source_crop)
        )
        in_frame = (fake_lab[..., 0] > 0) | (source_lab[..., 0] > 0)
        channels = cv2.split(np.abs(cv2.GaussianBlur(fake_lab - source_lab, (0, 0), sigma)))
        strength = np.maximum(np.maximum(*channels[:2]), channels[2])  # many times faster than max(axis=2)
        gradient = np.maximum(_gradient_magnitude(fake_lab, sigma), _gradient_magnitude(source_lab, sigma))
        outside_faces = in_frame & _outside(context, scale, self._faces_xyxy, _BOX_MARGIN)
        noise = cv2.GaussianBlur(_encoding_noise(strength, gradient, outside_faces), (0, 0), sigma)
        start = round((context.side - compared_side_px) / 2 * scale)
        center = slice(start, max(round((context.side + compared_side_px) / 2 * scale), start + 1))
        around = noise[center, center]
        if not noise.any():
            around = strength[in_frame & _outside(context, scale, self._frame_xyxy, -2 * _EDGE_FRACTION)]
        if around.size and np.median(around) >= _INCOMPARABLE_NOISE:
            return None
        size = min(square.side, size_px)
        areas = _resample_to_crop(
            _hysteresis_areas(strength, noise, sigma), pad * scale, square.side * scale / size, size
        )
        speck = _disc(_SPECK_FRACTION * size * compared_side_px / square.side / 2)
        mask = cv2.morphologyEx(cv2.morphologyEx(areas, cv2.MORPH_OPEN, speck), cv2.MORPH_CLOSE, speck) > 0
        return ManipulationMask(mask, float(mask.mean()))

    def _crops(self, context: CropSquare, side: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], float]:
        """Both crops, (s, s, 3), with the fake's colours in the source's, and their pixels per `frame` px."""
        (fake, scale), (source, _) = context.crop(self._fake, side), context.crop(self._source, side)
        if self._colour_map is not None:
            inner_xyxy = self._frame_xyxy + np.array([1, 1, -1, -1], np.float32) * (_BORDER_PX / scale)
            beyond = _outside(context, scale, inner_xyxy, 0.0)[..., None]
            source = np.where(beyond, fake, self._colour_map(source))
        return fake, source, scale


def _gradient_magnitude(lab: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    """Smoothed gradient magnitude of lightness, L* per px."""
    across, down = (cv2.Sobel(lab[..., 0], cv2.CV_32F, *way, scale=1 / 8) for way in ((1, 0), (0, 1)))
    smooth: NDArray[np.float32] = cv2.GaussianBlur(np.hypot(across, down), (0, 0), sigma)
    return smooth


def _outside(context: CropSquare, scale: float, boxes_xyxy: NDArray[np.float32], margin: float) -> NDArray[np.bool_]:
    """True outside the boxes, grown by `margin` of their sides, in the region that `context` crops."""
    size = round(context.side * scale)
    outside = np.ones((size, size), np.uint8)
    for left, top, right, bottom in boxes_xyxy:
        grown = np.array([[left, top], [right, top], [right, bottom], [left, bottom]], np.float64)
        grown += margin * (grown - grown.mean(axis=0))
        cv2.fillConvexPoly(outside, np.rint(context.to_crop(grown, scale)).astype(np.int32), 0)
    return outside > 0


def _encoding_noise(
    strength: NDArray[np.float32], gradient: NDArray[np.float32], outside_faces: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """For each pixel, the 90 % quantile of the differences outside faces, at pixels of like or smaller gradient."""
    classes = np.digitize(gradient, _GRADIENT_EDGES)
    levels = round(_LEVELS_PER_STEP * _MAX_NOISE) + 1
    level = np.minimum(strength * _LEVELS_PER_STEP, levels - 1).astype(np.intp)
    counts = np.bincount((classes * levels + level)[outside_faces], minlength=(len(_GRADIENT_EDGES) + 1) * levels)
    cumulated = counts.reshape(-1, levels).cumsum(axis=1)
    totals = cumulated[:, -1]
    quantile_levels = np.minimum((cumulated < _QUANTILE * totals[:, None]).sum(axis=1) + 1, levels - 1)
    is_known = totals >= max(1, _MIN_CLASS_FRACTION * strength.size)
    class_noise = np.maximum.accumulate(np.where(is_known, quantile_levels / _LEVELS_PER_STEP, 0))
    noise: NDArray[np.float32] = class_noise.astype(np.float32)[classes]
    return noise


def _hysteresis_areas(strength: NDArray[np.float32], noise: NDArray[np.float32], sigma: float) -> NDArray[np.uint8]:
    """1 in every connected area that is above the low thresholds and somewhere above the high ones, else 0."""
    sharp = strength >= _BLUR_FRACTION * cv2.dilate(strength, _disc(1.5 * sigma))
    changed = sharp & (strength >= np.maximum(LOW_THRESHOLD, LOW_NOISE_RATIO * noise))
    count, areas = cv2.connectedComponents(changed.astype(np.uint8))
    is_certain = np.zeros(count, np.uint8)
    is_certain[areas[changed & (strength >= np.maximum(HIGH_THRESHOLD, HIGH_NOISE_RATIO * noise))]] = 1
    certain: NDArray[np.uint8] = is_certain[areas]
    return certain


def _resample_to_crop(areas: NDArray[np.uint8], offset: float, step: float, size: int) -> NDArray[np.uint8]:
    """Resamples the center of `areas`, from `offset` on, to (size, size); `step`: input pixels per output pixel."""
    start = offset + step / 2 - 0.5
    to_source = np.array([[step, 0, start], [0, step, start]])
    resampled = cv2.warpAffine(
        areas.astype(np.float32), to_source, (size, size), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    )
    crop: NDArray[np.uint8] = (resampled > 0.5).astype(np.uint8)
    return crop


def _disc(radius: float) -> NDArray[np.uint8]:
    disc: NDArray[np.uint8] = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * max(1, round(radius)) + 1,) * 2)
    return disc
