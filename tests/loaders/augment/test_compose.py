"""What a user notices of `FaceCompose`: the face goes where its pixels go, left stays left, and a seed repeats it."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
from facefeed.loaders.augment import (
    AlignedMixup,
    BackgroundRemoval,
    BlockMask,
    FaceCompose,
    FaceCutout,
    FaceXRay,
    HullHalfBlackout,
    LandmarkBlackout,
    LandmarkJitter,
    MouthCrop,
    RegionCrop,
    RegionDropout,
    SelfBlend,
)
from facefeed.loaders.augment.points import InitialPoints
from facefeed.pipeline.errors import UsageError

HEIGHT, WIDTH = 160, 200
LANDMARKS = np.array([(70, 60), (130, 64), (100, 90), (80, 115), (121, 113)], np.float32)
HULL = np.array([(60, 40), (140, 42), (150, 90), (125, 130), (75, 130), (52, 88)], np.float32)
REGIONS = {
    "left_eye": np.array([55, 50, 85, 70], np.float32),
    "right_eye": np.array([115, 52, 146, 75], np.float32),
    "nose": np.array([88, 70, 112, 100], np.float32),
    "mouth": np.array([75, 105, 126, 125], np.float32),
    "face": np.array([52, 40, 150, 130], np.float32),
}


def a_face(image: np.ndarray | None = None, mask: np.ndarray | None = None) -> dict[str, Any]:
    if image is None:
        image = np.random.default_rng(1).integers(1, 256, (HEIGHT, WIDTH, 3), np.uint8)
    return {
        "image": image,
        "landmarks": LANDMARKS.copy(),
        "hull": HULL.copy(),
        "regions": {name: box.copy() for name, box in REGIONS.items()},
        "mask": mask,
        "partner": None,
        "label": 0,
    }


def same_face(face: dict[str, Any], other_face: dict[str, Any]) -> bool:
    arrays = all(np.array_equal(face[key], other_face[key]) for key in ("image", "landmarks", "hull", "mask", "label"))
    return arrays and all(
        np.array_equal(face["regions"][name], other_face["regions"][name]) for name in face["regions"]
    )


def full_pipeline() -> FaceCompose:
    return FaceCompose(
        [
            A.HorizontalFlip(p=0.5),
            A.Affine(rotate=(-20, 20), scale=(0.8, 1.2), p=0.7),
            LandmarkJitter(p=0.5),
            SelfBlend(p=0.5),
            AlignedMixup(p=0.5),
            A.OneOf([RegionCrop(p=0.3), A.Sequential([RegionDropout(p=0.5), LandmarkBlackout(p=0.5)], p=1)], p=0.5),
            HullHalfBlackout(p=0.3),
            BlockMask(p=0.3),
            FaceCutout(p=0.5),
            BackgroundRemoval(p=0.3),
            FaceXRay(p=0.5),
            A.ImageCompression(p=0.3),
        ]
    )


# ---- left and right


def mirrored(box: np.ndarray) -> list[float]:
    left, top, right, bottom = box.tolist()
    return [WIDTH - right, top, WIDTH - left, bottom]


@pytest.mark.parametrize("points", ["hidden", "beyond the horizon"])
def test_points_that_are_not_known_or_far_out_change_nothing_in_what_is_left_and_right(points: str) -> None:
    initial = InitialPoints(LANDMARKS, HULL.copy(), REGIONS, np.tile(LANDMARKS[2], (68, 1)))
    current = initial.points[:, :2].copy()
    current[:, 0] = WIDTH - 1 - current[:, 0]
    if points == "hidden":
        initial.points[-1, :2] = np.nan  # of a landmarker that leaves it out
        current[-1] = np.nan
    else:
        current[initial.hull_offset, 0] = -1e6  # a point of the left cheek, not to be seen in the image
    assert initial.is_reflected(current)


def test_a_warp_does_not_turn_over_a_face_in_profile() -> None:
    """Its five points are almost on a line, so that a wave of a few px may swap the eyes; the hull shows which is."""
    profile = LANDMARKS.copy()
    profile[:, 0] = 100 + (profile[:, 0] - 100) / 15  # eyes 4 px apart
    initial = InitialPoints(profile, HULL.copy(), REGIONS, None)
    current = initial.points[:, :2].copy()
    current[[0, 3], 0] += 5
    current[[1, 4], 0] -= 5
    assert not initial.is_reflected(current)


def test_after_a_flip_the_left_eye_is_the_one_that_the_viewer_sees_left() -> None:
    result = FaceCompose([A.HorizontalFlip(p=1)])(**a_face())
    assert result["landmarks"].tolist() == [[70, 64], [130, 60], [100, 90], [79, 113], [120, 115]]
    assert result["hull"].tolist() == [[WIDTH - x, y] for x, y in HULL.tolist()]
    assert list(result["regions"]) == list(REGIONS)
    assert result["regions"]["left_eye"].tolist() == mirrored(REGIONS["right_eye"])
    assert result["regions"]["right_eye"].tolist() == mirrored(REGIONS["left_eye"])
    assert result["regions"]["nose"].tolist() == mirrored(REGIONS["nose"])


QUARTER_TURN = A.Affine(rotate=(90, 90), fit_output=True, p=1)


@pytest.mark.parametrize(
    ("transforms", "swaps"),
    [
        ([A.HorizontalFlip(p=1)], True),
        ([A.VerticalFlip(p=1)], True),
        ([A.Transpose(p=1)], True),
        ([A.HorizontalFlip(p=1), A.VerticalFlip(p=1)], False),
        ([A.HorizontalFlip(p=1), QUARTER_TURN, A.Transpose(p=1), A.VerticalFlip(p=1)], True),
        ([A.Rotate((180, 180), p=1)], False),
        ([QUARTER_TURN], False),
        ([A.Perspective(scale=0.1, p=1)], False),
        ([A.ElasticTransform(alpha=60, sigma=10, p=1)], False),
        ([A.HorizontalFlip(p=1), A.GridDistortion(p=1)], True),
        ([A.Sequential([A.OneOf([A.HorizontalFlip(p=1)], p=1)], p=1)], True),
        ([FaceCompose([A.HorizontalFlip(p=1)])], True),
        ([A.Compose([A.HorizontalFlip(p=1)])], True),
    ],
)
def test_left_and_right_change_names_with_every_reflection_and_only_then(transforms: list[Any], swaps: bool) -> None:
    """Two probes of different colours sit on the eyes; after the transforms each must be where its name says."""
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for (x, y), colour in zip(LANDMARKS[:2].astype(int).tolist(), [(255, 0, 0), (0, 255, 0)], strict=True):
        cv2.circle(image, (x, y), 5, colour, -1)
    result = FaceCompose(transforms, seed=3)(**a_face(image))
    first, second = (tuple(np.argwhere(result["image"][..., channel] > 128).mean(axis=0)[::-1]) for channel in (0, 1))
    expected = [second, first] if swaps else [first, second]
    assert np.abs(result["landmarks"][:2] - expected).max() < 2


def test_all_eight_symmetries_of_a_square_keep_the_names_right() -> None:
    compose, directions = FaceCompose([A.D4(p=1)]), set()
    for seed in range(40):
        compose.set_random_seed(seed)
        result = compose(**a_face())
        (left, right, nose, *_) = result["landmarks"]
        down = nose - (left + right) / 2
        across = right - left
        directions.add(tuple(np.sign(np.rint(down / 10)).astype(int).tolist()))
        assert across[0] * down[1] - across[1] * down[0] > 0  # an upright face has its left eye on the left
    assert len(directions) == 4


def test_a_transform_after_a_flip_sees_the_new_names() -> None:
    dropout = RegionDropout({"left_eye": 1}, p=1)
    for transforms in ([A.HorizontalFlip(p=1), dropout], [A.HorizontalFlip(p=1), A.OneOf([dropout], p=1)]):
        result = FaceCompose(transforms)(**a_face())
        left, top, right, bottom = (int(edge) for edge in mirrored(REGIONS["right_eye"]))
        black = (result["image"] == 0).all(axis=2)
        assert black[top:bottom, left:right].all()
        assert black.sum() == (bottom - top) * (right - left)


def test_a_region_becomes_the_box_of_its_turned_corners() -> None:
    result = FaceCompose([A.Affine(rotate=(45, 45), p=1)])(**a_face())
    left, top, right, bottom = REGIONS["mouth"]
    x, y = (np.array([left, right, right, left]) - 100), (np.array([top, top, bottom, bottom]) - 80)
    rotated = np.stack([x + y, y - x]) * np.sqrt(0.5) + [[100], [80]]
    expected = [*rotated.min(axis=1), *rotated.max(axis=1)]
    assert result["regions"]["mouth"] == pytest.approx(expected, abs=0.01)


def test_nothing_given_is_written_to() -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[50:120, 60:140] = 1
    face = a_face(mask=mask)
    for array in (face["image"], face["landmarks"], face["hull"], face["mask"], *face["regions"].values()):
        array.flags.writeable = False
    compose = full_pipeline()
    for seed in range(30):
        compose.set_random_seed(seed)
        result = compose(**face)
        assert result["image"].dtype == np.uint8
        assert result["image"].shape == (HEIGHT, WIDTH, 3)
    assert face["landmarks"].tolist() == LANDMARKS.tolist()


# ---- seeds, files, processes


def test_a_seed_repeats_every_draw_and_another_one_differs() -> None:
    compose = full_pipeline()
    runs = []
    for seed in (5, 5, 6):
        compose.set_random_seed(seed)
        runs.append([compose(**a_face()) for _ in range(8)])
    assert all(same_face(face, other_face) for face, other_face in zip(runs[0], runs[1], strict=True))
    assert not all(same_face(face, other_face) for face, other_face in zip(runs[0], runs[2], strict=True))


def test_shared_generators_that_are_reseeded_before_each_face_determine_the_result() -> None:
    numpy_rng, python_rng = np.random.default_rng(0), random.Random(0)
    compose = full_pipeline()
    compose.set_random_state(numpy_rng, python_rng)
    start = numpy_rng.bit_generator.state

    def augment(key: int) -> dict[str, Any]:
        numpy_rng.bit_generator.state = {**start, "state": {**start["state"], "state": key}}
        python_rng.seed(key)
        return compose(**a_face())

    first = [augment(key) for key in range(10)]
    in_reverse = [augment(key) for key in reversed(range(10))][::-1]
    assert all(same_face(face, other_face) for face, other_face in zip(first, in_reverse, strict=True))


def test_a_pipeline_survives_a_dict_a_json_and_a_yaml_file(tmp_path: Path) -> None:
    compose = full_pipeline()
    stored = A.to_dict(compose)
    assert stored["transform"]["__class_fullname__"] == "facefeed.loaders.augment.FaceCompose"
    copies = [A.from_dict(stored)]
    for kind in ("json", "yaml"):
        A.save(compose, tmp_path / kind, data_format=kind)
        copies.append(A.load(tmp_path / kind, data_format=kind))
    for copy in copies:
        assert type(copy) is FaceCompose
        assert A.to_dict(copy) == stored
        for seed in range(10):
            compose.set_random_seed(seed)
            copy.set_random_seed(seed)
            assert same_face(compose(**a_face()), copy(**a_face()))


@pytest.mark.processes
def test_a_pipeline_works_in_a_process_that_was_spawned() -> None:
    compose = full_pipeline()
    compose.set_random_seed(4)
    code = (
        "import pickle, sys\n"
        "compose, face = pickle.load(sys.stdin.buffer)\n"
        "pickle.dump(compose(**face), sys.stdout.buffer)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps((compose, a_face())), capture_output=True, check=True
    )
    assert same_face(pickle.loads(process.stdout), compose(**a_face()))


# ---- what cannot be


@pytest.mark.parametrize("missing", ["image", "landmarks", "hull", "regions"])
def test_a_missing_part_of_the_face_is_named(missing: str) -> None:
    face = a_face()
    del face[missing]
    with pytest.raises(UsageError, match=f"{missing} is missing"):
        FaceCompose([A.HorizontalFlip()])(**face)


def test_points_of_a_wrong_shape_are_named() -> None:
    compose = FaceCompose([A.HorizontalFlip()])
    with pytest.raises(UsageError, match=r"landmarks of shape \(3, 2\)"):
        compose(**{**a_face(), "landmarks": LANDMARKS[:3]})
    with pytest.raises(UsageError, match=r"hull of shape \(6,\)"):
        compose(**{**a_face(), "hull": HULL[:, 0]})
    with pytest.raises(UsageError, match="regions nose"):
        compose(**{**a_face(), "regions": {"nose": LANDMARKS[:2]}})


@pytest.mark.parametrize(
    "transform", [LandmarkBlackout(p=1), HullHalfBlackout(p=1), BlockMask(p=1), FaceCutout(), RegionDropout(p=1),
                  RegionCrop(p=1), AlignedMixup(p=1), SelfBlend(p=1), LandmarkJitter(p=1), MouthCrop(),
                  BackgroundRemoval()], ids=lambda transform: type(transform).__name__,
)  # fmt: skip
def test_a_transform_of_ours_without_a_face_names_the_remedy(transform: Any) -> None:
    with pytest.raises(UsageError, match=f"{type(transform).__name__}: there is no face.*FaceCompose"):
        A.Compose([transform])(image=a_face()["image"])


def test_a_transform_that_a_face_cannot_follow_is_refused() -> None:
    mosaic = A.Mosaic(grid_yx=(2, 2), target_size=(64, 64), cell_shape=(32, 32), metadata_key="others")
    with pytest.raises(UsageError, match=r"Mosaic: .* a face cannot follow it"):
        FaceCompose([A.OneOf([mosaic, A.HorizontalFlip()])])

    def first_three(points: np.ndarray, **_: Any) -> np.ndarray:
        return points[:3]

    dropping = A.Lambda(keypoints=first_three, p=1)
    with pytest.raises(UsageError, match="Lambda: makes 3 points of 31"):
        FaceCompose([dropping])(**a_face())


def test_a_face_without_regions_is_a_face() -> None:
    result = FaceCompose([A.HorizontalFlip(p=1), RegionDropout(p=1), RegionCrop(p=1)])(**{**a_face(), "regions": {}})
    assert result["regions"] == {}
    assert result["landmarks"].tolist()[0] == [70, 64]


ENLARGING = {
    "resize": A.Resize(HEIGHT * 5 // 2, WIDTH * 5 // 2), "scale": A.RandomScale((0.5, 0.5), p=1),
    "crop": A.RandomResizedCrop((2 * HEIGHT, 2 * WIDTH), scale=(0.2, 0.3), p=1),
    "longest side": A.LongestMaxSize(max(HEIGHT, WIDTH) * 5 // 2), "border": A.CropAndPad(percent=-0.2, p=1),
}  # fmt: skip


@pytest.mark.parametrize("name", ENLARGING)
def test_a_mask_lies_on_its_image_once_both_are_resized(name: str) -> None:
    """Each pixel of the mask is one of its image: half a pixel of an even number would lie between two."""
    mask = np.random.default_rng(0).integers(0, 2, (HEIGHT, WIDTH), np.uint8)
    compose = FaceCompose([ENLARGING[name]])
    ENLARGING[name].interpolation = cv2.INTER_NEAREST_EXACT
    result = compose(**a_face(np.repeat(mask[..., None] * np.uint8(255), 3, axis=2), mask))
    assert (result["mask"] * 255 == result["image"][..., 0]).all()


def test_a_mask_that_a_transform_draws_by_is_read_for_it() -> None:
    assert FaceCompose([A.PixelDropout(mask_drop_value=0)]).wants_mask
    assert not FaceCompose([A.PixelDropout()]).wants_mask
