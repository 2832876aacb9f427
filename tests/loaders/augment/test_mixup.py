"""What a user notices of `AlignedMixup`: two faces lie on each other, and the label's share is the image's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
from facefeed.loaders.augment import AlignedMixup, FaceCompose
from facefeed.loaders.face import Face
from facefeed.pipeline.errors import UsageError

SIDE = 100
LANDMARKS = np.array([(35, 40), (65, 38), (52, 55), (40, 72), (62, 71)], np.float32)
HULL = np.array([(20, 15), (80, 15), (80, 90), (20, 90)], np.float32)


def a_face(partner: Face | None, level: int = 200, mask: np.ndarray | None = None) -> dict[str, Any]:
    image = np.full((SIDE, SIDE, 3), level, np.uint8)
    points = {"landmarks": LANDMARKS, "hull": HULL, "regions": {}}
    return {"image": image, **points, "mask": mask, "partner": partner, "label": 1}


def a_partner(image: np.ndarray, landmarks: np.ndarray = LANDMARKS) -> Face:
    return Face(image=image, landmarks=landmarks.astype(np.float32), hull=HULL, regions={}, label=0)


def flat(level: int, side: int = SIDE) -> np.ndarray:
    return np.full((side, side, 3), level, np.uint8)


def test_image_and_label_are_mixed_in_the_same_share() -> None:
    compose = FaceCompose([AlignedMixup(p=1)])
    shares = []
    for seed in range(50):
        compose.set_random_seed(seed)
        result = compose(**a_face(a_partner(flat(100))))
        share = result["label"]
        assert isinstance(share, float)
        assert np.abs(result["image"] - (200 * share + 100 * (1 - share))).max() <= 1
        shares.append(share)
    assert len(set(shares)) == 50


def test_shares_are_drawn_from_a_beta_distribution() -> None:
    for alpha in (0.5, 2.0):
        compose = FaceCompose([AlignedMixup(alpha, p=1)], seed=0)
        shares = np.array([compose(**a_face(a_partner(flat(100, 8), LANDMARKS / 12)))["label"] for _ in range(1500)])
        assert shares.mean() == pytest.approx(0.5, abs=0.04)
        assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), abs=0.012)


def test_without_a_partner_nothing_happens() -> None:
    result = FaceCompose([AlignedMixup(p=1)])(**a_face(None))
    assert (result["image"] == 200).all()
    assert result["label"] == 1.0


@pytest.mark.parametrize(("label", "partner_label"), [(-1, 0), (1, -1)])
def test_a_face_whose_label_nobody_knows_is_not_mixed(label: int, partner_label: int) -> None:
    partner = replace(a_partner(flat(100)), label=partner_label)
    result = FaceCompose([AlignedMixup(p=1)])(**{**a_face(partner), "label": label})
    assert (result["image"] == 200).all()
    assert result["label"] == label


def test_with_p_zero_nothing_happens() -> None:
    result = FaceCompose([AlignedMixup(p=0)])(**a_face(a_partner(flat(0))))
    assert (result["image"] == 200).all()
    assert result["label"] == 1.0


def dotted(landmarks: np.ndarray, side: int, extra: tuple[float, float]) -> np.ndarray:
    """Dark, with a bright dot at each landmark, and a brighter mole that no landmark marks."""
    image = np.zeros((side, side, 3), np.uint8)
    for x, y in np.rint(landmarks).astype(int).tolist():
        cv2.circle(image, (x, y), 3, (255, 0, 0), -1)
    cv2.circle(image, (round(extra[0]), round(extra[1])), 3, (0, 255, 0), -1)
    return image


TURN = np.deg2rad(20)
ROTATED = 2.2 * np.array([(np.cos(TURN), -np.sin(TURN)), (np.sin(TURN), np.cos(TURN))])
CORNER = np.array([30.0, 10.0])
"""The partner's crop is another one: turned by 20 degrees, 2.2 times as large, elsewhere."""


def placed(points: np.ndarray) -> np.ndarray:
    placed: np.ndarray = points @ ROTATED.T + CORNER
    return placed


@pytest.mark.parametrize(
    "flips", [[], [A.HorizontalFlip(p=1)], [A.Transpose(p=1)]], ids=["upright", "flipped", "transposed"]
)
def test_the_partner_is_aligned_with_the_face_by_its_landmarks(flips: list[Any]) -> None:
    mole = np.array([(30, 60)], np.float32)
    partner_landmarks = placed(LANDMARKS)
    half = np.float32(0.5)  # a dot that is drawn at a pixel has its centre half a pixel from that pixel's corner
    partner = a_partner(dotted(partner_landmarks, 330, tuple(placed(mole)[0])), partner_landmarks + half)
    face = {**a_face(partner, level=0), "landmarks": LANDMARKS + half}
    result = FaceCompose([*flips, AlignedMixup(p=1)], seed=3)(**face)
    moved = FaceCompose(flips)(**{**a_face(None), "hull": mole + half})
    assert 0.05 < result["label"] < 0.95
    for channel, points in ((0, result["landmarks"] - half), (1, moved["hull"] - half)):
        bright = result["image"][..., channel] > 0.5 * 255 * (1 - result["label"])
        count, _, _, centres = cv2.connectedComponentsWithStats(bright.astype(np.uint8))
        assert count - 1 == len(points)
        for x, y in points:
            assert min(np.hypot(*(centre - (x, y))) for centre in centres[1:]) < 0.8


def test_where_the_partner_has_no_pixels_the_image_stays() -> None:
    partner_landmarks = LANDMARKS - np.float32([30, 30])  # a tight crop: its face fills it
    result = FaceCompose([AlignedMixup(p=1)], seed=0)(**a_face(a_partner(flat(100, 50), partner_landmarks)))
    expected = 200 * result["label"] + 100 * (1 - result["label"])
    assert np.abs(result["image"][32:78, 32:78] - expected).max() <= 1
    assert (result["image"][:29] == 200).all()
    assert (result["image"][:, 81:] == 200).all()


def test_the_mask_stays_the_fakes() -> None:
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[40:60, 40:60] = 1
    result = FaceCompose([AlignedMixup(p=1)])(**a_face(a_partner(flat(100)), mask=mask))
    assert np.array_equal(result["mask"], mask)


def test_mixing_twice_leaves_the_product_of_the_shares() -> None:
    result = FaceCompose([AlignedMixup(2, p=1), AlignedMixup(2, p=1)], seed=1)(**a_face(a_partner(flat(100))))
    assert np.abs(result["image"] - (100 + 100 * result["label"])).max() <= 2


@pytest.mark.parametrize("landmarks", [np.full((5, 2), 7.0), np.full((5, 2), np.nan)], ids=["one place", "nowhere"])
def test_landmarks_that_cannot_be_aligned_leave_the_image_unchanged(landmarks: np.ndarray) -> None:
    result = FaceCompose([AlignedMixup(p=1)])(**a_face(a_partner(flat(100), landmarks)))
    assert (result["image"] == 200).all()
    assert result["label"] == 1.0


def test_what_is_no_face_is_refused_as_partner_and_alpha_must_be_above_zero() -> None:
    with pytest.raises(UsageError, match="partner=ndarray: must be a facefeed"):
        FaceCompose([AlignedMixup(p=1)])(**{**a_face(None), "partner": flat(1)})
    with pytest.raises(UsageError, match=r"alpha=0: must be a number above 0; try 0\.5"):
        AlignedMixup(alpha=0)
