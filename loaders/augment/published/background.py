"""`BackgroundRemoval`: the face alone, or all but the face."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from ....pipeline.errors import UsageError
from ...real_numbers import as_float
from ..areas import FRACTION_BITS
from ..base import FaceTransform, require_at_least
from ..points import FacePoints

Keep = Literal["face", "background"]

_FILLS: Final = ("mean", "blur")
_DEFAULT_MARGIN: Final = 0.1
_MAX_COORDINATE_PX: Final = 1e4
_BLUR_SIGMA_EYE_DISTANCES: Final = 0.5


class BackgroundRemoval(FaceTransform):
    """Replaces everything outside the face's hull, or, with `keep="background"`, everything within it.

    A network that sees the background alone should do no better than chance: if it does, the dataset's classes differ
    in something else than faces.

    The mask is set to 0 where the image is replaced. A hull without area leaves the image unchanged.

    Args:
        keep: "face" or "background".
        margin: How far the hull is dilated first, in distances between the eyes.
        fill: A grey level, 0..255; "mean", the mean colour of what is kept, which reveals nothing of what is removed;
            "blur", what is removed, blurred by half the distance between the eyes.
        p: Probability that it is applied.

    """

    reads_mask = False
    allowed_in_clips = True

    def __init__(
        self, keep: Keep = "face", margin: float = _DEFAULT_MARGIN, fill: float | str = 0, p: float = 1.0
    ) -> None:
        super().__init__(p=p)
        if keep not in get_args(Keep):
            raise UsageError(f"keep={keep!r}: must be face or background; try keep='face'")
        self.keep, self.fill = keep, _require_fill(fill)
        self.margin = require_at_least(0, "margin", margin, suggestion=_DEFAULT_MARGIN)

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Maps each target to the method that transforms it, as Albumentations requires."""
        return {"image": self.apply, "mask": self.apply_to_mask}

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """`kept`: uint8 (H, W), 1 where the image stays, None where there is no hull; `sigma_px` of the blur."""
        face = self.face(data)
        eye_distance = float(math.dist(*face.landmarks[:2]))
        within = _dilated_hull(face, self.margin * eye_distance, params["shape"][:2])
        kept = within if within is None or self.keep == "face" else 1 - within
        return {"kept": kept, "sigma_px": max(1.0, _BLUR_SIGMA_EYE_DISTANCES * eye_distance)}

    def apply(
        self,
        img: NDArray[np.uint8],
        kept: NDArray[np.uint8] | None,
        sigma_px: float,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """A copy with the removed pixels filled."""
        if kept is None:
            return img
        if self.fill == "blur":
            filling = _blurred(img, sigma_px)
        else:
            level = cv2.mean(img, kept)[: img.shape[2]] if self.fill == "mean" else self.fill
            filling = np.empty_like(img)
            filling[:] = np.rint(level)
        result: NDArray[np.uint8] = cv2.copyTo(img, kept, filling)
        return result

    def apply_to_mask(
        self,
        mask: NDArray[np.uint8],
        kept: NDArray[np.uint8] | None,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """A copy with 0 where the image is replaced."""
        return mask if kept is None else mask * kept


def _blurred(img: NDArray[np.uint8], sigma_px: float) -> NDArray[np.uint8]:
    """A Gaussian blur, computed at a lower resolution: a wide one leaves nothing finer."""
    step = max(1, int(sigma_px / 3))
    small = cv2.resize(img, (max(1, img.shape[1] // step), max(1, img.shape[0] // step)), interpolation=cv2.INTER_AREA)
    blurred: NDArray[np.uint8] = cv2.resize(cv2.GaussianBlur(small, (0, 0), sigma_px / step), img.shape[1::-1])
    return blurred


def _dilated_hull(face: FacePoints, radius_px: float, size: tuple[int, int]) -> NDArray[np.uint8] | None:
    """Uint8 (H, W): 1 within the hull and `radius_px` around it; None where the hull has no area."""
    hull = face.hull
    if not np.isfinite(hull).all() or not math.isfinite(radius_px) or abs(cv2.contourArea(hull)) < 1:
        return None
    within = np.zeros(size, np.uint8)
    points = np.clip(hull, -_MAX_COORDINATE_PX, _MAX_COORDINATE_PX) * (1 << FRACTION_BITS)
    polygon = [np.rint(points).astype(np.int32)]
    cv2.fillPoly(within, polygon, 1, shift=FRACTION_BITS)
    if thickness := min(round(2 * radius_px), 32767):
        cv2.polylines(within, polygon, isClosed=True, color=1, thickness=thickness, shift=FRACTION_BITS)
    return within


def _require_fill(fill: float | str) -> float | str:
    if isinstance(fill, str) and fill in _FILLS:
        return fill
    if 0 <= (level := as_float(fill)) <= 255:
        return level
    raise UsageError(f"fill={fill!r}: must be a grey level from 0 to 255, mean or blur; try 0")
