"""`AlignedMixup`: blends a fake with the real frame it was made from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..face import Face
from .base import FaceTransform, require_at_least
from .points import HALF_PX, MIRRORED_LANDMARKS, FacePoints
from .similarity import fit_similarity

_DEFAULT_ALPHA: Final = 0.5


class AlignedMixup(FaceTransform):
    """Mixup of a fake and its real source: image <- lam * image + (1 - lam) * partner, lam ~ Beta(alpha, alpha).

    The partner, a `Face` given to `FaceCompose` as `partner`, is first aligned with the image by the similarity
    transform between their landmarks, mirrored where the image has been; where it has no pixels the image is kept.
    Without a partner nothing happens, nor where the label of either is unknown (-1). The label becomes lam * label +
    (1 - lam) * partner's label, so it is for two classes; the mask stays the fake's. Put it before blackouts: a partner
    mixed in later is visible through them. `alpha`: near 0 one of the two dominates, at 1 lam is uniform.

    Source: mixup (Zhang et al. 2018) on aligned pairs of real and fake, with alpha 0.5: NTech-Lab's entry to DFDC
    (github.com/NTech-Lab/deepfake-detection-challenge, 2020), which crops both faces by one box; here each has its own.
    """

    reads_mask = False

    def __init__(self, alpha: float = _DEFAULT_ALPHA, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.alpha = require_at_least(0, "alpha", alpha, exclusive=True, suggestion=_DEFAULT_ALPHA)

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Maps each target to the method that transforms it, as Albumentations requires."""
        return {"image": self.apply, "label": self.apply_to_label}

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raises `UsageError` where a dataset has more than two labels."""
        if len(labels) > 2:
            raise UsageError(
                f"AlignedMixup: needs two classes, and there are {', '.join(labels)}: between two of them the "
                "mixed label may be a third one's number; leave it out, or run precompute on a table with two classes"
            )

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """`partner`, the matrix (2, 3) that aligns it with the image, and `lam`; lam 1: no mixing."""
        face, partner = self.face(data), data.get("partner")
        if partner is None:
            return {"lam": 1.0}
        if not isinstance(partner, Face):
            raise UsageError(f"partner={type(partner).__name__}: must be a facefeed.loaders.face.Face, or None")
        matrix = _alignment_matrix(partner.landmarks - HALF_PX, face)
        is_unknown = any(label is not None and label < 0 for label in (data.get("label"), partner.label))
        if matrix is None or is_unknown:
            return {"lam": 1.0}
        return {"lam": float(self.random_generator.beta(self.alpha, self.alpha)), "partner": partner, "matrix": matrix}

    def apply(
        self,
        img: NDArray[np.uint8],
        lam: float,
        partner: Face | None = None,
        matrix: NDArray[np.float64] | None = None,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """Returns the blended image."""
        if partner is None:
            return img
        aligned = cv2.warpAffine(
            partner.image, matrix, img.shape[1::-1], dst=img.copy(), flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_TRANSPARENT,
        )  # fmt: skip
        blended: NDArray[np.uint8] = cv2.addWeighted(img, lam, aligned, 1 - lam, 0)
        return blended

    def apply_to_label(self, label: float, lam: float, partner: Face | None = None, **params: Any) -> float:  # noqa: ARG002
        """The labels of image and partner, in the shares of their pixels."""
        if partner is None:
            return label
        if partner.label is None:
            raise UsageError("partner: has no label to mix with the image's; give Face(label=...)")
        return lam * label + (1 - lam) * partner.label


def _alignment_matrix(partner_landmarks: NDArray[np.float32], face: FacePoints) -> NDArray[np.float64] | None:
    """The (2, 3) matrix from the partner's pixels to the image's, both from pixel centres; None if landmarks coincide.

    Where the image was mirrored, the partner is mirrored first.
    """
    if not face.mirrored:
        return fit_similarity(partner_landmarks, face.landmarks)
    matrix = fit_similarity(partner_landmarks[MIRRORED_LANDMARKS] * (-1, 1), face.landmarks)
    return None if matrix is None else matrix * (-1, 1, 1)
