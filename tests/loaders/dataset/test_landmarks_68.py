"""The 68 points of dense landmarks come with a batch and follow whatever is done to the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (its users' name for it)
import numpy as np
import pytest
from assets_dataset import DenseStandIn, make_dataset
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.augment import FaceCompose
from facefeed.loaders.augment.points import MIRRORED_LANDMARKS_68
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.errors import UsageError
from numpy.typing import NDArray

SIDE_PX = 48


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dense") / "out"
    make_dataset(path, landmarker=DenseStandIn(misses=5))
    return path


def first_batch(out: Path, fields: tuple[str, ...] = ("image", "row", "landmarks_68"), **options: Any) -> Any:
    loader = FaceDataLoader(
        out, split="val", batch_size=16, shuffle=False, num_workers=0, image_size=SIDE_PX, fields=fields, **options
    )
    return next(iter(loader))


def stored(out: Path, row: int) -> NDArray[np.float32]:
    """The points of a row, scaled to the image."""
    index = Index(out)
    return index.points("landmarks_68", row) * np.float32(SIDE_PX / index.value("width", row))


def test_points_come_in_px_of_the_image_and_nan_where_a_face_has_none(out: Path) -> None:
    batch = first_batch(out)
    assert batch["landmarks_68"].shape == (16, 68, 2)
    assert str(batch["landmarks_68"].dtype) == "torch.float32"
    missing = 0
    for row, points in zip(batch["row"].tolist(), batch["landmarks_68"].numpy(), strict=True):
        if len(expected := stored(out, row)):
            np.testing.assert_allclose(points, expected, rtol=1e-5)
        else:
            missing += 1
            assert np.isnan(points).all()
    assert 0 < missing < 16


def test_a_mirrored_image_has_mirrored_points_under_their_new_names(out: Path) -> None:
    plain, flipped = first_batch(out), first_batch(out, face_transform=[A.HorizontalFlip(p=1)])
    mirrored = plain["landmarks_68"].numpy()[:, MIRRORED_LANDMARKS_68] * (-1, 1) + (SIDE_PX, 0)
    np.testing.assert_allclose(flipped["landmarks_68"].numpy(), mirrored, atol=1e-4)
    assert sorted(MIRRORED_LANDMARKS_68) == list(range(68))
    pairs = {0: 16, 17: 26, 30: 30, 31: 35, 36: 45, 41: 46, 48: 54, 60: 64, 67: 65}
    assert {each: MIRRORED_LANDMARKS_68[each].item() for each in pairs} == pairs


def test_points_follow_a_crop_protocol_and_a_turn_as_the_five_do(out: Path) -> None:
    turn = FaceCompose([A.Affine(rotate=(30, 30), translate_px=(5, 5), p=1)])
    fields = ("image", "landmarks", "landmarks_68", "row")
    for options in ({"crop": {"margin": 0.1, "size": SIDE_PX}}, {"face_transform": turn}):
        before, after = (first_batch(out, fields, **each) for each in ({}, options))
        for five, moved_five, points, moved in zip(
            *(each[name].numpy() for name in ("landmarks", "landmarks_68") for each in (before, after)), strict=True
        ):
            affine, *_ = np.linalg.lstsq(np.column_stack([five, np.ones(5)]), moved_five, rcond=None)
            assert not np.allclose(affine[:2], np.eye(2), atol=0.05)
            np.testing.assert_allclose(moved, np.column_stack([points, np.ones(68)]) @ affine, atol=0.02)


def test_a_transform_of_ones_own_must_take_the_points_where_they_are_asked_for(out: Path) -> None:
    def five_alone(image: Any, landmarks: Any, hull: Any, regions: Any, mask: Any, partner: Any) -> dict[str, Any]:
        return {"image": image, "landmarks": landmarks, "hull": hull, "regions": regions, "mask": mask}

    def forgetful(**face: Any) -> dict[str, Any]:
        return {name: value for name, value in face.items() if name != "landmarks_68"}

    assert first_batch(out, ("image",), face_transform=five_alone)["image"].shape[0] == 16
    with pytest.raises(UsageError, match="landmarks_68 would not follow the face_transform"):
        first_batch(out, face_transform=five_alone)
    with pytest.raises(UsageError, match="returned no landmarks_68"):
        first_batch(out, face_transform=forgetful)
    assert first_batch(out, face_transform=lambda **face: face)["landmarks_68"].shape == (16, 68, 2)


def test_points_of_another_shape_are_refused() -> None:
    face = {"image": np.zeros((8, 8, 3), np.uint8), "landmarks": np.zeros((5, 2)), "hull": np.zeros((4, 2))}
    with pytest.raises(UsageError, match=r"landmarks_68 of shape \(5, 2\): must be \(68, 2\)"):
        FaceCompose([])(**face, regions={}, landmarks_68=np.zeros((5, 2)))
