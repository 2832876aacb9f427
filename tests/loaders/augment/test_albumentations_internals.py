"""The private attributes of Albumentations are used in one file, and checked against the pinned version."""

from __future__ import annotations

import re
import tomllib

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
from assets_paths import ROOT
from facefeed.loaders.augment import albumentations_internals

INTERNAL = re.compile(r"_key2func|_available_keys|\.processors\b|\b_targets\b|albumentations\.(core|augmentations)")


def test_the_version_that_is_installed_is_the_one_that_was_checked() -> None:
    assert A.__version__ == albumentations_internals.VERSION == "2.0.8"


def test_it_is_pinned_exactly() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [requirement for requirement in project["dependencies"] if requirement.startswith("albumentations")] == [
        "albumentations==2.0.8"
    ]


def test_no_other_file_touches_its_internals() -> None:
    files = [path for folder in ("loaders", "train", "pipeline") for path in (ROOT / folder).rglob("*.py")]
    touching = {path.name for path in files if INTERNAL.search(path.read_text())}
    assert touching == {
        "albumentations_internals.py",
        "base.py",
    }  # the second sets `_targets`, as every custom transform


def test_the_private_attributes_exist() -> None:
    transform = A.Resize(40, 30)
    assert "keypoints" in transform._key2func
    assert "keypoints" not in A.RandomBrightnessContrast()._key2func
    assert transform.processors == {}
    assert "image" in A.Compose([])._available_keys
    for name in albumentations_internals._SCALING_TRANSFORMS:
        modules = [A, A.augmentations.crops.transforms, A.augmentations.geometric.resize]
        assert any(hasattr(module, name) for module in modules)


@pytest.mark.parametrize("transform", [A.Resize(50, 40), A.RandomScale((1.0, 1.0), p=1), A.LongestMaxSize(80)], ids=str)
def test_transforms_that_multiply_points_by_the_scale_are_known(transform: A.DualTransform) -> None:
    result = A.Compose([transform], keypoint_params=A.KeypointParams("xy"))(
        image=np.zeros((20, 20, 3), np.uint8), keypoints=[(0.0, 0.0)]
    )
    assert np.asarray(result["keypoints"]).tolist() == [[0.0, 0.0]]
    assert albumentations_internals.scales_about_corner(transform)
    assert not albumentations_internals.scales_about_corner(A.HorizontalFlip())
