"""Crops are not stretched, shifted, enlarged or invented, upright or rotated."""

from __future__ import annotations

import tracemalloc

import cv2
import numpy as np
import pytest
from assets_random import examples
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.geometry.crop import CropSquare
from hypothesis import example, given
from hypothesis import strategies as st


def test_the_square_is_as_the_schema_says() -> None:
    square = CropSquare.around((100.0, 50.0, 180.0, 150.0), margin=0.3)
    assert square.side == 160  # (1 + 2 * 0.3) * 100
    assert (square.x0 + square.side / 2, square.y0 + square.side / 2) == (140, 100)
    assert square.xyxy.tolist() == [60, 20, 220, 180]
    assert square.degrees == 0


@given(st.floats(-500, 2000), st.floats(-500, 2000), st.floats(0, 900), st.floats(0, 900), st.floats(0, 2))
def test_the_square_is_centred_on_the_box_to_half_a_pixel(
    left: float, top: float, width: float, height: float, margin: float
) -> None:
    square = CropSquare.around((left, top, left + width, top + height), margin)
    assert abs(square.side - max(1, (1 + 2 * margin) * max(width, height))) <= 0.5 + 1e-6
    assert abs(square.x0 + square.side / 2 - left - width / 2) <= 0.5 + 1e-6
    assert abs(square.y0 + square.side / 2 - top - height / 2) <= 0.5 + 1e-6


@pytest.mark.parametrize("margin", [-0.1, float("nan")])
def test_a_negative_margin_is_refused(margin: float) -> None:
    with pytest.raises(UsageError, match="margin"):
        CropSquare.around((0, 0, 1, 1), margin)


def test_a_small_square_is_the_frames_own_pixels() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    crop, scale = CropSquare(10, 20, 50).crop(rgb, size=224)
    assert scale == 1.0  # never enlarged
    np.testing.assert_array_equal(crop, rgb[20:70, 10:60])
    crop[:] = 0
    assert rgb[20:70, 10:60].any()  # a copy: the frame's buffer is used again


@pytest.mark.parametrize(("x0", "y0"), [(-20, -30), (80, 60), (-300, 10), (10, 500)])
def test_beyond_the_border_lie_zeros(x0: int, y0: int) -> None:
    rgb = np.full((100, 120, 3), 200, np.uint8)
    crop, _ = CropSquare(x0, y0, 64).crop(rgb, size=64)
    y, x = np.mgrid[y0 : y0 + 64, x0 : x0 + 64]
    inside = (x >= 0) & (x < 120) & (y >= 0) & (y < 100)
    assert (crop[inside] == 200).all()
    assert (crop[~inside] == 0).all()


@examples(100)
@given(
    st.integers(-60, 200), st.integers(-60, 120), st.integers(40, 700), st.integers(16, 256), st.integers(0, 9),
    st.sampled_from([0.0, 8.0, -31.0, 90.0, 177.0]),
)  # fmt: skip
@example(0, 0, 654, 31, 0, 0.0)  # of more than twice the frame: cut another way
def test_a_dot_lies_where_its_landmark_is_mapped(
    x0: int, y0: int, side: int, size: int, seed: int, degrees: float
) -> None:
    rng = np.random.default_rng(seed)
    px, py = int(rng.integers(0, 300)), int(rng.integers(0, 200))
    rgb = np.zeros((200, 300, 3), np.uint8)
    radius = max(1, round(side / size))
    rgb[max(0, py - radius) : py + radius + 1, max(0, px - radius) : px + radius + 1] = 255
    square = CropSquare(x0, y0, side, degrees)
    crop, scale = square.crop(rgb, size)
    cx, cy = square.to_crop([px + 0.5, py + 0.5], scale)  # the middle of the dot
    edge = 3 + 3 * radius * scale
    if not (edge <= cx < crop.shape[1] - edge and edge <= cy < crop.shape[0] - edge):
        return
    if not (radius <= px < 300 - radius and radius <= py < 200 - radius):
        return
    weight = crop[..., 0].astype(float)
    ys, xs = np.mgrid[: crop.shape[0], : crop.shape[1]]
    assert abs((xs * weight).sum() / weight.sum() + 0.5 - cx) <= 0.2
    assert abs((ys * weight).sum() / weight.sum() + 0.5 - cy) <= 0.2


@pytest.mark.parametrize("degrees", [0.0, 40.0])
def test_a_circle_stays_round(degrees: float) -> None:
    y, x = np.mgrid[:600, :800]
    rgb = np.repeat((np.hypot(x - 400, y - 300) < 150)[..., None], 3, axis=2).astype(np.uint8) * 255
    crop, scale = CropSquare(100, 50, 600, degrees).crop(rgb, size=200)
    assert crop.shape == (200, 200, 3)
    assert scale == pytest.approx(1 / 3)
    lit = crop[..., 0] > 127
    assert abs(int(lit.any(0).sum()) - 100) <= 1
    assert abs(int(lit.any(1).sum()) - 100) <= 1


@pytest.mark.parametrize("degrees", [0.0, 40.0])
@pytest.mark.parametrize("side", [5_000, 100_000, 10**9])
def test_a_huge_box_needs_no_huge_memory(side: int, degrees: float) -> None:
    rgb = np.full((720, 1280, 3), 255, np.uint8)
    tracemalloc.start()
    crop, scale = CropSquare(640 - side // 2, 360 - side // 2, side, degrees).crop(rgb, size=256)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 * rgb.nbytes
    assert crop.shape == (256, 256, 3)
    assert scale == 256 / side
    if degrees:
        return
    light = crop[..., 0] / 255.0  # as much as the frame covers, and where it lies
    assert light.sum() == pytest.approx(1280 * 720 * scale**2, rel=0.05, abs=1e-3)
    if not light.any():
        assert 1280 * scale < 1  # a frame smaller than a pixel of the crop is nothing to see
        return
    ys, xs = np.mgrid[:256, :256] + 0.5
    assert (light * xs).sum() / light.sum() == pytest.approx(128, abs=0.5)
    assert (light * ys).sum() / light.sum() == pytest.approx(128, abs=0.5)


@pytest.mark.parametrize("size", [29, 224])
def test_a_square_of_just_more_than_twice_the_frame_shows_what_one_of_twice_the_frame_does(size: int) -> None:
    rgb = load_portrait("astronaut").image[..., ::-1].copy()
    longer = max(rgb.shape[:2])
    twice, more = (CropSquare(-100, -80, 2 * longer + extra).crop(rgb, size)[0].astype(int) for extra in (0, 1))
    moved = np.roll(twice, 1, axis=1)
    assert np.abs(twice - more).mean() < np.abs(twice - moved).mean() / 6


def test_nothing_to_cut_is_refused() -> None:
    with pytest.raises(UsageError, match="side=0"):
        CropSquare(0, 0, 0)
    with pytest.raises(UsageError, match="size=0"):
        CropSquare(0, 0, 4).crop(np.zeros((4, 4, 3), np.uint8), 0)
    with pytest.raises(UsageError, match="degrees=nan"):
        CropSquare(0, 0, 4, float("nan"))


def test_points_of_any_shape_are_mapped() -> None:
    landmarks = np.full((3, 5, 2), 110.0, np.float32)
    mapped = CropSquare(10, 60, 256).to_crop(landmarks, scale=0.5)
    assert mapped.dtype == np.float32
    assert mapped.shape == (3, 5, 2)
    assert mapped[0, 0].tolist() == [50, 25]
    turned = CropSquare(10, 60, 256, 90).to_crop([[[138.0, 188.0], [138.0, 60.0]]], scale=0.5)
    np.testing.assert_allclose(turned, [[[64, 64], [0, 64]]], atol=1e-4)  # what lay at the top lies at the left


@pytest.mark.parametrize(("degrees", "quarters"), [(90, 1), (180, 2), (-90, 3)])
@pytest.mark.parametrize("x0", [-17, 30])
def test_turned_clockwise_by_right_angles_it_shows_the_same_pixels_turned_back(
    degrees: float, quarters: int, x0: int
) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    upright, _ = CropSquare(x0, 12, 61).crop(rgb, size=224)
    turned, scale = CropSquare(x0, 12, 61, degrees).crop(rgb, size=224)
    assert scale == 1.0
    np.testing.assert_array_equal(turned, np.rot90(upright, quarters))


@pytest.mark.parametrize("degrees", [-50.0, -7.0, 20.0, 165.0])
@pytest.mark.parametrize("size", [90, 400])
def test_turned_as_the_picture_is_it_shows_the_picture_upright(degrees: float, size: int) -> None:
    rgb = load_portrait("astronaut").image[..., ::-1].copy()
    upright, _ = CropSquare(115, 20, 200).crop(rgb, size)
    # OpenCV turns counter-clockwise, about the middle of a pixel.
    matrix = cv2.getRotationMatrix2D((215 - 0.5, 120 - 0.5), -degrees, 1.0)
    tilted = np.asarray(cv2.warpAffine(rgb, matrix, rgb.shape[1::-1], flags=cv2.INTER_LANCZOS4), np.uint8)
    turned, _ = CropSquare(115, 20, 200, degrees).crop(tilted, size)
    middle = slice(len(turned) // 5, -(len(turned) // 5))  # what was turned out of the picture is lost
    apart = np.abs(turned.astype(int) - upright)[middle, middle]
    assert apart.mean() < 3
    moved = np.abs(np.roll(turned, 2, axis=1).astype(int) - upright)[middle, middle]
    assert moved.mean() > 2 * apart.mean()  # so that the first comparison says something


@pytest.mark.parametrize("degrees", [0.0, 30.0])
@pytest.mark.parametrize("size", [60, 256])
def test_fine_stripes_become_an_even_grey_when_they_are_shrunk(degrees: float, size: int) -> None:
    rgb = np.zeros((1600, 1600, 3), np.uint8)
    rgb[:, ::2] = 255
    crop, _ = CropSquare(300, 300, 1000, degrees).crop(rgb, size)
    assert abs(crop.mean() - 127.5) < 2
    assert crop.std() < 12


@pytest.mark.parametrize("size", [48, 224])
def test_beyond_the_border_a_rotated_square_is_black_too(size: int) -> None:
    rgb = np.full((100, 120, 3), 200, np.uint8)
    square = CropSquare(60, 30, 96, 25.0)
    crop, scale = square.crop(rgb, size)
    border = square.to_crop([[0, 0], [120, 0], [120, 100], [0, 100]], scale)
    ys, xs = np.mgrid[: len(crop), : len(crop)] + 0.5
    contour = border[:, None].astype(np.float32)
    inside = np.array(
        [cv2.pointPolygonTest(contour, (x, y), True) for x, y in zip(xs.flat, ys.flat, strict=True)]
    ).reshape(xs.shape)
    assert (np.abs(crop[inside > 3].astype(int) - 200) <= 1).all()
    assert (crop[inside < -3] == 0).all()
    assert (inside > 3).any()
    assert (inside < -3).any()


def test_what_lies_wholly_beyond_the_border_is_black() -> None:
    rgb = np.full((100, 120, 3), 200, np.uint8)
    assert not CropSquare(300, 300, 64, 25.0).crop(rgb, 64)[0].any()


def test_what_was_cut_can_be_cut_again_from_what_a_row_holds() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
    square = CropSquare.around((91.3, 40.2, 150.1, 120.9), 0.3, 11.987654321)
    left, top, right, _ = (int(edge) for edge in square.xyxy)
    rebuilt = CropSquare(left, top, right - left, float(np.float32(square.degrees)))
    assert rebuilt == square
    np.testing.assert_array_equal(rebuilt.crop(rgb, 100)[0], square.crop(rgb, 100)[0])
