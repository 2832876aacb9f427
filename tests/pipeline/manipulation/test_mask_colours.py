"""What a user notices where all of a fake has other colours than its original: by another YUV matrix, or a grade."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import cv2
import numpy as np
import pytest
from facefeed.pipeline.dataset.image_codec import ImageEncoder, decode_rgb_strictly
from facefeed.pipeline.faces.geometry.crop import CropSquare
from facefeed.pipeline.manipulation.colour_map import fit_colour_map
from facefeed.pipeline.manipulation.mask import FrameComparison, ManipulationMask
from numpy.typing import NDArray

UNCHANGED = 0.01
FACE = np.float32([[90, 80, 166, 176]])
Rgb = NDArray[np.uint8]


def footage() -> Rgb:
    """256 x 256 px with edges and areas, without black or white."""
    coarse = np.random.default_rng(0).integers(40, 216, (16, 16, 3), np.uint8)
    return cv2.resize(coarse, (256, 256), interpolation=cv2.INTER_LINEAR).astype(np.uint8)


def painted(rgb: Rgb, center: tuple[int, int] = (128, 128)) -> tuple[Rgb, NDArray[np.bool_]]:
    """The face with other colours in its middle, and where."""
    truth = np.zeros(rgb.shape[:2], np.uint8)
    cv2.ellipse(truth, center, (23, 29), 0, 0, 360, 1, -1)
    return np.where(truth[..., None] > 0, rgb + np.array([35, -25, 30]), rgb).clip(0, 255).astype(np.uint8), truth > 0


def compressed(rgb: Rgb, quality: int) -> Rgb:
    return decode_rgb_strictly(ImageEncoder(quality=quality)(rgb))


def to_yuv(red: float, blue: float) -> NDArray[np.float64]:
    weights = np.array([red, 1 - red - blue, blue])
    return np.vstack([weights, (np.array([0, 0, 1]) - weights) / (2 - 2 * blue),
                      (np.array([1, 0, 0]) - weights) / (2 - 2 * red)])  # fmt: skip


BT601, BT709 = to_yuv(0.299, 0.114), to_yuv(0.2126, 0.0722)


def linear(matrix: NDArray[np.float64], offset: float = 0.0) -> Callable[[Rgb], Rgb]:
    return lambda rgb: np.rint(rgb @ matrix.T + offset).clip(0, 255).astype(np.uint8)


def gamma(exponent: float) -> Callable[[Rgb], Rgb]:
    return lambda rgb: np.rint(255 * (rgb / 255) ** exponent).astype(np.uint8)


SHIFTS: Final = {
    "encoded by BT.601, decoded by BT.709": linear(np.linalg.inv(BT709) @ BT601),
    "encoded by BT.709, decoded by BT.601": linear(np.linalg.inv(BT601) @ BT709),
    "brighter": linear(np.eye(3), 20),
    "less contrast": linear(np.eye(3) * 0.8, 25),
    "warmer": linear(np.diag([1.1, 1.0, 0.9])),
    "gamma": gamma(1.25),
}


def compared(fake: Rgb, source: Rgb, box: NDArray[np.float32] = FACE) -> ManipulationMask | None:
    square = CropSquare.around(box[0], 0.3)
    return FrameComparison(fake, source, box).mask(square, box_xyxy=box[0], size_px=256)


@pytest.mark.parametrize("qualities", [(95, 95), (60, 90)], ids=str)
@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_a_changed_face_is_found_where_it_is_though_all_colours_differ(
    shift: Callable[[Rgb], Rgb], qualities: tuple[int, int]
) -> None:
    source = footage()
    fake, truth = painted(source)
    result = compared(compressed(shift(fake), qualities[0]), compressed(source, qualities[1]))
    assert result is not None
    square = CropSquare.around(FACE[0], 0.3)
    there = square.crop(np.dstack([truth.astype(np.uint8)] * 3), 256)[0][..., 0] > 0
    assert (result.mask & there).sum() / (result.mask | there).sum() > 0.6


@pytest.mark.parametrize("qualities", [(95, 95), (60, 90)], ids=str)
@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_an_unchanged_face_counts_as_unchanged_though_all_colours_differ(
    shift: Callable[[Rgb], Rgb], qualities: tuple[int, int]
) -> None:
    source = footage()
    result = compared(compressed(shift(source), qualities[0]), compressed(source, qualities[1]))
    assert result is not None
    assert result.changed_fraction < UNCHANGED


@pytest.mark.parametrize("degrees", [0.0, 20.0])
@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_the_border_of_the_frame_does_not_count_as_changed_where_colours_differ(
    shift: Callable[[Rgb], Rgb], degrees: float
) -> None:
    source, box = footage(), np.float32([[-20, 5, 56, 101]])
    square = CropSquare.around(box[0], 0.3, degrees)
    result = FrameComparison(shift(source), source, box).mask(square, box_xyxy=box[0], size_px=256)
    assert result is not None
    assert result.changed_fraction < UNCHANGED


@pytest.mark.parametrize("quality", [90, 60, 40])
def test_colours_that_only_compression_moved_stay_as_they_are(quality: int) -> None:
    source = footage()
    assert fit_colour_map(compressed(source, 90), compressed(source, quality), FACE) is None


@pytest.mark.parametrize("around", ["dark", "grey"])
def test_a_grade_that_the_surroundings_do_not_show_makes_no_face_manipulated(around: str) -> None:
    source = footage()
    grey = np.repeat(cv2.cvtColor(source, cv2.COLOR_RGB2GRAY)[..., None], 3, axis=2)
    surroundings = grey if around == "grey" else (source * 0.1).astype(np.uint8)
    surroundings[80:176, 90:166] = source[80:176, 90:166]
    for shift in (SHIFTS["gamma"], SHIFTS["less contrast"]):
        result = compared(compressed(shift(surroundings), 60), compressed(surroundings, 90))
        assert result is None or result.changed_fraction < UNCHANGED


@pytest.mark.parametrize("level", [0, 9, 128, 255])
def test_frames_of_one_colour_do_no_harm(level: int) -> None:
    source = np.full((256, 256, 3), level, np.uint8)
    fake, _ = painted(source)
    assert fit_colour_map(source, fake, FACE) is None
    result = compared(fake, source)
    assert result is not None
    assert result.changed_fraction > UNCHANGED


def test_frames_that_faces_fill_and_tiny_frames_have_no_map() -> None:
    for side in (1, 5, 256):
        frame = footage()[:side, :side]
        assert fit_colour_map(frame, SHIFTS["brighter"](frame), np.float32([[-3, -3, side, side]])) is None
    assert fit_colour_map(footage()[:5, :5], footage()[5:10, :5], np.zeros((0, 4), np.float32)) is None
