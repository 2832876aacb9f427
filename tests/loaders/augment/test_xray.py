"""What a user notices of `FaceXRay`: the mask becomes the boundary along which two images were blended."""

from __future__ import annotations

from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
from facefeed.loaders.augment import FaceCompose, FaceXRay, SelfBlend
from facefeed.pipeline.errors import UsageError

HULL = np.float32([(10, 10), (50, 10), (50, 50), (10, 50)])
LANDMARKS = np.float32([(20, 20), (40, 20), (30, 30), (22, 40), (38, 40)])


def xray_of(mask: np.ndarray | None, *transforms: Any, **options: Any) -> Any:
    image = np.full((64, 64, 3), 90, np.uint8)
    compose = FaceCompose([*transforms, FaceXRay(**options)], seed=2)
    return compose(image=image, landmarks=LANDMARKS, hull=HULL, regions={}, mask=mask, label=0)["mask"]


def test_it_is_4_m_1_minus_m_of_a_soft_mask() -> None:
    mask = np.linspace(0, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    xray = xray_of(mask)
    assert xray.dtype == np.float32
    np.testing.assert_allclose(xray, 4 * mask * (1 - mask), atol=1e-6)
    assert xray.max() == pytest.approx(1, abs=1e-4)
    assert xray[0, 0] == xray[-1, -1] == 0


def test_a_binary_mask_is_blurred_first() -> None:
    mask = np.zeros((64, 64), np.uint8)
    mask[10:40, 20:50] = 1
    for kernel in (3, 9):
        soft = cv2.GaussianBlur(mask.astype(np.float32), (kernel, kernel), 0)
        np.testing.assert_allclose(xray_of(mask, kernel_px=kernel), 4 * soft * (1 - soft), atol=1e-6)
    assert xray_of(mask)[25, 30] == 0
    assert xray_of(mask)[10, 30] > 0.7


def test_a_face_that_was_blended_has_one_and_a_real_one_has_none() -> None:
    assert xray_of(None) is None
    xray = xray_of(None, SelfBlend(p=1))
    assert 0 < xray.max() <= 1
    assert xray[0, 0] == 0


def test_a_kernel_may_be_a_number_of_numpy() -> None:
    assert FaceXRay(kernel_px=np.int64(5)).kernel_px == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel_px", [0, 4, -3, 2.5, True])
def test_a_kernel_that_is_not_odd_is_refused(kernel_px: Any) -> None:
    with pytest.raises(UsageError, match=r"kernel_px=.*odd"):
        FaceXRay(kernel_px=kernel_px)


@pytest.mark.parametrize(
    "transforms",
    [
        [FaceXRay(), SelfBlend(p=1)],
        [FaceXRay(), SelfBlend(p=1), FaceXRay()],
        [A.Sequential([FaceXRay()], p=1), A.HorizontalFlip(), A.OneOf([SelfBlend(p=1)])],
    ],
)
def test_before_a_self_blend_it_is_refused(transforms: list[Any]) -> None:
    with pytest.raises(UsageError, match=r"FaceXRay before SelfBlend: .* put FaceXRay last"):
        FaceCompose(transforms)


def test_after_a_self_blend_it_is_accepted_at_any_depth() -> None:
    assert FaceCompose([A.OneOf([SelfBlend(p=1)]), A.Sequential([FaceXRay()], p=1)]).self_blend is not None
