"""What a user notices of `LandmarkJitter` and `MouthCrop`: everything of a face moves with its image."""

from __future__ import annotations

from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
from facefeed.loaders.augment import FaceCompose, LandmarkJitter, MouthCrop
from facefeed.loaders.augment.published.warps import MEAN_FACE
from facefeed.loaders.augment.similarity import fit_similarity
from facefeed.pipeline.errors import UsageError

SIDE = 160
LANDMARKS = np.float32([(60, 60), (100, 62), (80, 84), (64, 104), (96, 105)])
HULL = np.float32([(40, 40), (120, 44), (118, 120), (80, 132), (44, 118)])
REGIONS = {"mouth": np.float32([60, 96, 100, 112])}


def a_face(image: np.ndarray, **changes: Any) -> dict[str, Any]:
    return {"image": image, "landmarks": LANDMARKS, "hull": HULL, "regions": REGIONS, "mask": None, **changes}


def dots(points: np.ndarray) -> np.ndarray:
    """A bright dot on each of a few points, crop px."""
    image = np.zeros((SIDE, SIDE, 3), np.uint8)
    for x, y in points - 0.5:
        cv2.circle(image, (round(x * 16), round(y * 16)), 3 * 16, (255, 255, 255), -1, cv2.LINE_AA, shift=4)
    return image


def centre_near(image: np.ndarray, point: np.ndarray) -> np.ndarray:
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]] + 0.5
    weight = image[..., 0] * (np.hypot(columns - point[0], rows - point[1]) < 7)
    return np.array([(columns * weight).sum(), (rows * weight).sum()]) / weight.sum()


# ---- jitter


def test_points_stay_on_their_pixels() -> None:
    compose = FaceCompose([LandmarkJitter(0.1, p=1)])
    mask = (dots(LANDMARKS)[..., 0] > 128).astype(np.uint8)
    for seed in range(10):
        compose.set_random_seed(seed)
        face = a_face(dots(LANDMARKS), mask=mask, landmarks_68=np.repeat(LANDMARKS, 14, axis=0)[:68])
        result = compose(**face)
        for point in result["landmarks"]:
            np.testing.assert_allclose(centre_near(result["image"], point), point, atol=0.2)
        assert np.hypot(*(result["landmarks"] - LANDMARKS).T).max() > 0.3
        np.testing.assert_allclose(result["landmarks_68"][::14], result["landmarks"], atol=1e-3)
        moved = np.column_stack([HULL, np.ones(5)]) @ fit_similarity(LANDMARKS, result["landmarks"]).T
        np.testing.assert_allclose(result["hull"], moved, atol=0.01)
        assert np.mean((result["image"][..., 0] > 128) != result["mask"]) < 0.01
        assert set(np.unique(result["mask"])) == {0, 1}


def test_the_noise_is_relative_to_the_distance_of_the_eyes() -> None:
    shifts = {}
    for noise, scale in ((0.05, 1.0), (0.05, 2.0), (0.1, 1.0)):
        compose = FaceCompose([LandmarkJitter(noise, p=1)], seed=0)
        face = a_face(np.zeros((8, 8, 3), np.uint8), landmarks=LANDMARKS * scale)
        moved = np.array([compose(**face)["landmarks"].mean(axis=0) - LANDMARKS.mean(axis=0) * scale
                          for _ in range(300)])  # fmt: skip
        shifts[noise, scale] = moved.std()
    expected = 0.05 * np.hypot(40, 2) / np.sqrt(5)  # the mean of five
    assert shifts[0.05, 1.0] == pytest.approx(expected, rel=0.1)
    assert shifts[0.05, 2.0] == pytest.approx(2 * expected, rel=0.1)
    assert shifts[0.1, 1.0] == pytest.approx(2 * expected, rel=0.12)


def test_without_noise_and_for_landmarks_that_coincide_nothing_moves() -> None:
    image = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    result = FaceCompose([LandmarkJitter(0, p=1)])(**a_face(image))
    assert np.abs(result["image"].astype(int) - image).max() <= 1
    np.testing.assert_allclose(result["hull"], HULL, atol=1e-3)
    points = np.full((5, 2), 30, np.float32)
    assert (FaceCompose([LandmarkJitter(p=1)])(**a_face(image, landmarks=points))["image"] == image).all()


def test_nothing_black_comes_in_from_outside() -> None:
    compose = FaceCompose([LandmarkJitter(0.3, p=1)], seed=0)
    white = np.full((SIDE, SIDE, 3), 200, np.uint8)
    assert all((compose(**a_face(white))["image"] == 200).all() for _ in range(20))


# ---- mouth

_TURN = np.deg2rad(12)
TO_IMAGE = 0.55 * np.array([(np.cos(_TURN), -np.sin(_TURN)), (np.sin(_TURN), np.cos(_TURN))])
SHIFT = np.array([22.0, -6.0])
MOUTH = np.array([(128 + 24 * np.cos(a), 158 + 10 * np.sin(a)) for a in np.linspace(0, 6, 20)])


def points_68() -> np.ndarray:
    """68 points of the standard face, placed in the image: turned, smaller, elsewhere."""
    standard = np.full((68, 2), 128.0)
    standard[[33, 36, 39, 42, 45]], standard[48:68] = MEAN_FACE, MOUTH
    return (standard @ TO_IMAGE.T + SHIFT + 0.5).astype(np.float32)


def test_the_mouth_is_cut_as_published_from_a_face_aligned_with_the_mean_face() -> None:
    image = cv2.resize(np.random.default_rng(1).integers(0, 256, (20, 20, 3), np.uint8), (SIDE, SIDE))
    result = FaceCompose([MouthCrop()])(**a_face(image, landmarks_68=points_68()))
    to_standard = fit_similarity(points_68()[[33, 36, 39, 42, 45]] - 0.5, MEAN_FACE)
    frame = cv2.warpAffine(image, to_standard, (256, 256))
    x, y = np.rint(MOUTH.mean(axis=0)).astype(int)
    assert result["image"].shape == (96, 96, 3)
    assert np.abs(result["image"].astype(int) - frame[y - 48 : y + 48, x - 48 : x + 48]).max() <= 1
    np.testing.assert_allclose(result["landmarks_68"][48:68], MOUTH - (x - 48, y - 48) + 0.5, atol=0.01)


def test_a_mouth_at_the_border_of_the_frame_moves_the_square_into_it() -> None:
    low = points_68()
    low[48:68] += 80 * TO_IMAGE[:, 1]
    result = FaceCompose([MouthCrop()])(**a_face(np.zeros((SIDE, SIDE, 3), np.uint8), landmarks_68=low))
    assert result["landmarks_68"][33, 1] == pytest.approx(MEAN_FACE[0, 1] - (256 - 96) + 0.5, abs=0.01)


def test_another_size_a_mirror_image_and_the_crop_of_88_px() -> None:
    image = dots(points_68()[48:49])
    compose = FaceCompose([A.HorizontalFlip(p=1), MouthCrop(64), A.CenterCrop(56, 56)])
    result = compose(**a_face(image, landmarks_68=points_68()))
    assert result["image"].shape == (56, 56, 3)
    assert result["landmarks_68"][48:68].mean(axis=0) == pytest.approx((28, 28), abs=4)
    assert FaceCompose([MouthCrop(), A.RandomCrop(88, 88)])(**a_face(image, landmarks_68=points_68()))[
        "image"
    ].shape == (88, 88, 3)


def test_a_face_whose_points_are_missing_is_aligned_by_its_five_landmarks() -> None:
    result = FaceCompose([MouthCrop()])(**a_face(dots(LANDMARKS), landmarks_68=np.empty((0, 2), np.float32)))
    assert result["image"].shape == (96, 96, 3)
    assert result["landmarks"][3:].mean(axis=0) == pytest.approx((48, 48), abs=4)


def test_a_dataset_without_dense_points_is_refused_with_the_command_that_makes_them() -> None:
    with pytest.raises(UsageError, match=r"MouthCrop: needs landmarks_68.*facefeed add OUT landmarks"):
        FaceCompose([MouthCrop()])(**a_face(dots(LANDMARKS)))


@pytest.mark.parametrize("size_px", [1, 300, 95.5, "96"])
def test_a_size_that_cannot_be_is_refused(size_px: Any) -> None:
    with pytest.raises(UsageError, match=r"size_px=.*try 96"):
        MouthCrop(size_px)
