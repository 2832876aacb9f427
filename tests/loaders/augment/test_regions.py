"""What a user notices of `RegionDropout` and `RegionCrop`: the right part of the face, and a size that stays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
from facefeed.loaders.augment import FaceCompose, RegionCrop, RegionDropout
from facefeed.pipeline.errors import UsageError

HEIGHT, WIDTH = 160, 200
LANDMARKS = np.array([(70, 60), (130, 60), (100, 90), (80, 115), (120, 115)], np.float32)
REGIONS = {
    "left_eye": np.array([54.5, 50.2, 85.7, 70], np.float32),
    "right_eye": np.array([115, 50, 146, 70], np.float32),
    "nose": np.array([88, 70, 112, 100], np.float32),
    "mouth": np.array([75, 105, 126, 125], np.float32),
    "face": np.array([50, 40, 150, 130], np.float32),
}
RAMP = np.dstack(np.broadcast_arrays(np.arange(1, 201)[None], np.arange(1, 161)[:, None], 100)).astype(np.uint8)
"""An image whose pixels tell where each of them was: red is x + 1, green y + 1."""


def a_face(**overrides: Any) -> dict[str, Any]:
    hull = np.array([(50, 40), (150, 40), (150, 130), (50, 130)], np.float32)
    return {"image": RAMP, "landmarks": LANDMARKS, "hull": hull, "regions": REGIONS, "mask": None, **overrides}


def test_a_dropped_region_is_black_to_its_last_pixel_and_nothing_else_is() -> None:
    image = FaceCompose([RegionDropout({"left_eye": 1}, p=1)])(**a_face())["image"]
    expected = RAMP.copy()
    expected[50:70, 54:86] = 0  # pixels whose centres, at .5, lie within 54.5..85.7 and 50.2..70
    assert np.array_equal(image, expected)


def test_regions_are_dropped_by_their_weights_and_the_whole_face_never_by_default() -> None:
    def count_dropped(transform: RegionDropout, draws: int) -> Counter[str]:
        compose, counts = FaceCompose([transform], seed=0), Counter[str]()
        for _ in range(draws):
            dark = compose(**a_face())["image"][..., 2] == 0
            counts[next(name for name, (x, y, *_) in reversed(REGIONS.items()) if dark[int(y) + 3, int(x) + 3])] += 1
        return counts

    usual = count_dropped(RegionDropout(p=1), 1200)
    assert usual.keys() == {"left_eye", "right_eye", "nose", "mouth"}
    assert all(count == pytest.approx(300, abs=70) for count in usual.values())
    weighted = count_dropped(RegionDropout({"nose": 3, "face": 1}, p=1), 1200)
    assert weighted.keys() == {"nose", "face"}
    assert weighted["nose"] == pytest.approx(900, abs=70)


def test_a_region_that_the_face_lacks_is_never_drawn() -> None:
    face = a_face(regions={"mouth": REGIONS["mouth"]})
    result = FaceCompose([RegionDropout({"left_eye": 9, "mouth": 1}, p=1)])(**face)
    assert (result["image"][105:125, 75:126] == 0).all()
    assert np.array_equal(FaceCompose([RegionDropout({"left_eye": 1}, p=1)])(**face)["image"], RAMP)


def test_a_region_partly_out_of_the_frame_is_black_where_it_is_in_it() -> None:
    face = a_face(regions={"nose": np.array([-20, -9, 4, 3], np.float32)})
    dark = (FaceCompose([RegionDropout({"nose": 1}, p=1)])(**face)["image"] == 0).all(axis=2)
    assert dark[:3, :4].all()
    assert dark.sum() == 12
    outside = a_face(regions={"nose": np.array([-20, -9, -4, -3], np.float32)})
    assert np.array_equal(FaceCompose([RegionDropout({"nose": 1}, p=1)])(**outside)["image"], RAMP)


def test_a_crop_to_a_region_keeps_size_and_proportions_and_transforms_the_points() -> None:
    # The nose is 24 x 30 px: 30/160 of the height, with .3 on each side 48 px of it; 60 px of the width go with them.
    result = FaceCompose([RegionCrop({"nose": 1}, margin=0.3, p=1)])(**a_face())
    image = result["image"]
    assert image.shape == (HEIGHT, WIDTH, 3)
    assert image[80, [0, -1], 0].tolist() == [71, 130]  # x from 70 to 129
    assert image[[0, -1], 100, 1].tolist() == [62, 109]  # y from 61 to 108
    scale = 200 / 60
    assert result["landmarks"][2].tolist() == pytest.approx([(100 - 70) * scale, (90 - 61) * scale])
    assert result["regions"]["nose"].tolist() == pytest.approx(
        [(88 - 70) * scale, (70 - 61) * scale, (112 - 70) * scale, (100 - 61) * scale]
    )
    x, y = result["landmarks"][2].astype(int)
    assert abs(int(image[y, x, 0]) - 101) <= 1
    assert abs(int(image[y, x, 1]) - 91) <= 1


def test_a_crop_at_the_border_moves_inwards_and_is_never_black() -> None:
    for box in ([0, 0, 20, 16], [190, 150, 230, 180], [-30, 60, 12, 90]):
        result = FaceCompose([RegionCrop({"mouth": 1}, p=1)])(**a_face(regions={"mouth": np.array(box, np.float32)}))
        assert not np.array_equal(result["image"], RAMP)
        assert result["image"].min() > 0


@pytest.mark.parametrize(
    "box", [[-50, -50, 300, 300], [10, 10, 190, 150], [210, 10, 260, 40], [0, 0, np.nan, 9], [100, 80, 100, 80]]
)
def test_a_region_that_is_no_part_of_the_image_leaves_it_alone(box: list[float]) -> None:
    result = FaceCompose([RegionCrop({"face": 1}, p=1)])(**a_face(regions={"face": np.array(box, np.float32)}))
    assert np.array_equal(result["image"], RAMP)
    assert result["landmarks"].tolist() == LANDMARKS.tolist()


def test_a_region_that_fills_the_image_is_not_drawn_and_the_others_are_drawn_by_their_weights() -> None:
    """As the whole face does in a crop that is stored with the margin that `RegionCrop` adds."""
    filling = a_face(regions={**REGIONS, "face": np.array([30, 25, 170, 135], np.float32)})
    compose = FaceCompose([RegionCrop({"nose": 3, "mouth": 1, "face": 4}, p=1)], seed=0)
    corners = Counter(compose(**filling)["image"][0, 0, 1] for _ in range(400))
    nose, mouth = (FaceCompose([RegionCrop({name: 1}, p=1)])(**filling)["image"][0, 0, 1] for name in ("nose", "mouth"))
    assert corners.keys() == {nose, mouth}
    assert corners[nose] == pytest.approx(300, abs=40)


def test_a_region_that_one_face_of_a_clip_cannot_be_cropped_to_changes_no_other_draw() -> None:
    whole = np.array([0, 0, WIDTH, HEIGHT], np.float32)
    compose = FaceCompose([RegionCrop(p=1), A.RandomBrightnessContrast(p=1)])

    def drawn(face_box: np.ndarray, seed: int) -> np.ndarray:
        compose.set_random_seed(seed)
        image: np.ndarray = compose(**a_face(regions={**REGIONS, "face": face_box}))["image"]
        return image

    equal = [np.array_equal(drawn(REGIONS["face"], seed), drawn(whole, seed)) for seed in range(60)]
    assert sum(equal) == pytest.approx(48, abs=8)  # where the first face drew one of the other four regions


def test_a_mask_is_cropped_with_the_image_and_stays_a_mask() -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[61:85, 70:100] = 1  # the top left quarter of the crop to the nose
    result = FaceCompose([RegionCrop({"nose": 1}, p=1)])(**a_face(mask=mask))
    expected = np.zeros((HEIGHT, WIDTH), np.uint8)
    expected[:80, :100] = 1
    assert np.array_equal(result["mask"], expected)


def test_a_users_own_boxes_are_cropped_too() -> None:
    compose = FaceCompose(
        [RegionCrop({"nose": 1}, p=1)], bbox_params=A.BboxParams("pascal_voc", label_fields=["names"], clip=True)
    )
    result = compose(**a_face(), bboxes=[(70, 61, 100, 85)], names=["quarter"])
    assert np.asarray(result["bboxes"]).tolist() == [pytest.approx([0, 0, 100, 80], abs=0.01)]


def test_wrong_arguments_are_reported() -> None:
    with pytest.raises(UsageError, match="'ear' is none of left_eye, right_eye, nose, mouth, face"):
        RegionDropout({"ear": 1})
    with pytest.raises(UsageError, match=r"margin=-0.1: must be a number of at least 0; try 0.3"):
        RegionCrop(margin=-0.1)
