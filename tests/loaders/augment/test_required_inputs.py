"""Every transform of Albumentations works on a face and on an image, or is refused before any is loaded."""

from __future__ import annotations

import inspect
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
from facefeed.loaders.adapters.by_kind import adapter_of
from facefeed.loaders.augment import FaceCompose, SelfBlend
from facefeed.loaders.face import Face
from facefeed.pipeline.errors import UsageError

SIDE = 64
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Crop": {"x_max": 32, "y_max": 32}, "CropAndPad": {"px": 4}, "LongestMaxSize": {"max_size": 32},
    "SmallestMaxSize": {"max_size": 32}, "RandomSizedCrop": {"min_max_height": (20, 40), "size": (32, 32)},
    "GridElasticDeform": {"num_grid_xy": (3, 3), "magnitude": 3}, "CenterCrop3D": {"size": (4, 32, 32)},
    "RandomCrop3D": {"size": (4, 32, 32)}, "Pad3D": {"padding": 2}, "PadIfNeeded3D": {"min_zyx": (4, 32, 32)},
    "ConstrainedCoarseDropout": {"bbox_labels": ["face"]}, "TextImage": {"font_path": "absent.ttf"},
}  # fmt: skip
BASES = {"BasicTransform", "DualTransform", "ImageOnlyTransform", "Transform3D"}
RETURNS_NO_UINT8 = {"FromFloat", "Normalize", "ToFloat", "ToTensorV2"}
LACKING = {
    "BBoxSafeRandomCrop": "needs bboxes, .*RegionCrop", "RandomSizedBBoxSafeCrop": "needs bboxes, .*RegionCrop",
    "RandomCropNearBBox": "needs cropping_bbox=, .*RegionCrop", "CropNonEmptyMaskIfExists": "needs a mask, .*RegionCr",
    "MaskDropout": "needs a mask, which real faces and some fakes have not; .*RegionDropout",
    "ConstrainedCoarseDropout": "needs bboxes, .*RegionDropout", "OverlayElements": "calls it with overlay_metadata=",
    "FDA": "calls it with fda_metadata=", "HistogramMatching": "calls it with hm_metadata=",
    "PixelDistributionAdaptation": "calls it with pda_metadata=", "TextImage": "calls it with textimage_metadata=",
    "Mosaic": "function of the image that calls it with mosaic_metadata=",
    **dict.fromkeys(
        ("CenterCrop3D", "CoarseDropout3D", "CubicSymmetry", "Pad3D", "PadIfNeeded3D", "RandomCrop3D"),
        "needs volume, which a face has not; .* of images",
    ),
}  # fmt: skip
"""What is refused, and with which advice."""


def public_transforms() -> list[str]:
    kinds = {name: kind for name, kind in vars(A).items() if inspect.isclass(kind)}
    return sorted(name for name, kind in kinds.items() if issubclass(kind, A.BasicTransform) and name not in BASES)


def of_name(name: str) -> Any:
    parameters = inspect.signature(getattr(A, name)).parameters
    sizes = {each: 32 if each != "size" else (32, 32) for each in ("height", "width", "size")}
    required = {each: size for each, size in sizes.items() if each in parameters}
    return getattr(A, name)(**{**required, **ARGUMENTS.get(name, {}), "p": 1})


def a_face(mask: Any) -> dict[str, Any]:
    return {
        "image": np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8),
        "landmarks": np.array([(20, 20), (40, 20), (30, 30), (22, 45), (38, 45)], np.float32),
        "hull": np.array([(10, 10), (50, 10), (50, 55), (10, 55)], np.float32),
        "regions": {"face": np.array([10, 10, 50, 55], np.float32)},
        "mask": mask, "partner": None, "label": 0,
    }  # fmt: skip


def test_all_that_is_refused_is_a_transform() -> None:
    assert {*LACKING} < {*public_transforms()}


def test_holes_by_the_mask_which_fakes_alone_would_have_are_refused() -> None:
    transform = A.ConstrainedCoarseDropout(mask_indices=[1], p=1)
    with pytest.raises(UsageError, match="needs a mask, which real faces and some fakes have not"):
        FaceCompose([transform]).check_dataset(["real"], without_landmarks_68=[])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", public_transforms())
def test_a_transform_works_on_a_face_with_and_without_mask_or_is_refused_at_once(name: str) -> None:
    transform = of_name(name)
    if name in LACKING:
        with pytest.raises(UsageError, match=LACKING[name]):
            FaceCompose([A.OneOf([A.NoOp(), A.Sequential([transform])])]).check_dataset(
                ["real"], without_landmarks_68=[]
            )
        return
    compose = FaceCompose([transform])
    compose.check_dataset(["real", "fake"], without_landmarks_68=[])
    for mask in (None, np.eye(SIDE, dtype=np.uint8)):
        assert compose(**a_face(mask))["landmarks"].shape == (5, 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", public_transforms())
def test_a_transform_works_on_an_image_alone_or_is_refused_at_once(name: str) -> None:
    transform = A.Compose([of_name(name)])
    if name in LACKING:
        with pytest.raises(UsageError, match=f"^transform: {name} needs .*{LACKING[name].removeprefix('needs ')}"):
            adapter_of(transform)
        return
    adapter = adapter_of(transform)
    if name not in RETURNS_NO_UINT8:
        assert adapter(transform, Face.from_image(a_face(None)["image"]), ()).image.shape[2] == 3


@pytest.mark.filterwarnings("ignore:This augmenter is very slow")
def test_a_piecewise_affine_of_scale_0_which_shrinks_every_image_to_two_pixels_is_refused() -> None:
    for scale in (0, (0, 0)):
        transform = A.Compose([A.OneOf([A.PiecewiseAffine(scale=scale)])])
        with pytest.raises(UsageError, match=r"^transform: PiecewiseAffine\(scale=0\) .* give a scale above 0"):
            adapter_of(transform)
        with pytest.raises(UsageError, match=r"^face_transform: PiecewiseAffine\(scale=0\) "):
            FaceCompose([transform]).check_dataset(["real"], without_landmarks_68=[])
    adapter_of(A.PiecewiseAffine(scale=(0, 0.05)))


def test_what_is_never_applied_needs_nothing() -> None:
    FaceCompose([A.MaskDropout(p=0), A.OneOf([A.RandomCropNearBBox()], p=0), SelfBlend()]).check_dataset(
        ["real", "fake"], without_landmarks_68=[]
    )
    adapter_of(A.Compose([A.FDA(p=0)]))


@pytest.mark.parametrize("name", ["FDA", "Mosaic", "OverlayElements", "RandomCropNearBBox"])
def test_a_function_that_gives_what_is_lacking_is_taken_as_advised(name: str) -> None:
    other = np.full((32, 32, 3), 90, np.uint8)
    data: dict[str, Any] = {
        "FDA": {"fda_metadata": [other]}, "Mosaic": {"mosaic_metadata": [{"image": other}]},
        "OverlayElements": {"overlay_metadata": {"image": other}},
        "RandomCropNearBBox": {"cropping_bbox": (10, 10, 40, 40)},
    }[name]  # fmt: skip
    transform = A.Compose([of_name(name)])

    def calling(image: Any) -> Any:
        return transform(image=image, **data)

    image = a_face(None)["image"]
    changed = adapter_of(calling)(calling, Face.from_image(image), ()).image
    assert not np.array_equal(changed, image)
