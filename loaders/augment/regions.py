"""Transforms on the stored regions: black one out, or crop to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ...pipeline.dataset.schema import REGION_NAMES
from .areas import Area, box_of
from .base import FaceTransform, at_least, weights_of
from .blackout import Blackout, Mask
from .points import FacePoints

_DROPPED: Final = {"left_eye": 1.0, "right_eye": 1.0, "nose": 1.0, "mouth": 1.0}
_CROPPED: Final = {**_DROPPED, "face": 1.0}
_MARGIN: Final = 0.3

Window = tuple[int, int, int, int]


class RegionDropout(Blackout):
    """Blacks out the box of one of the stored regions.

    `weights`: how often each of `left_eye`, `right_eye`, `nose`, `mouth`, `face` is drawn, as shares of their sum; left
    and right as the viewer sees them. Source: random erasing (Zhong et al. 2020), held to the parts of a face.
    """

    looks_at_mask = False

    def __init__(self, weights: Mapping[str, float] = _DROPPED, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.weights = weights_of(weights, REGION_NAMES, trial=_DROPPED)

    def area(self, face: FacePoints, size: tuple[int, int], mask: Mask) -> Area | None:  # noqa: ARG002
        """One region's box; nothing where the face has none of them."""
        regions = face.regions
        name = self.one_of(self.weights, regions)
        return None if name is None else box_of(regions[name])


class RegionCrop(FaceTransform):
    """Crops to one of the stored regions and enlarges it to the size that the image has; points and mask follow.

    `weights`: as `RegionDropout`'s. `margin`: added on each side, as a share of the box. The shorter side then grows
    until the crop has the image's own proportions, so nothing is stretched; at the border it moves inwards, so nothing
    is black. A region that is the whole image, or lies outside of it, leaves the image alone.
    Source: facial parts as inputs of their own (Schwarcz & Chellappa 2021, "Finding Facial Forgery Artifacts With
    Parts-Based Detectors").
    """

    looks_at_mask = False

    def __init__(
        self,
        weights: Mapping[str, float] = _CROPPED,
        margin: float = _MARGIN,
        p: float = 0.5,
    ) -> None:
        super().__init__(p=p)
        self.weights = weights_of(weights, REGION_NAMES, trial=_CROPPED)
        self.margin = at_least(0, "margin", margin, trial=_MARGIN)

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Albumentations' table of what is transformed by what."""
        return {
            "image": self.apply,
            "mask": self.apply_to_mask,
            "keypoints": self.apply_to_keypoints,
            "bboxes": self.apply_to_bboxes,
        }

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """`window`: left, top, width, height of the crop in whole px; None: no crop."""
        regions = self.face(data).in_crop().regions
        name = self.one_of(self.weights, regions)
        height, width = params["shape"][:2]
        return {"window": None if name is None else _window(regions[name], self.margin, height, width)}

    def apply(
        self,
        img: NDArray[np.uint8],
        window: Window | None,
        how: int = cv2.INTER_LINEAR,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """The crop, enlarged."""
        if window is None:
            return img
        left, top, width, height = window
        crop = img[top : top + height, left : left + width]
        enlarged: NDArray[np.uint8] = cv2.resize(crop, img.shape[1::-1], interpolation=how)
        return enlarged

    def apply_to_mask(self, mask: NDArray[np.uint8], window: Window | None, **params: Any) -> NDArray[np.uint8]:  # noqa: ARG002
        """The crop of a mask: nearest pixels, so it stays one."""
        return self.apply(mask, window, cv2.INTER_NEAREST_EXACT)

    def apply_to_keypoints(
        self,
        keypoints: NDArray[np.float32],
        window: Window | None,
        shape: tuple[int, ...],
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Points (N, 5+) in the crop, from the first pixel's centre: the crop starts half a pixel before."""
        if window is None:
            return keypoints
        left, top, width, height = window
        scale = (shape[1] / width, shape[0] / height)
        moved = keypoints.copy()
        moved[:, :2] = (keypoints[:, :2] - (left - 0.5, top - 0.5)) * scale - 0.5
        moved[:, 4] *= max(scale)
        return moved

    def apply_to_bboxes(
        self,
        bboxes: NDArray[np.float32],
        window: Window | None,
        shape: tuple[int, ...],
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.float32]:
        """Boxes (N, 4+), in shares of the image, in the crop."""
        if window is None:
            return bboxes
        left, top, width, height = window
        moved = bboxes.copy()
        size = np.tile([shape[1], shape[0]], 2)
        moved[:, :4] = (bboxes[:, :4] * size - (left, top, left, top)) / (width, height, width, height)
        return moved


def _window(box_xyxy: NDArray[np.float32], margin: float, height: int, width: int) -> Window | None:
    """The crop round a box, in the image's proportions and within it."""
    left, top, right, bottom = box_xyxy.tolist()
    if not all(map(math.isfinite, (left, top, right, bottom))):
        return None
    if right <= 0 or bottom <= 0 or left >= width or top >= height:
        return None
    part = max((right - left) / width, (bottom - top) / height) * (1 + 2 * margin)
    across, down = max(1, round(part * width)), max(1, round(part * height))
    if across >= width or down >= height:
        return None
    x = min(max(round((left + right - across) / 2), 0), width - across)
    y = min(max(round((top + bottom - down) / 2), 0), height - down)
    return x, y, across, down
