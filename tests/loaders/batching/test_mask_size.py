"""Masks at the size of a feature map: the manipulated share of each cell, whatever made or moved the mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
import torch
from assets_dataset import make_dataset
from facefeed.loaders import Clip, FaceDataLoader
from facefeed.loaders.augment import SelfBlend
from facefeed.pipeline.errors import UsageError
from torchvision.transforms import v2

SIDE = 56
FIELDS = ("image", "label", "mask", "manipulated")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mask_size") / "out"
    make_dataset(path)
    return path


def batches_of(out: Path, **options: Any) -> list[dict[str, torch.Tensor]]:
    settings = {"split": None, "num_workers": 0, "image_size": SIDE, "batch_size": 64, "fields": FIELDS}
    return list(FaceDataLoader(out, **{**settings, "shuffle": False, **options}))


def masks_of(out: Path, **options: Any) -> torch.Tensor:
    return torch.cat([batch["mask"] for batch in batches_of(out, **options)])


def _in_255(mask: Any = None, **face: Any) -> dict[str, Any]:
    return {**face, "mask": None if mask is None else mask * np.uint8(255)}


@pytest.mark.parametrize("mask_size", [None, 14])
def test_masks_of_0_and_255_are_refused(out: Path, mask_size: int | None) -> None:
    with pytest.raises(UsageError, match=r"a mask has values from 0 to 255 after the transforms: must be 0\.\.1"):
        masks_of(out, mask_size=mask_size, face_transform=_in_255)


REALS: dict[str, Any] = {"filters": [("label", "==", 0)]}
SETTINGS: dict[str, dict[str, Any]] = {
    "stored": {},
    "self-blended": {**REALS, "face_transform": [SelfBlend(p=0.5)]},
    "moved": {"face_transform": [A.Rotate((-30, 30), p=1), A.HorizontalFlip()]},
    "moved by torchvision": {"transform": v2.RandomRotation(30)},
    "clips": {"clip": Clip(frames=4), "batch_size": 2},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_cell_is_the_mean_of_its_pixels(out: Path, name: str) -> None:
    pixels, cells = masks_of(out, **SETTINGS[name]), masks_of(out, mask_size=14, **SETTINGS[name])
    assert cells.dtype == torch.float32
    assert cells.shape == (*pixels.shape[:-2], 14, 14)
    means = pixels.unflatten(-1, (14, 4)).unflatten(-3, (14, 4)).mean(dim=(-1, -3))
    torch.testing.assert_close(cells, means, atol=1e-6, rtol=0, equal_nan=True)
    assert ((cells > 0) & (cells < 1)).any()  # cells that the edge of a mask divides


@pytest.mark.parametrize("cells", [1, 10, 37, 56])
def test_a_size_that_divides_no_pixel_keeps_the_manipulated_share(out: Path, cells: int) -> None:
    pixels, shares = masks_of(out), masks_of(out, mask_size=cells)
    known = ~pixels.isnan().flatten(1).any(1)
    torch.testing.assert_close(shares[known].mean(dim=(1, 2)), pixels[known].mean(dim=(1, 2)), atol=1e-5, rtol=0)
    assert 0 <= float(shares[known].min()) <= float(shares[known].max()) <= 1
    assert cells != SIDE or torch.equal(shares[known], pixels[known])


def test_faces_without_a_mask_are_0_where_real_and_nan_where_nobody_knows(out: Path) -> None:
    batches = batches_of(out, mask_size=7)
    real = torch.cat([batch["label"] for batch in batches]) == 0
    unknown = torch.cat([batch["manipulated"] for batch in batches]).isnan() & ~real
    masks = torch.cat([batch["mask"] for batch in batches])
    assert not masks[real].any()
    assert unknown.any()
    assert masks[unknown].isnan().all()
    assert not masks[~unknown].isnan().any()


def test_what_is_manipulated_is_that_of_the_pixels(out: Path) -> None:
    plain, small = (batches_of(out, mask_size=size, **SETTINGS["self-blended"]) for size in (None, 7))
    for one, other in zip(plain, small, strict=True):
        torch.testing.assert_close(one["manipulated"], other["manipulated"], equal_nan=True)
        assert torch.equal(one["image"], other["image"])


def test_workers_give_the_same_cells(out: Path) -> None:
    options: dict[str, Any] = {"mask_size": 14, **SETTINGS["self-blended"]}
    assert np.array_equal(masks_of(out, **options), masks_of(out, num_workers=1, **options))


def test_more_cells_than_pixels_are_refused_where_a_transform_makes_fewer(out: Path) -> None:
    with pytest.raises(UsageError, match=r"mask_size=40: the mask has 32 x 32 px, as its image, .*give at most 32"):
        batches_of(out, mask_size=40, transform=v2.CenterCrop(32))
