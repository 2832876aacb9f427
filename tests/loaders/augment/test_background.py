"""What a user notices of `BackgroundRemoval`: the face alone, or everything but the face."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from facefeed.loaders.augment import BackgroundRemoval, FaceCompose
from facefeed.pipeline.errors import UsageError

HULL = np.float32([(30, 30), (70, 30), (70, 70), (30, 70)])
LANDMARKS = np.float32([(40, 40), (60, 40), (50, 50), (42, 60), (58, 60)])  # eyes 20 px apart
IMAGE = np.random.default_rng(0).integers(1, 256, (100, 100, 3), np.uint8)
WITHIN = np.zeros((100, 100), bool)
WITHIN[31:69, 31:69] = True
NEAR = np.zeros((100, 100), bool)
NEAR[29:71, 29:71] = True


def removed(mask: np.ndarray | None = None, hull: np.ndarray = HULL, **options: Any) -> dict[str, Any]:
    compose = FaceCompose([BackgroundRemoval(**options)])
    return compose(image=IMAGE, landmarks=LANDMARKS, hull=hull, regions={}, mask=mask)


def test_the_face_is_kept_and_the_rest_is_filled() -> None:
    image = removed(margin=0, fill=7)["image"]
    assert (image[WITHIN] == IMAGE[WITHIN]).all()
    assert (image[~NEAR] == 7).all()


def test_the_background_is_kept_and_the_face_is_filled_with_what_says_nothing_of_it() -> None:
    image = removed(keep="background", margin=0, fill="mean")["image"]
    assert (image[~NEAR] == IMAGE[~NEAR]).all()
    fill = image[50, 50]
    assert (image[WITHIN] == fill).all()
    kept = ~(image == fill).all(axis=2)
    np.testing.assert_allclose(fill, IMAGE[kept].mean(axis=0), atol=0.6)


def test_the_hull_is_dilated_by_the_margin_times_the_eye_distance() -> None:
    image = removed(margin=0.5)["image"]  # 10 px
    assert image[50, 21].all()
    assert not image[50, 18].any()
    assert not image[21, 21].any()  # a corner is round


def test_what_is_removed_may_be_blurred_instead() -> None:
    image = removed(margin=0, fill="blur")["image"]
    assert (image[WITHIN] == IMAGE[WITHIN]).all()
    assert 0 < image[~NEAR].std() < IMAGE[~NEAR].std() / 3


def test_the_blur_is_a_gaussian_of_half_the_distance_between_the_eyes() -> None:
    edge = np.zeros((100, 100, 3), np.uint8)
    edge[:, 50:] = 255
    compose = FaceCompose([BackgroundRemoval(margin=0, fill="blur")])
    row = compose(image=edge, landmarks=LANDMARKS, hull=HULL, regions={})["image"][5, :, 0]
    np.testing.assert_allclose(row, cv2.GaussianBlur(edge, (0, 0), 10)[5, :, 0], atol=12)
    assert np.abs(row.astype(float) - cv2.GaussianBlur(edge, (0, 0), 7)[5, :, 0]).max() > 20


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_the_mask_marks_what_is_still_visible(kind: Any) -> None:
    mask = np.ones((100, 100), kind)
    face, background = (removed(mask, keep=keep, margin=0)["mask"] for keep in ("face", "background"))
    assert face.dtype == kind
    assert face[WITHIN].all()
    assert not face[~NEAR].any()
    assert (face + background == 1).all()


def test_a_hull_without_area_changes_nothing() -> None:
    for hull in (np.zeros((4, 2), np.float32), np.full((4, 2), np.nan, np.float32)):
        assert (removed(hull=hull)["image"] == IMAGE).all()


@pytest.mark.parametrize("level", [np.int64(7), np.float32(7)])
def test_a_grey_level_may_be_a_number_of_numpy(level: Any) -> None:
    assert (removed(margin=0, fill=level)["image"] == removed(margin=0, fill=7)["image"]).all()


@pytest.mark.parametrize(
    "options", [{"keep": "eyes"}, {"fill": "noise"}, {"fill": 256}, {"fill": True}, {"margin": -1}]
)
def test_what_cannot_be_is_refused(options: Any) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(options))}=.*try"):
        BackgroundRemoval(**options)
