"""What a user notices of points and masks: they go where the pixels go, and none is ever lost."""

from __future__ import annotations

from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
from facefeed.loaders.augment import (
    BlockMask,
    FaceCompose,
    FaceCutout,
    HullHalfBlackout,
    LandmarkBlackout,
    RegionCrop,
    RegionDropout,
)
from facefeed.loaders.augment.sampling_map import invert_map
from facefeed.loaders.face import Face

HEIGHT, WIDTH = 160, 200
LANDMARKS = np.array([(70, 60), (130, 64), (100, 90), (80, 115), (121, 113)], np.float32)
HULL = np.array([(60, 40), (140, 42), (150, 90), (125, 130), (75, 130), (52, 88)], np.float32)
REGIONS = {
    "left_eye": np.array([55, 50, 85, 70], np.float32),
    "right_eye": np.array([115, 52, 146, 75], np.float32),
    "face": np.array([52, 40, 150, 130], np.float32),
}
REFLECT = cv2.BORDER_REFLECT_101


def a_face(image: np.ndarray | None = None, mask: np.ndarray | None = None) -> dict[str, Any]:
    if image is None:
        image = np.random.default_rng(1).integers(1, 256, (HEIGHT, WIDTH, 3), np.uint8)
    face = {"image": image, "landmarks": LANDMARKS.copy(), "hull": HULL.copy(), "regions": dict(REGIONS)}
    return {**face, "mask": mask, "partner": None}


MOVING = [
    A.Affine(scale=(0.7, 1.4), rotate=(-40, 40), shear=(-15, 15), translate_percent=(-0.2, 0.2), p=1),
    A.Affine(scale=(0.5, 0.9), rotate=(-40, 40), border_mode=REFLECT, p=1),
    A.Rotate((-60, 60), border_mode=REFLECT, p=1),
    A.Rotate((-30, 30), crop_border=True, p=1),
    A.SafeRotate(p=1),
    A.Perspective(scale=(0.05, 0.15), p=1),
    A.RandomCrop(100, 120, p=1),
    A.RandomCrop(200, 240, pad_if_needed=True, border_mode=REFLECT, p=1),
    A.RandomResizedCrop((128, 128), p=1),
    A.CropAndPad(percent=(-0.1, 0.2), p=1),
    A.PadIfNeeded(300, 320, border_mode=REFLECT, p=1),
    A.Resize(320, 300, p=1),
    A.RandomRotate90(p=1),
    A.ElasticTransform(alpha=120, sigma=12, p=1),
    A.GridDistortion(p=1),
    A.OpticalDistortion(distort_limit=0.3, p=1),
    RegionCrop({"face": 1}, p=1),
]


@pytest.mark.parametrize("transform", MOVING, ids=lambda transform: type(transform).__name__)
def test_every_landmark_stays_on_its_pixels(transform: Any) -> None:
    compose, num_checked = FaceCompose([transform]), 0
    for seed in range(6):
        for number, (x, y) in enumerate(LANDMARKS.astype(int).tolist()):
            image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
            cv2.circle(image, (x, y), 4, (255, 255, 255), -1)
            mask = (image[..., 0] > 0).astype(np.uint8)
            compose.set_random_seed(seed)
            result = compose(**{**a_face(image, mask), "landmarks": LANDMARKS + np.float32(0.5)})  # the dots' centres
            point = result["landmarks"][number] - 0.5
            dots = whole_dots(result["image"][..., 0] > 100)
            if dots:  # a reflecting border shows several
                assert min(np.hypot(*(dot - point)) for dot in dots) < 1.2
                num_checked += 1
            mask_dots = whole_dots(result["mask"] > 0)
            if dots and mask_dots:
                assert min(np.hypot(*(dot - point)) for dot in mask_dots) < 1.5
            assert result["mask"].shape == result["image"].shape[:2]
    assert num_checked > 3


EXACT = [
    A.HorizontalFlip(p=1),
    A.VerticalFlip(p=1),
    A.Transpose(p=1),
    A.RandomRotate90(p=1),
    A.Affine(rotate=(33, 33), p=1),
    A.Affine(scale=(1.4, 1.4), p=1),
    A.Affine(scale=(0.8, 0.8), border_mode=REFLECT, p=1),
    A.Rotate((-60, 60), p=1),
    A.Perspective(scale=(0.05, 0.05), p=1),
    A.Crop(20, 10, 190, 150, p=1),
    A.PadIfNeeded(300, 320, p=1),
    A.Resize(320, 500, p=1),
    A.Resize(120, 100, p=1),
    A.LongestMaxSize(330, p=1),
    A.RandomScale((-0.293, -0.293), p=1),
    A.RandomScale((0.317, 0.317), p=1),
    A.RandomResizedCrop((200, 240), scale=(0.7, 0.9), p=1),
    A.CropAndPad(px=10, p=1),
    RegionCrop({"face": 1}, p=1),
]


def blob(x: float, y: float, *, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """A round spot whose centre of mass is at a point, counted from the first pixel's corner."""
    columns, rows = np.arange(width) + 0.5, np.arange(height)[:, None] + 0.5
    spot = 250 * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * 3.0**2))
    return np.dstack([np.rint(spot).astype(np.uint8)] * 3)


def centre_of(image: np.ndarray) -> tuple[float, float]:
    light = image[..., 0].astype(np.float64)
    height, width = light.shape
    total = light.sum()
    return float((light.sum(axis=0) @ (np.arange(width) + 0.5)) / total), float(
        (light.sum(axis=1) @ (np.arange(height) + 0.5)) / total
    )


@pytest.mark.parametrize("transform", EXACT, ids=lambda transform: type(transform).__name__)
def test_a_point_stays_on_its_pixels_to_a_tenth_of_one(transform: Any) -> None:
    compose = FaceCompose([transform])
    for number in (0, 2, 4):
        compose.set_random_seed(3)
        result = compose(**a_face(blob(*LANDMARKS[number])))
        points = {tuple(point) for point in result["landmarks"].round(2).tolist()}
        x, y = centre_of(result["image"])
        assert min(np.hypot(x - a, y - b) for a, b in points) < 0.12


@pytest.mark.parametrize("size", [(101, 200), (200, 101), (130, 171), (171, 130), (149, 150)], ids=str)
@pytest.mark.parametrize(
    "transform",
    [
        A.LongestMaxSize(60, p=1), A.LongestMaxSize(333, p=1), A.LongestMaxSize(max_size_hw=(61, 97), p=1),
        A.SmallestMaxSize(60, p=1), A.SmallestMaxSize(333, p=1), A.SmallestMaxSize(max_size_hw=(None, 67), p=1),
    ],
)  # fmt: skip
def test_a_point_stays_on_its_pixels_where_a_side_of_a_scaled_image_is_rounded(
    transform: Any, size: tuple[int, int]
) -> None:
    height, width = size
    far = np.float32([(12.3, 14.1), (width - 13.4, 13.2), (50, 40), (14, height - 12.6), (width - 12, height - 14.5)])
    for number, (x, y) in enumerate(far.tolist()):
        image = blob(x, y, height=height, width=width)
        result = FaceCompose([transform])(**{**a_face(image), "landmarks": far})
        assert result["landmarks"][number].tolist() == pytest.approx(centre_of(result["image"]), abs=0.1)


def test_points_beside_a_fold_of_a_warp_lie_where_the_image_shows_them() -> None:
    """As `ThinPlateSpline` folds an image where its splines are strong."""
    ys, xs = np.mgrid[:160, :160].astype(np.float32)
    map_x, map_y = xs + 20 * np.sin(xs / 12) * np.cos(ys / 12), ys + 20 * np.sin(ys / 12 + 1)
    rows, columns = np.random.default_rng(0).integers(10, 150, (2, 200))
    shown = np.column_stack([map_x[rows, columns], map_y[rows, columns]])
    columns, rows = np.rint(invert_map(shown, map_x, map_y)).astype(int).clip(0, 159).T
    seen_there = np.column_stack([map_x[rows, columns], map_y[rows, columns]])
    assert np.hypot(*(seen_there - shown).T).max() < 2  # a pixel of the warp is 2.7 px of the image at most


def test_a_crop_that_is_brought_to_another_size_keeps_its_points_on_their_pixels() -> None:
    for side_px in (67, 90, 320):
        for number in (0, 2, 4):
            face = Face(
                image=blob(*LANDMARKS[number])[:, 20:180], landmarks=LANDMARKS - (20, 0), hull=HULL, regions={}
            ).resized(side_px)
            assert centre_of(face.image) == pytest.approx(face.landmarks[number].tolist(), abs=0.12)


def whole_dots(pixels: np.ndarray) -> list[np.ndarray]:
    """Centres (x, y) of the spots that do not touch the border."""
    count, _, stats, centres = cv2.connectedComponentsWithStats(pixels.astype(np.uint8))
    height, width = pixels.shape
    return [
        centres[number]
        for number in range(1, count)
        if stats[number][0] > 0
        and stats[number][1] > 0
        and stats[number][0] + stats[number][2] < width
        and stats[number][1] + stats[number][3] < height
    ]


@pytest.mark.parametrize("transform", MOVING, ids=lambda transform: type(transform).__name__)
def test_no_point_is_ever_lost_even_far_out_of_the_frame(transform: Any) -> None:
    face = a_face()
    face["hull"] = HULL + np.float32(400)
    compose = FaceCompose([A.Crop(60, 50, 140, 130, p=1), A.PadIfNeeded(HEIGHT, WIDTH, p=1), transform])
    for seed in range(4):
        compose.set_random_seed(seed)
        result = compose(**face)
        assert (result["landmarks"].shape, result["hull"].shape) == ((5, 2), HULL.shape)
        assert {array.dtype for array in (result["landmarks"], result["hull"], *result["regions"].values())} == {
            np.dtype("f4")
        }
        assert np.isfinite(result["hull"]).all()


def test_a_crop_leaves_points_outside_where_they_are() -> None:
    result = FaceCompose([A.Crop(90, 80, 190, 150, p=1)])(**a_face())
    assert result["landmarks"].tolist() == (LANDMARKS - (90, 80)).tolist()
    assert result["regions"]["left_eye"].tolist() == [-35, -30, -5, -10]


@pytest.mark.parametrize(
    "transform",
    [
        A.CoarseDropout(num_holes_range=(8, 8), hole_height_range=(0.3, 0.3), hole_width_range=(0.3, 0.3), p=1),
        A.GridDropout(p=1),
        A.PixelDropout(p=1),
        A.Morphological(p=1),
        LandmarkBlackout({"eyes": 1}, p=1),
        HullHalfBlackout(p=1),
        BlockMask(p=1),
        FaceCutout(landmark=1),
        RegionDropout(p=1),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_what_hides_pixels_moves_no_point(transform: Any) -> None:
    own_params = {"keypoint_params": A.KeypointParams("xy", remove_invisible=True)}
    result = FaceCompose([transform], seed=1, **own_params)(**a_face(), keypoints=LANDMARKS.copy())
    assert not np.array_equal(result["image"], a_face()["image"])
    assert result["landmarks"].tolist() == LANDMARKS.tolist()
    assert result["hull"].tolist() == HULL.tolist()
    assert {name: box.tolist() for name, box in result["regions"].items()} == {
        k: v.tolist() for k, v in REGIONS.items()
    }


def test_shuffled_tiles_take_the_points_inside_and_do_not_warn_of_those_outside() -> None:
    face = a_face()
    face["hull"] = HULL + np.float32(400)
    result = FaceCompose([A.RandomGridShuffle((2, 2), p=1)], seed=0)(**face)
    assert sorted(result["hull"].tolist()) == sorted(face["hull"].tolist())


def test_a_users_own_points_and_boxes_are_transformed_as_well() -> None:
    compose = FaceCompose(
        [A.HorizontalFlip(p=1)],
        keypoint_params=A.KeypointParams("xy"),
        bbox_params=A.BboxParams("pascal_voc", label_fields=["names"]),
    )
    result = compose(**a_face(), keypoints=[(10.0, 20.0)], bboxes=[(0, 0, 50, 40)], names=["box"])
    assert np.asarray(result["keypoints"]).tolist() == [[WIDTH - 11, 20]]
    assert np.asarray(result["bboxes"]).tolist() == [[150, 0, 200, 40]]
    assert result["landmarks"].tolist()[0] == [70, 64]  # a face's points count from the first pixel's corner
