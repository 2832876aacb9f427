"""Transforms on the stored regions of a face: black one out, or crop to one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.schema import REGION_NAMES
from .areas import Area, box_area
from .base import GeometricTransform, Matrix, require_at_least, require_weights
from .blackout import Blackout, Mask
from .points import FacePoints

_DROPOUT_WEIGHTS: Final = {"left_eye": 1.0, "right_eye": 1.0, "nose": 1.0, "mouth": 1.0}
_CROP_WEIGHTS: Final = {**_DROPOUT_WEIGHTS, "face": 1.0}
_DEFAULT_MARGIN: Final = 0.3

Window = tuple[int, int, int, int]


class RegionDropout(Blackout):
    """Blacks out the box of one of the stored regions.

    `weights`: relative frequencies of `left_eye`, `right_eye`, `nose`, `mouth`, `face`; left and right as the viewer
    sees them. Source: random erasing (Zhong et al. 2020), restricted to the parts of a face.
    """

    reads_mask = False
    allowed_in_clips = True

    def __init__(self, weights: Mapping[str, float] = _DROPOUT_WEIGHTS, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.weights = require_weights(weights, REGION_NAMES, suggestion=_DROPOUT_WEIGHTS)

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """The box of one region; nothing where the face has none of those with a weight."""
        regions = face.regions
        name = self.draw_name(self.weights, regions)
        return None if name is None else box_area(regions[name])


class RegionCrop(GeometricTransform):
    """Crops to one of the stored regions and resizes the crop to the size of the image; points and mask follow.

    `weights`: see `RegionDropout`. `margin`: added on each side, as a fraction of the box. The shorter side then grows
    until the crop has the image's aspect ratio, so nothing is stretched; at the border it moves inwards, so nothing is
    padded. Drawn are only regions of which there is such a crop, by their weights: none that lies outside the image or
    has no area, nor one that fills the image with its margin, as `face` does in crops that are stored with the same
    margin. Where there is none, the image is unchanged.
    Source: facial parts as separate inputs (Schwarcz & Chellappa 2021, "Finding Facial Forgery Artifacts With
    Parts-Based Detectors").
    """

    reads_mask = False
    allowed_in_clips = True

    def __init__(
        self,
        weights: Mapping[str, float] = _CROP_WEIGHTS,
        margin: float = _DEFAULT_MARGIN,
        p: float = 0.5,
    ) -> None:
        super().__init__(p=p)
        self.weights = require_weights(weights, REGION_NAMES, suggestion=_CROP_WEIGHTS)
        self.margin = require_at_least(0, "margin", margin, suggestion=_DEFAULT_MARGIN)

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """As of a `GeometricTransform`, and `window`: left, top, width, height of the crop in integer px, or None."""
        height, width = params["shape"][:2]
        windows = {
            name: window
            for name, box in self.face(data).in_crop().regions.items()
            if (window := _crop_window(box, self.margin, height, width)) is not None
        }
        name = self.draw_name(self.weights, windows)
        window = None if name is None else windows[name]
        return {"window": window, "matrix": _enlargement(window, height, width), "size": (height, width)}

    def apply(
        self,
        img: NDArray[np.uint8],
        window: Window | None,
        interpolation: int = cv2.INTER_LINEAR,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """The crop, resized to the size of the image."""
        if window is None:
            return img
        left, top, width, height = window
        crop = img[top : top + height, left : left + width]
        enlarged: NDArray[np.uint8] = cv2.resize(crop, img.shape[1::-1], interpolation=interpolation)
        return enlarged

    def apply_to_mask(self, mask: NDArray[np.uint8], window: Window | None, **params: Any) -> NDArray[np.uint8]:  # noqa: ARG002
        """The crop of a mask by nearest-neighbour interpolation, so it stays binary."""
        return self.apply(mask, window, cv2.INTER_NEAREST_EXACT)


def _enlargement(window: Window | None, height: int, width: int) -> Matrix | None:
    """The `matrix` of a crop that is resized to the image's size; it starts half a pixel before its first centre."""
    if window is None:
        return None
    left, top, crop_width, crop_height = window
    scale_x, scale_y = width / crop_width, height / crop_height
    return np.array([(scale_x, 0, (0.5 - left) * scale_x - 0.5), (0, scale_y, (0.5 - top) * scale_y - 0.5)])


def _crop_window(box_xyxy: NDArray[np.float32], margin: float, height: int, width: int) -> Window | None:
    """The crop around a box with the image's aspect ratio, shifted into the image."""
    left, top, right, bottom = box_xyxy.tolist()
    if not all(map(math.isfinite, (left, top, right, bottom))):
        return None
    if right <= 0 or bottom <= 0 or left >= width or top >= height:
        return None
    scale = max((right - left) / width, (bottom - top) / height) * (1 + 2 * margin)
    crop_width, crop_height = round(scale * width), round(scale * height)
    if not (0 < crop_width < width and 0 < crop_height < height):
        return None
    x = min(max(round((left + right - crop_width) / 2), 0), width - crop_width)
    y = min(max(round((top + bottom - crop_height) / 2), 0), height - crop_height)
    return x, y, crop_width, crop_height
