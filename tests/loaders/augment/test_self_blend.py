"""What a user notices of `SelfBlend`: a real face becomes a fake, by the steps and parameters of the published code."""

from __future__ import annotations

import random
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
from facefeed.loaders.augment import FaceCompose, SelfBlend
from facefeed.loaders.augment.points import FacePoints, InitialPoints
from facefeed.loaders.augment.published.blend_masks import _elastic_map, draw_blend_mask, draw_face_mask
from facefeed.loaders.augment.published.self_blend import _draw_affine
from facefeed.pipeline.errors import UsageError

SIDE = 96
LANDMARKS = np.float32([(36, 40), (60, 40), (48, 54), (38, 66), (58, 66)])
HULL = np.float32([(26, 16), (70, 16), (76, 50), (48, 82), (20, 50)])
_JAW = [(22 + 3.25 * n, 44 + 34 * np.sin(np.pi * n / 16)) for n in range(17)]
_BROWS = [(28 + 4 * n, 34 - abs(2 - n)) for n in range(5)] + [(52 + 4 * n, 34 - abs(2 - n)) for n in range(5)]
_NOSE = [(48, 40 + 4 * n) for n in range(4)] + [(42 + 3 * n, 57) for n in range(5)]
_EYES = [(x + dx, 40 + dy) for x in (36, 60) for dx, dy in ((-4, 0), (-2, -2), (2, -2), (4, 0), (2, 2), (-2, 2))]
_MOUTH = [(48 + 10 * np.cos(a), 66 + 4 * np.sin(a)) for a in np.linspace(np.pi, 3 * np.pi, 20, endpoint=False)]
POINTS_68 = np.float32([*_JAW, *_BROWS, *_NOSE, *_EYES, *_MOUTH])
REAL, FAKE = 0, 1


def an_image() -> np.ndarray:
    noise = np.random.default_rng(3).integers(60, 200, (SIDE // 4, SIDE // 4, 3), np.uint8)
    return cv2.resize(noise, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)


def a_face(label: int | None = REAL, *, dense: bool = True, **changes: Any) -> dict[str, Any]:
    face = {"image": an_image(), "landmarks": LANDMARKS, "hull": HULL, "regions": {}, "mask": None, "label": label}
    return {**face, **({"landmarks_68": POINTS_68} if dense else {}), **changes}


def blends(count: int, p: float = 1.0, **face: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Results of as many seeds, each with the parameters that were drawn."""
    transform = SelfBlend(p=p)
    compose = FaceCompose([transform])
    results = []
    for seed in range(count):
        compose.set_random_seed(seed)
        results.append((compose(**a_face(**face)), transform.get_applied_params()))
    return results


# ---- label and mask


def test_a_real_face_becomes_a_fake_with_a_blending_mask_and_is_what_the_mask_says() -> None:
    for result, drawn in blends(20):
        mask = result["mask"]
        assert result["label"] == FAKE
        assert mask.dtype == np.float32
        assert mask.shape == (SIDE, SIDE)
        assert 0 <= mask.min() < 0.01
        assert mask.max() <= 1
        expected = mask[..., None] * drawn["source"] + (1 - mask[..., None]) * drawn["target"]
        assert np.abs(result["image"] - expected).max() <= 0.51
        outside = mask == 0
        assert (result["image"][outside] == drawn["target"][outside]).all()


@pytest.mark.parametrize("label", [FAKE, -1, 2])
def test_only_real_faces_are_blended(label: int) -> None:
    mask = np.ones((SIDE, SIDE), np.uint8)
    for result, _ in blends(5, label=label, mask=mask):
        assert result["label"] == label
        assert (result["image"] == an_image()).all()
        assert (result["mask"] == mask).all()


def test_p_is_the_share_of_fakes_and_half_of_the_other_faces_change_their_colours_too() -> None:
    results = blends(300, p=0.4, dense=False)
    stay_real = [result for result, _ in results if result["label"] == REAL]
    assert 1 - len(stay_real) / 300 == pytest.approx(0.4, abs=0.08)
    assert all(result["mask"] is None for result in stay_real)
    changed = [not np.array_equal(result["image"], an_image()) for result in stay_real]
    assert np.mean(changed) == pytest.approx(0.5, abs=0.1)
    assert all((result["image"] == an_image()).all() for result, _ in blends(10, p=0))


def test_the_mask_follows_transforms_after_it() -> None:
    compose = FaceCompose([SelfBlend(p=1), A.HorizontalFlip(p=1)])
    plain = FaceCompose([SelfBlend(p=1)])
    for each in (compose, plain):
        each.set_random_seed(5)
    flipped, result = compose(**a_face()), plain(**a_face())
    assert (flipped["mask"] == result["mask"][:, ::-1]).all()
    assert (flipped["image"] == result["image"][:, ::-1]).all()


def test_a_face_without_area_stays_real() -> None:
    for result, _ in blends(5, dense=False, hull=np.full((4, 2), -50, np.float32)):
        assert result["label"] == REAL
        assert result["mask"] is None


# ---- the published steps


def test_either_source_or_target_changes_its_colours() -> None:
    targets_changed = []
    for _, drawn in blends(200, dense=False):
        original = an_image()
        target_changed = not np.array_equal(drawn["target"], original)
        inner = slice(SIDE // 4, -SIDE // 4)
        source_changed = np.abs(drawn["source"][inner, inner].astype(float).mean((0, 1)) - original.mean((0, 1))).max()
        assert not (target_changed and source_changed > 12)
        targets_changed.append(target_changed)
    assert np.mean(targets_changed) == pytest.approx(0.5, abs=0.1)


def test_colours_change_as_much_as_published_and_the_image_is_sharpened_or_scaled_down_by_two_or_four() -> None:
    transform = SelfBlend(p=1)
    shift, hue, contrast, detail = transform._recolour.transforms
    assert (shift.p, shift.r_shift_limit, shift.g_shift_limit, shift.b_shift_limit) == (0.3, *[(-20, 20)] * 3)
    assert (hue.p, hue.hue_shift_limit, hue.sat_shift_limit, hue.val_shift_limit) == (1, *[(-0.3, 0.3)] * 3)
    assert (contrast.p, contrast.brightness_limit, contrast.contrast_limit) == (1, (-0.1, 0.1), (-0.1, 0.1))
    down, sharpen = detail.transforms
    assert down.p == sharpen.p == detail.p == 1
    assert (sharpen.alpha, sharpen.lightness, sharpen.method) == ((0.2, 0.5), (0.5, 1.0), "kernel")
    for scale, ratio in zip(down.transforms, (2, 4), strict=True):
        size = (SIDE // ratio, SIDE // ratio)
        small = cv2.resize(an_image(), size, interpolation=cv2.INTER_NEAREST)
        expected = cv2.resize(small, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        assert (scale(image=an_image(), force_apply=True)["image"] == expected).all()


def test_the_source_is_resized_by_5_percent_along_each_axis_and_moved_by_3_and_1_5_percent() -> None:
    rng = random.Random(0)
    matrices = np.array([_draw_affine(rng, 200, 100) for _ in range(1500)])
    scale_x, scale_y = matrices[:, 0, 0], matrices[:, 1, 1]
    centre = np.array([99 / 2, 199 / 2, 1])
    shift_x, shift_y = (matrices @ centre - centre[:2]).T
    assert (matrices[:, [0, 1], [1, 0]] == 0).all()
    for values, low, high in (
        (scale_x, 0.95, 1 / 0.95), (scale_y, 0.95, 1 / 0.95), (shift_x, -3, 3), (shift_y, -3, 3)
    ):  # fmt: skip
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high >= values.max() > high - 0.01 * (high - low)
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.03 * (high - low))
    assert abs(np.corrcoef(scale_x, scale_y)[0, 1]) < 0.1


def test_the_mask_is_multiplied_by_a_quarter_a_half_three_quarters_or_half_of_the_time_one() -> None:
    peaks = np.array([result["mask"].max() for result, _ in blends(360, dense=False)])
    shares = {ratio: np.mean(np.abs(peaks - ratio) < 0.03 * ratio) for ratio in (0.25, 0.5, 0.75, 1.0)}
    assert sum(shares.values()) == 1
    assert shares.pop(1.0) == pytest.approx(1 / 2, abs=0.08)
    assert all(share == pytest.approx(1 / 6, abs=0.06) for share in shares.values())


class Fixed(random.Random):
    """Draws what it was given, and remembers from what."""

    def __init__(self, *draws: Any) -> None:
        super().__init__(0)
        self.draws, self.ranges = list(draws), list[Any]()

    def random(self) -> float:
        return float(self.draws.pop(0))

    def choice(self, options: Any) -> Any:
        self.ranges.append(tuple(options))
        return self.draws.pop(0)

    def randint(self, low: int, high: int) -> int:
        self.ranges.append((low, high))
        return int(self.draws.pop(0))


class Still:
    """A generator of noise without noise."""

    def random(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.full(shape, 0.5, dtype)


def test_the_mask_is_blurred_twice_at_a_random_size_and_shrinks_in_between() -> None:
    mask = np.zeros((SIDE, SIDE), np.float32)
    mask[20:70, 30:60] = 1
    for width, height, first, second, sigma in ((192, 256, 5, 25, 5), (230, 201, 25, 5, 45), (256, 192, 13, 15, 20)):
        rng = Fixed(width, height, first, second, sigma)
        soft = draw_blend_mask(Still(), rng, mask)  # type: ignore[arg-type]
        odd = tuple(range(5, 26, 2))
        assert rng.ranges == [(192, 256), (192, 256), odd, odd, (5, 45)]
        blurred = cv2.GaussianBlur(cv2.resize(mask, (width, height)), (first, first), 0)
        blurred /= blurred.max()
        blurred[blurred < 1 - 1e-5] = 0  # of pixels that should be 1, rounding leaves some below
        blurred[blurred > 0] = 1
        expected = cv2.GaussianBlur(blurred, (second, second), sigma)
        np.testing.assert_allclose(soft, cv2.resize(expected / expected.max(), (SIDE, SIDE)), atol=1e-5)


def test_the_mask_is_deformed_by_noise_of_sigma_7_and_alpha_50() -> None:
    generator = np.random.default_rng(0)
    columns = np.arange(250, dtype=np.float32)
    displaced = np.stack([_elastic_map(generator, 250, 250)[0] - columns for _ in range(40)])[:, 30:-30, 30:-30]
    full = [
        cv2.GaussianBlur(generator.random((250, 250), np.float32) * 2 - 1, (0, 0), 7)[30:-30, 30:-30] * 50
        for _ in range(40)
    ]
    reference = np.stack(full)
    assert displaced.std() == pytest.approx(reference.std(), rel=0.05)
    for distance in (3, 8, 14):
        ours, published = (
            (each[:, :, :-distance] * each[:, :, distance:]).mean() / each.var() for each in (displaced, reference)
        )
        assert ours == pytest.approx(published, abs=0.06)


# ---- the shape of the mask


def points_of(**face: Any) -> FacePoints:
    initial = InitialPoints(LANDMARKS, HULL, {}, **face)
    return FacePoints(initial.points, initial)


def shape_of(name: str, draw: float = 0.0) -> np.ndarray:
    rng = Fixed(draw, name)
    mask = draw_face_mask(rng, points_of(landmarks_68=POINTS_68), (SIDE, SIDE))
    assert rng.ranges == [("dfl_full", "extended", "components", "facehull")]
    assert set(np.unique(mask)) == {0, 1}
    return mask > 0


def test_the_four_published_shapes_of_the_68_points_are_drawn() -> None:
    hull, components, extended, full = map(shape_of, ("facehull", "components", "extended", "dfl_full"))
    assert (components & ~hull).sum() + (full & ~hull).sum() < 20  # pixels cut by an edge
    assert components.sum() < extended.sum()
    assert (extended & ~hull)[:32].any()  # above the brows
    assert not np.array_equal(components, full)
    assert all(shape[60, 48] and shape[70, 48] for shape in (hull, components, extended, full))  # nose, mouth


def test_three_of_four_hulls_have_the_forehead() -> None:
    without, with_forehead = shape_of("facehull", 0.24), shape_of("facehull", 0.25)
    assert not without[20, 48]
    assert with_forehead[20, 48]
    assert (without <= with_forehead).all()


def test_without_the_68_points_the_mask_is_the_hull() -> None:
    mask = draw_face_mask(Fixed(), points_of(), (SIDE, SIDE))
    expected = cv2.fillConvexPoly(np.zeros((SIDE, SIDE), np.uint8), np.rint(HULL - 0.5).astype(np.int32), 1)
    assert np.mean(mask != expected) < 0.02


# ---- what cannot be


def test_a_missing_label_and_labels_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="SelfBlend: label is missing"):
        FaceCompose([SelfBlend(p=1)])(**a_face(label=None))
    for arguments in ({"real": -1}, {"fake": 1.5}, {"real": True}, {"real": 1, "fake": 1}):
        with pytest.raises(UsageError, match=r"(real|fake)=.*: must be .*; try"):
            SelfBlend(**arguments)


def test_labels_may_be_numbers_of_numpy() -> None:
    SelfBlend(real=np.int64(1), fake=np.uint8(0)).check_labels(["spoof", "live"])  # type: ignore[arg-type]


def test_a_dataset_whose_labels_are_in_another_order_is_refused_with_the_order() -> None:
    SelfBlend().check_labels(["real", "fake"])
    SelfBlend(real=1, fake=0).check_labels(["fake", "Real"])
    SelfBlend().check_labels(["genuine", "forged"])
    with pytest.raises(UsageError, match="is 'fake' in this dataset, whose labels are 0: fake, 1: real; try real=1"):
        SelfBlend().check_labels(["fake", "real"])
    with pytest.raises(UsageError, match="whose labels are 0: swap, 1: Pristine; try real=1"):
        SelfBlend().check_labels(["swap", "Pristine"])
    SelfBlend(real=1, fake=0).check_labels(["spoof", "live"])
    with pytest.raises(UsageError, match="no label of this dataset is called real, or alike: 0: spoof, 1: live; give"):
        SelfBlend().check_labels(["spoof", "live"])
    with pytest.raises(UsageError, match="has the labels 0: real"):
        SelfBlend().check_labels(["real"])
