"""`AlignedMixup`: a fake blended with the real frame it was made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import cv2
import numpy as np
from numpy.typing import NDArray

from ...pipeline.errors import UsageError
from ..face import Face
from .base import FaceTransform, at_least
from .points import HALF_PX, MIRRORED_LANDMARKS, FacePoints

_ALPHA: Final = 0.5


class AlignedMixup(FaceTransform):
    """Mixup of a fake and its real source: image <- lam * image + (1 - lam) * partner, lam ~ Beta(alpha, alpha).

    The partner, a `Face` given to `FaceCompose` as `partner`, is first laid over the image by the similarity that
    takes its landmarks to the image's, mirrored where the image has been; where it has no pixels the image stays as
    it is. Without a partner nothing happens. `mix` in what `FaceCompose` returns is lam, for the label
    lam * label + (1 - lam) * partner's label; the mask stays the fake's. Put it before blackouts: a partner mixed in
    later shines through them. `alpha`: near 0 one of the two prevails, at 1 all shares are as likely.

    Source: mixup (Zhang et al. 2018) on aligned pairs of real and fake, with alpha 0.5: NTech-Lab's entry to DFDC
    (github.com/NTech-Lab/deepfake-detection-challenge, 2020), which cut both faces by one box; here each has its own.
    """

    looks_at_mask = False

    def __init__(self, alpha: float = _ALPHA, p: float = 0.5) -> None:
        super().__init__(p=p)
        self.alpha = at_least(0, "alpha", alpha, above=True, trial=_ALPHA)

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Albumentations' table of what is transformed by what."""
        return {"image": self.apply, "mix": self.apply_to_mix}

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """The partner, the matrix (2, 3) that lays it over the image, and lam; lam 1: no mixing."""
        face, partner = self.face(data), data.get("partner")
        if partner is None:
            return {"lam": 1.0}
        if not isinstance(partner, Face):
            raise UsageError(f"partner={type(partner).__name__}: must be a facefeed.loaders.face.Face, or None")
        matrix = _laid_over(partner.landmarks - HALF_PX, face)
        if matrix is None:
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
        """The blend."""
        if partner is None:
            return img
        laid = cv2.warpAffine(
            partner.image, matrix, img.shape[1::-1], dst=img.copy(), flags=cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_TRANSPARENT,
        )  # fmt: skip
        blended: NDArray[np.uint8] = cv2.addWeighted(img, lam, laid, 1 - lam, 0)
        return blended

    def apply_to_mix(self, mix: float, lam: float, **params: Any) -> float:  # noqa: ARG002
        """The image's share, also after an earlier mixing."""
        return mix * lam


def _laid_over(partner_landmarks: NDArray[np.float32], face: FacePoints) -> NDArray[np.float64] | None:
    """The (2, 3) matrix from a partner's pixels to the image's, both from centres; None where landmarks coincide.

    Least squares over the five landmarks as complex numbers (Umeyama 1991): a turn, a scale, a shift, never a
    reflection. Where the image was mirrored, the partner is too, first.
    """
    source = np.asarray(partner_landmarks, np.float64)
    flip = -1.0 if face.mirrored else 1.0
    if face.mirrored:
        source = source[MIRRORED_LANDMARKS] * (-1, 1)
    z, w = source @ (1, 1j), np.asarray(face.landmarks, np.float64) @ (1, 1j)
    centre, aim = z.mean(), w.mean()
    z, w = z - centre, w - aim
    spread = np.vdot(z, z).real
    if not spread > 0 or not np.isfinite(spread):
        return None
    turn = np.vdot(z, w) / spread
    if not abs(turn) > 1e-3 or not np.isfinite(turn):
        return None
    shift = aim - turn * centre
    return np.array([(turn.real * flip, -turn.imag, shift.real), (turn.imag * flip, turn.real, shift.imag)])
