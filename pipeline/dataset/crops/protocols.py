"""Crop protocols: from a face's box and landmarks to an affine map from frame px to the px of the protocol's image.

| name | crop | from |
|---|---|---|
| deepfakebench | 5 landmarks fitted to ArcFace's template, x 1.3, 256 px | DeepfakeBench, preprocessing/preprocess.py |
| ffpp | square of 1.3 x the box's longer side, within the frame, 299 px | FaceForensics, detect_from_video.py |
| sbi | box and an eighth of it on each side, within the frame, stretched to 380 px | SelfBlendedImages, `crop_face` |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from .geometry import Affine, FaceGeometry, compose, inverse

ALIGNMENTS: Final = ("none", "arcface")

_ARCFACE_SIDE_PX: Final = 112
_ARCFACE_TEMPLATE: Final = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
"""Where ArcFace (Deng et al. 2019, arXiv 1801.07698) puts the five landmarks in 112 x 112 px, from pixel centres."""
_MIN_SPREAD_PX2: Final = 0.05  # sum of squared distances from the centre: all five within .1 px are no face's


@dataclass(frozen=True, kw_only=True)
class CropProtocol(ABC):
    """A rule that cuts one square image from a face. `size_px`: side of the image."""

    size_px: int

    @abstractmethod
    def from_frame(self, faces: FaceGeometry) -> Affine:
        """Maps from frame px to the px of the image, float64 (N, 2, 3), of N faces."""

    def from_stored(self, faces: FaceGeometry) -> Affine:
        """Maps from the px of the stored crops to the px of the images, float64 (N, 2, 3)."""
        return compose(self.from_frame(faces), inverse(faces.to_stored))


@dataclass(frozen=True, kw_only=True)
class SquareCrop(CropProtocol):
    """The square of (1 + 2 `margin`) times the box's longer side about its centre; it may reach past the frame."""

    margin: float

    def from_frame(self, faces: FaceGeometry) -> Affine:
        """See `CropProtocol`."""
        boxes = faces.boxes_xyxy
        sides = (1 + 2 * self.margin) * (boxes[:, 2:] - boxes[:, :2]).max(axis=1, keepdims=True)
        corners = (boxes[:, :2] + boxes[:, 2:] - sides) / 2
        return _scaled_to(self.size_px, corners, np.repeat(sides, 2, axis=1))


@dataclass(frozen=True, kw_only=True)
class ArcFaceCrop(CropProtocol):
    """The similarity that fits the landmarks to ArcFace's template best, which fills 1 / (1 + 2 `margin`) of the image.

    Least squares over all five landmarks (Umeyama 1991), in closed form: points as complex numbers. Where the landmarks
    coincide, as of a detector that finds boxes alone, it is the upright square around the box, with the same margin.
    """

    margin: float

    def from_frame(self, faces: FaceGeometry) -> Affine:
        """See `CropProtocol`."""
        spread = 1 + 2 * self.margin
        template = (_ARCFACE_TEMPLATE * self.size_px / _ARCFACE_SIDE_PX + self.size_px * self.margin) / spread
        target = (template + 0.5) @ (1, 1j)  # from pixel centres to the corner of the first pixel
        points = faces.landmarks @ (1, 1j)
        centres = points.mean(axis=1)
        offsets = points - centres[:, None]
        spreads = (np.abs(offsets) ** 2).sum(axis=1)
        factors = (offsets.conj() @ (target - target.mean())) / np.maximum(spreads, _MIN_SPREAD_PX2)
        shifts = target.mean() - factors * centres
        rows = [[factors.real, -factors.imag, shifts.real], [factors.imag, factors.real, shifts.imag]]
        upright = SquareCrop(size_px=self.size_px, margin=self.margin).from_frame(faces)
        return np.where((spreads < _MIN_SPREAD_PX2)[:, None, None], upright, np.moveaxis(np.array(rows), 2, 0))


@dataclass(frozen=True, kw_only=True)
class FaceForensicsCrop(CropProtocol):
    """The square of FaceForensics++ in whole px; where it would leave the frame it is moved inside, or made smaller."""

    scale: float = 1.3

    def from_frame(self, faces: FaceGeometry) -> Affine:
        """See `CropProtocol`."""
        boxes = np.floor(faces.boxes_xyxy)
        sides = np.floor((boxes[:, 2:] - boxes[:, :2]).max(axis=1, keepdims=True) * self.scale)
        centres = np.floor((boxes[:, :2] + boxes[:, 2:]) / 2)
        corners = np.maximum(centres - np.floor(sides / 2), 0)
        sides = np.maximum(np.minimum(sides, (faces.frame_sizes - corners).min(axis=1, keepdims=True)), 1)
        return _scaled_to(self.size_px, corners, np.repeat(sides, 2, axis=1))


@dataclass(frozen=True, kw_only=True)
class BlendedImagesCrop(CropProtocol):
    """The crop that SelfBlendedImages evaluates on: the box, widened and cut at the frame, stretched to a square."""

    margin: float = 1 / 8

    def from_frame(self, faces: FaceGeometry) -> Affine:
        """See `CropProtocol`."""
        boxes = faces.boxes_xyxy
        margins = self.margin * (boxes[:, 2:] - boxes[:, :2])
        # int() rounds towards 0, as np.trunc; what is below 0 is cut off anyway.
        corners = np.maximum(np.trunc(boxes[:, :2] - margins), 0)
        ends = np.minimum(np.trunc(boxes[:, 2:] + margins) + 1, faces.frame_sizes)
        return _scaled_to(self.size_px, corners, np.maximum(ends - corners, 1))


PROTOCOLS: Final[Mapping[str, CropProtocol]] = {
    "deepfakebench": ArcFaceCrop(size_px=256, margin=0.15),
    "ffpp": FaceForensicsCrop(size_px=299),
    "sbi": BlendedImagesCrop(size_px=380),
}


def crop_protocol(crop: Any) -> CropProtocol:
    """The protocol of that name, or of a mapping: {"margin": 0.3, "size": 299, "align": "arcface"}.

    margin: share of the box's longer side, or of the template's, that is added on each side. size: side of the image,
    px. align: "none" (default) for an upright square around the box, "arcface" for landmarks fitted to its template.
    Raises `UsageError` on anything else.
    """
    if isinstance(crop, CropProtocol):
        return crop
    if isinstance(crop, str) and crop in PROTOCOLS:
        return PROTOCOLS[crop]
    if not isinstance(crop, Mapping) or not {"margin", "size"} <= set(crop) <= {"margin", "size", "align"}:
        names = ", ".join(map(repr, PROTOCOLS))
        raise UsageError(f'crop={crop!r}: must be {names}, or like {{"margin": 0.3, "size": 299, "align": "arcface"}}')
    margin, size, align = crop["margin"], crop["size"], crop.get("align", "none")
    is_number = isinstance(margin, (int, float, np.integer, np.floating)) and not isinstance(margin, bool)
    if not (is_number and 0 <= margin <= 8):
        raise UsageError(f"crop: margin={margin!r}: must be from 0 to 8, a share of the face's side; try 0.3")
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or not 8 <= size <= 4096:
        raise UsageError(f"crop: size={size!r}: must be a whole number from 8 to 4096, px; try 256")
    if align not in ALIGNMENTS:
        raise UsageError(f"crop: align={align!r}: must be one of {', '.join(ALIGNMENTS)}")
    kind = ArcFaceCrop if align == "arcface" else SquareCrop
    return kind(size_px=int(size), margin=float(margin))


def _scaled_to(size_px: int, corners: NDArray[np.float64], sides: NDArray[np.float64]) -> Affine:
    """Maps that bring rectangles of `sides` (N, 2) at `corners` (N, 2) to (size_px, size_px)."""
    scales = size_px / np.where(np.isfinite(sides) & (sides > 0), sides, math.inf)
    maps = np.zeros((len(corners), 2, 3))
    maps[:, 0, 0], maps[:, 1, 1] = scales.T
    maps[:, :, 2] = -corners * scales
    return maps
