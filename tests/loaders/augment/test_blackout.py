"""What a user notices of the blackouts: which pixels are black, how often, and that a fake stays visible."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
from facefeed.loaders.augment import BlockMask, FaceCompose, FaceCutout, HullHalfBlackout, LandmarkBlackout
from facefeed.loaders.augment.blackout import draw_block
from facefeed.pipeline.errors import UsageError

SIDE = 120
LANDMARKS = np.array([(40, 40), (80, 40), (60, 65), (45, 85), (75, 85)], np.float32)
DIAMOND = np.array([(60, 10), (100, 60), (60, 110), (20, 60)], np.float32)
"""Its centroid is (60, 60)."""


def a_face(*, mask: np.ndarray | None = None, **overrides: Any) -> dict[str, Any]:
    image = np.full((SIDE, SIDE, 3), 200, np.uint8)
    return {"image": image, "landmarks": LANDMARKS, "hull": DIAMOND, "regions": {}, "mask": mask, **overrides}


def black_pixels(transform: Any, seed: int = 0, **overrides: Any) -> np.ndarray:
    """Where a transform made a face black: bool (H, W); every other pixel must be as it was."""
    image = FaceCompose([transform], seed=seed)(**a_face(**overrides))["image"]
    dark = (image == 0).all(axis=2)
    assert (image[~dark] == 200).all()
    return dark


def distance_to(start: tuple[float, float], end: tuple[float, float]) -> np.ndarray:
    """Of every pixel to a line: (H, W)."""
    y, x = np.mgrid[:SIDE, :SIDE].astype(float)
    (x0, y0), (x1, y1) = start, end
    along = np.clip(((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / ((x1 - x0) ** 2 + (y1 - y0) ** 2), 0, 1)
    return np.hypot(x - x0 - along * (x1 - x0), y - y0 - along * (y1 - y0))


# ---- parts of the face


@pytest.mark.parametrize(
    ("part", "start", "end", "radius"),
    [
        ("eyes", (40, 40), (80, 40), 10),  # a quarter of 40
        ("nose", (60, 40), (60, 65), 10),
        ("mouth", (45, 85), (75, 85), 10),  # a third of 30
    ],
)
def test_a_part_is_black_within_the_documented_distance_of_its_line(
    part: str, start: tuple[float, float], end: tuple[float, float], radius: float
) -> None:
    dark, distance = black_pixels(LandmarkBlackout({part: 1}, p=1)), distance_to(start, end)
    assert dark[distance < radius - 1].all()
    assert not dark[distance > radius + 1].any()


def test_the_black_area_rotates_with_the_head() -> None:
    tilted = np.array([(40, 40), (70, 80), (40, 75), (30, 80), (50, 100)], np.float32)
    dark, distance = black_pixels(LandmarkBlackout({"eyes": 1}, p=1), landmarks=tilted), distance_to((40, 40), (70, 80))
    assert dark[distance < 11.5].all()
    assert not dark[distance > 13.5].any()


def test_eyes_mouth_nose_and_nothing_are_drawn_in_the_ratio_4_2_1_1() -> None:
    compose = FaceCompose([LandmarkBlackout(p=1)], seed=0)
    counts: Counter[str] = Counter()
    for _ in range(4000):
        image = compose(**a_face())["image"]
        dark = [
            name
            for name, (x, y) in {"eyes": (40, 40), "nose": (60, 65), "mouth": (50, 85)}.items()
            if not image[y, x].any()
        ]
        assert len(dark) <= 1
        counts["".join(dark) or "nothing"] += 1
    for name, eighths in {"eyes": 4, "mouth": 2, "nose": 1, "nothing": 1}.items():
        assert counts[name] == pytest.approx(500 * eighths, abs=100)


def test_a_face_at_the_border_blackens_no_more_than_the_image() -> None:
    shifted = LANDMARKS - np.float32([45, 45])
    dark = black_pixels(LandmarkBlackout({"eyes": 1}, p=1), landmarks=shifted)
    distance = distance_to((-5, -5), (35, -5))
    assert dark[distance < 9].all()
    assert not dark[distance > 11].any()
    assert not black_pixels(LandmarkBlackout({"mouth": 1}, p=1), landmarks=LANDMARKS + np.float32(1e7)).any()


def test_non_finite_landmarks_blacken_nothing() -> None:
    all_nan = np.full((5, 2), np.nan, np.float32)
    assert not black_pixels(LandmarkBlackout({"eyes": 1}, p=1), landmarks=all_nan).any()
    assert not black_pixels(HullHalfBlackout(p=1), hull=np.full((4, 2), np.nan, np.float32)).any()


# ---- the hull


def test_half_of_the_hull_is_black_cut_through_its_centroid() -> None:
    y, x = np.mgrid[:SIDE, :SIDE].astype(float)
    inside = np.abs(x - 60) / 40 + np.abs(y - 60) / 50
    sides = {"top": y < 60, "bottom": y >= 60, "left": x < 60, "right": x >= 60}
    counts: Counter[str] = Counter()
    for seed in range(60):
        dark = black_pixels(HullHalfBlackout(p=1), seed)
        [side] = [name for name, half in sides.items() if not dark[~half].any()]
        assert dark[sides[side] & (inside < 0.97)].all()
        assert not dark[inside > 1.04].any()
        counts[side] += 1
    assert set(counts) == set(sides)


def test_the_halves_come_equally_often() -> None:
    compose, counts = FaceCompose([HullHalfBlackout(p=1)], seed=2), Counter[int]()
    for _ in range(2000):
        image = compose(**a_face())["image"][..., 0]
        counts[int(np.argmin([image[:59].sum(), image[62:].sum(), image[:, :59].sum(), image[:, 62:].sum()]))] += 1
    assert all(counts[side] == pytest.approx(500, abs=100) for side in range(4))


def test_a_hull_without_area_blackens_nothing() -> None:
    assert not black_pixels(HullHalfBlackout(p=1), hull=np.array([(10, 10), (50, 50), (90, 90)], np.float32)).any()


def test_a_hull_partly_out_of_the_frame_is_cut_where_it_lies() -> None:
    hull = DIAMOND - np.float32([70, 0])  # the centroid is 10 px left of the image
    black_areas = {black_pixels(HullHalfBlackout(p=1), seed, hull=hull)[:, :30].sum() for seed in range(20)}
    assert 0 in black_areas  # the left half lies outside
    assert max(black_areas) > 500


# ---- blocks


def six_blocks(height: int, width: int) -> dict[str, np.ndarray]:
    top = np.arange(height)[:, None] < height // 2
    left = np.arange(width)[None] < width // 2
    return {
        "top": top & (left | ~left), "bottom": ~top & (left | ~left), "left": left & (top | ~top),
        "right": ~left & (top | ~top), "falling": top == left, "rising": top != left,
    }  # fmt: skip


def block_of(image: np.ndarray) -> str:
    dark = (image == 0).all(axis=2)
    names = [name for name, block in six_blocks(*dark.shape).items() if np.array_equal(block, dark)]
    return names[0] if names else "none" if not dark.any() else "other"


def test_the_six_blocks_are_equally_likely_also_on_images_that_are_not_square() -> None:
    compose, counts = FaceCompose([BlockMask(p=1)], seed=0), Counter[str]()
    for _ in range(1800):
        counts[block_of(compose(**a_face(image=np.full((60, 100, 3), 9, np.uint8)))["image"])] += 1
    assert set(counts) == set(six_blocks(2, 2))
    assert all(count == pytest.approx(300, abs=80) for count in counts.values())


def a_mask(rows: slice, columns: slice) -> np.ndarray:
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[rows, columns] = 1
    return mask


def test_a_fake_keeps_more_than_twenty_manipulated_pixels_visible() -> None:
    mask = a_mask(slice(10, 13), slice(10, 17))  # 21, all of them top left
    compose = FaceCompose([BlockMask(p=1)])
    counts: Counter[str] = Counter()
    for seed in range(300):
        compose.set_random_seed(seed)
        result = compose(**a_face(mask=mask))
        counts[block_of(result["image"])] += 1
        assert result["mask"].sum() == 21
    assert counts.keys() - {"none"} == {"bottom", "right", "rising"}
    assert counts["none"] == pytest.approx(300 / 2**5, abs=9)  # five draws, each as likely wrong as right


def test_a_fake_with_too_few_visible_pixels_is_unchanged_and_a_real_face_never_is() -> None:
    for seed in range(20):
        compose = FaceCompose([BlockMask(p=1)], seed=seed)
        assert block_of(compose(**a_face(mask=a_mask(slice(10, 12), slice(10, 20))))["image"]) == "none"
        assert block_of(compose(**a_face(mask=np.zeros((SIDE, SIDE), np.uint8)))["image"]) != "none"
        assert block_of(compose(**a_face())["image"]) != "none"


def test_what_comes_after_is_drawn_alike_for_a_fake_and_its_original() -> None:
    """A fake's mask rejects blocks; else a flip after that would be of one of the two, and show which."""
    mask = np.zeros((SIDE, SIDE), np.uint8)
    mask[: SIDE // 2] = 255
    following = set()
    for each in (mask, None):
        rng = random.Random(7)
        for _ in range(20):
            draw_block(rng, (SIDE, SIDE), each, SIDE * SIDE // 3)
        following.add(rng.random())
    assert len(following) == 1


def test_the_mask_shows_what_can_still_be_seen() -> None:
    mask = np.ones((SIDE, SIDE), np.uint8)
    for transform in (LandmarkBlackout({"mouth": 1}, p=1), HullHalfBlackout(p=1), BlockMask(p=1)):
        result = FaceCompose([transform], seed=1)(**a_face(mask=mask))
        assert np.array_equal(result["mask"] == 0, (result["image"] == 0).all(axis=2))
        assert not result["mask"].all()
    assert mask.all()


# ---- the chain


def test_face_cutout_applies_each_blackout_at_its_documented_rate() -> None:
    compose, counts = FaceCompose([FaceCutout()], seed=1), Counter[str]()
    draws = 6000
    for _ in range(draws):
        image = compose(**a_face())["image"]
        dark = (image == 0).all(axis=2)
        share = dark.mean()
        counts["nothing" if not share else "block" if share == 0.5 else "hull" if share > 0.11 else "part"] += 1
    assert counts["part"] / draws == pytest.approx(0.7 * 7 / 8, abs=0.03)
    assert counts["hull"] / draws == pytest.approx(0.3 * 0.2, abs=0.015)
    assert counts["block"] / draws == pytest.approx(0.3 * 0.8 * 0.1, abs=0.01)


def test_face_cutout_never_hides_all_of_a_fake() -> None:
    mask = a_mask(slice(80, 90), slice(45, 75))  # a new mouth
    hidden = FaceCompose([LandmarkBlackout({"mouth": 1}, p=1)])(**a_face(mask=mask))
    assert hidden["mask"].sum() < 21
    compose, num_changed = FaceCompose([FaceCutout(landmark=1)]), 0
    for seed in range(100):
        compose.set_random_seed(seed)
        result = compose(**a_face(mask=mask))
        assert result["mask"].sum() > 20
        num_changed += bool((result["image"] == 0).any())
    assert num_changed > 50


# ---- arguments


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LandmarkBlackout({"ears": 1}), "'ears' is none of eyes, mouth, nose, nothing"),
        (lambda: LandmarkBlackout({"eyes": -1}), "eyes=-1 must be a number of at least 0; try 1"),
        (lambda: LandmarkBlackout({"eyes": 0}), "one must be above 0"),
        (lambda: LandmarkBlackout({}), "must map names to numbers"),
        (lambda: LandmarkBlackout(p=1.5), "p=1.5: must be a number from 0 to 1"),
        (lambda: LandmarkBlackout(p=True), "p=True: must be a number from 0 to 1"),
        (lambda: BlockMask(min_visible_px=-1), "min_visible_px=-1: must be a number of at least 0; try 20"),
        (lambda: BlockMask(min_visible_px=10**400), "0: must be a number of at least 0; try 20"),
        (lambda: FaceCutout(hull=2), "hull=2: must be a number from 0 to 1"),
        (lambda: FaceCutout(min_visible_px=float("nan")), "min_visible_px=nan: must be"),
    ],
)
def test_a_wrong_argument_is_reported_with_its_value_and_its_rule(make: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert message in str(caught.value)


def test_numbers_may_be_numpys() -> None:
    blackout = LandmarkBlackout({"eyes": np.int64(1), "nose": np.float32(0.5)}, p=np.float32(0.25))
    assert (blackout.weights, blackout.p) == ({"eyes": 1.0, "nose": 0.5}, 0.25)
    assert BlockMask(min_visible_px=np.int32(30)).min_visible_px == 30


def test_weights_in_another_order_draw_the_same_parts() -> None:
    """A saved pipeline has them in another order."""
    weights = {"nose": 3.0, "eyes": 1.0, "mouth": 2.0}
    saved = A.from_dict(A.to_dict(FaceCompose([LandmarkBlackout(weights, p=1)])))[0]
    for seed in range(20):
        expected = black_pixels(LandmarkBlackout(weights, p=1), seed)
        for other in (LandmarkBlackout(dict(sorted(weights.items())), p=1), saved):
            assert np.array_equal(black_pixels(other, seed), expected)


def test_non_default_settings_survive_a_file() -> None:
    compose = FaceCompose([LandmarkBlackout({"nose": 3, "eyes": 1}, p=0.25), FaceCutout(0.1, 0.2, 0.3, 40, 0.4)])
    copy = A.from_dict(A.to_dict(compose))
    assert copy[0].weights == {"nose": 3.0, "eyes": 1.0}
    assert (copy[1].landmark, copy[1].hull, copy[1].block, copy[1].min_visible_px, copy[1].p) == (
        0.1,
        0.2,
        0.3,
        40,
        0.4,
    )
