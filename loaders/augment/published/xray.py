"""`FaceXRay`: turns the mask into the boundary along which a face was blended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ....pipeline.errors import UsageError
from ...face import manipulated_share
from ...real_numbers import as_float
from ..base import FaceTransform

_DEFAULT_KERNEL_PX: Final = 3


class FaceXRay(FaceTransform):
    """The face X-ray in place of the mask: 4 * M * (1 - M), 1 where two images have equal shares, 0 where one is alone.

    M is the mask, float32 (H, W), 0..1, as `SelfBlend` draws it; the result is float32 (H, W), 0..1. A binary mask, as
    stored with a fake, is first blurred by a Gaussian kernel of `kernel_px` (odd), for its boundary to have a width.
    The share of pixels that the mask says are changed is passed on as `manipulated`, since the X-ray does not tell it.
    Put it last: blackouts before it count as boundaries of the mask, as which they appear.

    Source: Li et al., "Face X-ray for More General Face Forgery Detection" (CVPR 2020), equation 2.
    """

    reads_mask = False
    allowed_in_clips = True

    def __init__(self, kernel_px: int = _DEFAULT_KERNEL_PX, p: float = 1.0) -> None:
        super().__init__(p=p)
        number = as_float(kernel_px)
        if not (number >= 1 and number % 2 == 1):
            raise UsageError(f"kernel_px={kernel_px!r}: must be an odd number of at least 1; try {_DEFAULT_KERNEL_PX}")
        self.kernel_px = int(number)

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Maps each target to the method that transforms it, as Albumentations requires."""
        return {"mask": self.apply_to_mask}

    def apply_with_params(self, params: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Transforms the mask, where there is one."""
        result: dict[str, Any] = super().apply_with_params(params, *args, **kwargs)
        if kwargs.get("mask") is not None:
            result["manipulated"] = manipulated_share(kwargs["mask"])
        return result

    def apply_to_mask(self, mask: NDArray[Any], **params: Any) -> NDArray[np.float32]:  # noqa: ARG002
        """The X-ray of a mask."""
        soft = mask.astype(np.float32)
        if mask.dtype == np.uint8:
            soft = cv2.GaussianBlur(soft, (self.kernel_px, self.kernel_px), 0)
        xray: NDArray[np.float32] = 4 * soft * (1 - soft)
        return xray
