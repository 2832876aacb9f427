"""What a user notices of a crop: nothing is stretched, moved, enlarged or made up."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.crop import crop_square, cut, to_crop
from hypothesis import given, settings
from hypothesis import strategies as st


def test_the_square_is_as_the_schema_says() -> None:
    x0, y0, side = crop_square((100.0, 50.0, 180.0, 150.0), margin=0.3)
    assert side == 160  # (1 + 2 * 0.3) * 100
    assert (x0 + side / 2, y0 + side / 2) == (140, 100)


@given(st.floats(-500, 2000), st.floats(-500, 2000), st.floats(0, 900), st.floats(0, 900), st.floats(0, 2))
def test_the_square_is_centred_on_the_box_to_half_a_pixel(
    left: float, top: float, width: float, height: float, margin: float
) -> None:
    x0, y0, side = crop_square((left, top, left + width, top + height), margin)
    assert abs(side - max(1, (1 + 2 * margin) * max(width, height))) <= 0.5 + 1e-6
    assert abs(x0 + side / 2 - left - width / 2) <= 0.5 + 1e-6
    assert abs(y0 + side / 2 - top - height / 2) <= 0.5 + 1e-6


@pytest.mark.parametrize("margin", [-0.1, float("nan")])
def test_a_negative_margin_is_refused(margin: float) -> None:
    with pytest.raises(UsageError, match="margin"):
        crop_square((0, 0, 1, 1), margin)


def test_a_small_square_is_the_frames_own_pixels() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (90, 120, 3), np.uint8)
    crop, scale = cut(rgb, 10, 20, 50, size=224)
    assert scale == 1.0  # never enlarged
    np.testing.assert_array_equal(crop, rgb[20:70, 10:60])
    crop[:] = 0
    assert rgb[20:70, 10:60].any()  # a copy: the frame's buffer is used again


@pytest.mark.parametrize(("x0", "y0"), [(-20, -30), (80, 60), (-300, 10), (10, 500)])
def test_beyond_the_border_lie_zeros(x0: int, y0: int) -> None:
    rgb = np.full((100, 120, 3), 200, np.uint8)
    crop, _ = cut(rgb, x0, y0, 64, size=64)
    y, x = np.mgrid[y0 : y0 + 64, x0 : x0 + 64]
    inside = (x >= 0) & (x < 120) & (y >= 0) & (y < 100)
    assert (crop[inside] == 200).all()
    assert (crop[~inside] == 0).all()


@settings(max_examples=60)
@given(st.integers(-60, 200), st.integers(-60, 120), st.integers(40, 700), st.integers(16, 256), st.integers(0, 9))
def test_a_dot_lies_where_its_landmark_is_mapped(x0: int, y0: int, side: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    px, py = int(rng.integers(0, 300)), int(rng.integers(0, 200))
    rgb = np.zeros((200, 300, 3), np.uint8)
    radius = max(1, round(side / size))
    rgb[max(0, py - radius) : py + radius + 1, max(0, px - radius) : px + radius + 1] = 255
    crop, scale = cut(rgb, x0, y0, side, size)
    cx, cy = to_crop([px, py], x0, y0, scale)
    edge = 2 + 2 * radius * scale
    if not (edge <= cx < crop.shape[1] - edge and edge <= cy < crop.shape[0] - edge):
        return
    if not (radius <= px < 300 - radius and radius <= py < 200 - radius):
        return
    weight = crop[..., 0].astype(float)
    ys, xs = np.mgrid[: crop.shape[0], : crop.shape[1]]
    assert abs((xs * weight).sum() / weight.sum() - cx) <= 1
    assert abs((ys * weight).sum() / weight.sum() - cy) <= 1


def test_a_circle_stays_round() -> None:
    y, x = np.mgrid[:600, :800]
    rgb = np.repeat((np.hypot(x - 400, y - 300) < 150)[..., None], 3, axis=2).astype(np.uint8) * 255
    crop, scale = cut(rgb, 100, 50, 600, size=200)
    assert crop.shape == (200, 200, 3)
    assert scale == pytest.approx(1 / 3)
    lit = crop[..., 0] > 127
    assert abs(int(lit.any(0).sum()) - 100) <= 1
    assert abs(int(lit.any(1).sum()) - 100) <= 1


@pytest.mark.parametrize("side", [5_000, 100_000, 10**9])
def test_a_huge_box_needs_no_huge_memory(side: int) -> None:
    rgb = np.full((720, 1280, 3), 255, np.uint8)
    tracemalloc.start()
    crop, scale = cut(rgb, 640 - side // 2, 360 - side // 2, side, size=256)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 * rgb.nbytes
    assert crop.shape == (256, 256, 3)
    assert scale == 256 / side
    ys, xs = np.nonzero(crop[..., 0])
    assert abs((xs.min() + xs.max() + 1) / 2 - 128) <= 1
    assert abs((xs.max() + 1 - xs.min()) - max(1, 1280 * scale)) <= 1
    assert abs((ys.max() + 1 - ys.min()) - max(1, 720 * scale)) <= 1


def test_nothing_to_cut_is_refused() -> None:
    with pytest.raises(UsageError, match="side=0"):
        cut(np.zeros((4, 4, 3), np.uint8), 0, 0, 0, 8)


def test_points_of_any_shape_are_mapped() -> None:
    landmarks = np.full((3, 5, 2), 110.0, np.float32)
    mapped = to_crop(landmarks, x0=10, y0=60, scale=0.5)
    assert mapped.dtype == np.float32
    assert mapped.shape == (3, 5, 2)
    assert mapped[0, 0].tolist() == [50, 25]
