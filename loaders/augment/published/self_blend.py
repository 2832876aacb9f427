"""`SelfBlend`: makes a fake of a real face by blending two versions of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
from numpy.typing import NDArray

from ....pipeline.dataset.schema import real_class
from ....pipeline.errors import UsageError
from ...whole_numbers import optional_int
from ..base import FaceTransform
from .blend_masks import draw_blend_mask, draw_face_mask

BLEND_RATIOS: Final = (0.25, 0.5, 0.75, 1.0, 1.0, 1.0)
"""The mask is multiplied by one of these, each equally likely."""

_SCALES: Final = (0.95, 1 / 0.95)
_SHIFT_X: Final = 0.03  # at most, of the image's width
_SHIFT_Y: Final = 0.015  # at most, of its height


class SelfBlend(FaceTransform):
    """Self-blended images: makes a fake of a real face; its label becomes `fake` and its mask the blending mask.

    Source and target are the same image. One of them, drawn at random, changes its colours slightly and is sharpened or
    scaled down and up. The source is moved and resized by a few per cent and blended into the target within a mask of
    the face: a hull or a combination of parts, deformed, blurred and multiplied by one of `BLEND_RATIOS`.

    Only faces whose label is `real` are blended: others pass through. `p`: share of real faces that become fakes; with
    `balance=BlendPairs()` each face comes twice, and the second becomes one. Real faces that stay real are targets too:
    half of them change their colours in the same way, or else these changes would show which faces are fakes; with `p`
    0 nothing is changed. So it must be a transform of the pipeline itself, not of one within it, and the pipeline's own
    `p` be 1.

    `real`, `fake`: labels, as positions in the dataset's `labels`; None: 0 and 1, of a dataset whose names say that
    these are. The mask is float32 (H, W), 0..1, the share of the source in each pixel. With `landmarks_68` the face's
    mask is drawn from the published variants, else it is the hull.

    Source: Shiohara & Yamasaki, "Detecting Deepfakes with Self-Blended Images" (CVPR 2022) and its code
    (github.com/mapooon/SelfBlendedImages), with the parameters of that code.
    """

    reads_mask = False

    def __init__(self, real: int | None = None, fake: int | None = None, p: float = 0.5) -> None:
        super().__init__(p=p)
        self._recolour = _recolouring()
        self.real = optional_int("real", real, minimum=0, example=0)
        self.fake = optional_int("fake", fake, minimum=0, example=1)
        if self.real_label == self.fake_label:
            raise UsageError(f"fake={self.fake_label}: must be another label than real; try real=0, fake=1")
        self._becomes_fake = False

    @property
    def real_label(self) -> int:
        """The label whose faces are blended."""
        return 0 if self.real is None else self.real

    @property
    def fake_label(self) -> int:
        """The label that they get."""
        return 1 if self.fake is None else self.fake

    @property
    def targets(self) -> dict[str, Callable[..., Any]]:
        """Maps each target to the method that transforms it, as Albumentations requires."""
        return {"image": self.apply, "label": self.apply_to_label}

    def should_apply(self, force_apply: bool = False) -> bool:
        """True unless `p` is 0: what is drawn by `p` is whether the face becomes a fake."""
        self._becomes_fake = super().should_apply(force_apply)
        return self._becomes_fake or self.p > 0

    def check_labels(self, labels: Sequence[str]) -> None:
        """Raises `UsageError` where the labels of a dataset, by position, are not what `real` and `fake` say."""
        listed = ", ".join(f"{number}: {name}" for number, name in enumerate(labels))
        real, fake = self.real_label, self.fake_label
        if max(real, fake) >= len(labels):
            raise UsageError(f"SelfBlend(real={real}, fake={fake}): the dataset has the labels {listed}")
        if (expected := real_class(labels)) is None and None in (self.real, self.fake):
            raise UsageError(
                f"SelfBlend: no label of this dataset is called real, or alike: {listed}; give real= and fake=, numbers"
            )
        if expected not in (None, real):
            raise UsageError(
                f"SelfBlend(real={real}): is {labels[real]!r} in this dataset, whose labels are {listed}; "
                f"try real={expected}"
            )

    def get_params_dependent_on_data(self, params: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
        """`source`, `target`: uint8 (H, W, 3), and `mask` float32 (H, W); a mask of None: the target alone."""
        face = self.face(data)
        if data.get("label") is None:
            raise UsageError("SelfBlend: label is missing, without which no face is known to be real; give label=")
        # One draw for all: so the real and the fake of a pair have one target, and other transforms draw the same.
        seed = self.py_random.getrandbits(64)
        rng, generator = random.Random(seed), np.random.default_rng(seed)  # noqa: S311 (no secrets)
        self._recolour.set_random_state(generator, rng)
        becomes_fake = self._becomes_fake if data.get("blend") is None else data["blend"]
        image = target = source = data["image"]
        if data["label"] != self.real_label:
            return {"source": image, "target": image, "blend_mask": None}
        if rng.random() < 0.5:
            target = self._recolour(image=image)["image"]
        elif becomes_fake:
            source = self._recolour(image=image)["image"]
        if not becomes_fake:
            return {"source": source, "target": target, "blend_mask": None}
        height, width = params["shape"][:2]
        mask = draw_face_mask(rng, face, (height, width))
        matrix = _draw_affine(rng, height, width)
        source = cv2.warpAffine(source, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
        mask = cv2.warpAffine(mask, matrix, (width, height), flags=cv2.INTER_NEAREST)
        soft = draw_blend_mask(generator, rng, mask)
        if soft is not None:
            soft *= rng.choice(BLEND_RATIOS)
        return {"source": source, "target": target, "blend_mask": soft}

    def apply_with_params(self, params: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Transforms the targets; a fake gets a mask, which a real face has none of."""
        result: dict[str, Any] = super().apply_with_params(params, *args, **kwargs)
        if params["blend_mask"] is not None:
            result["mask"] = params["blend_mask"]
        return result

    def apply(
        self,
        img: NDArray[np.uint8],  # noqa: ARG002
        source: NDArray[np.uint8],
        target: NDArray[np.uint8],
        blend_mask: NDArray[np.float32] | None,
        **params: Any,  # noqa: ARG002
    ) -> NDArray[np.uint8]:
        """Returns mask * source + (1 - mask) * target."""
        if blend_mask is None:
            return target
        blended: NDArray[np.uint8] = cv2.blendLinear(source, target, blend_mask, 1 - blend_mask)
        return blended

    def apply_to_label(self, label: float, blend_mask: NDArray[np.float32] | None, **params: Any) -> float:  # noqa: ARG002
        """The label of a fake where a face was blended."""
        return label if blend_mask is None else self.fake_label


def _draw_affine(rng: random.Random, height: int, width: int) -> NDArray[np.float64]:
    """The matrix (2, 3), from pixel centres: scales about the image's centre, each axis by its own, and shifts."""
    scale_x, scale_y = rng.uniform(*_SCALES), rng.uniform(*_SCALES)
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    shift_x, shift_y = rng.uniform(-_SHIFT_X, _SHIFT_X) * width, rng.uniform(-_SHIFT_Y, _SHIFT_Y) * height
    return np.array(
        [(scale_x, 0, centre_x * (1 - scale_x) + shift_x), (0, scale_y, centre_y * (1 - scale_y) + shift_y)]
    )


def _recolouring() -> A.Compose:
    """What the published code applies to source or target."""
    nearest_linear = {"downscale": cv2.INTER_NEAREST, "upscale": cv2.INTER_LINEAR}
    return A.Compose(
        [
            A.RGBShift((-20, 20), (-20, 20), (-20, 20), p=0.3),
            A.HueSaturationValue((-0.3, 0.3), (-0.3, 0.3), (-0.3, 0.3), p=1),
            A.RandomBrightnessContrast(brightness_limit=(-0.1, 0.1), contrast_limit=(-0.1, 0.1), p=1),
            A.OneOf(
                [
                    A.OneOf([A.Downscale((r, r), interpolation_pair=nearest_linear, p=1) for r in (1 / 2, 1 / 4)], p=1),
                    A.Sharpen(alpha=(0.2, 0.5), lightness=(0.5, 1.0), p=1),
                ],
                p=1,
            ),
        ]
    )
