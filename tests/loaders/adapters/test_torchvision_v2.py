"""Points and mask of a face go where torchvision's transforms put the pixels under them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import cv2
import numpy as np
import pytest
import torch
from facefeed.loaders.adapters.by_kind import adapter_of
from facefeed.loaders.augment import FaceCompose
from facefeed.loaders.face import Face
from facefeed.pipeline.errors import UsageError
from torchvision import tv_tensors
from torchvision.transforms import v2

SIDE = 256
OUTLINE = np.array([(80, 60), (150, 50), (190, 100), (170, 130), (185, 190), (120, 215), (70, 180), (95, 130)])
LANDMARKS = np.array([(100.5, 90), (150, 92), (125, 120.5), (105, 160), (152, 165)], np.float32)
BILINEAR = v2.InterpolationMode.BILINEAR
EVERYTHING = ("landmarks", "hull", "regions", "landmarks_68", "mask")


def area() -> np.ndarray[Any, Any]:
    """A mask (H, W) of 0 and 1, not convex and not symmetric."""
    mask = np.zeros((SIDE, SIDE), np.uint8)
    cv2.fillPoly(mask, [OUTLINE], 1)
    return mask


def a_face(image: np.ndarray[Any, Any] | None = None) -> Face:
    """A face whose image, unless another is given, shows the mask's area in white."""
    return Face(
        image=np.repeat(area()[..., None] * np.uint8(255), 3, axis=2) if image is None else image,
        landmarks=LANDMARKS.copy(), hull=OUTLINE.astype(np.float32), mask=area(),
        regions={"left_eye": np.float32([90, 80, 115, 100]), "right_eye": np.float32([138, 82, 162, 104])},
        landmarks_68=(np.random.default_rng(0).random((68, 2)) * 100 + 75).astype(np.float32),
    )  # fmt: skip


def apply(transform: Any, face: Face, *delivered: str, seed: int = 0) -> Face:
    torch.manual_seed(seed)
    return adapter_of(transform)(transform, face, delivered)


def overlap(mask: np.ndarray[Any, Any], image: np.ndarray[Any, Any]) -> float:
    """Intersection over union of a mask above 0 and the picture of its area above half of white."""
    one, other = mask > 0, image[..., 0] > 127
    return float((one & other).sum() / (one | other).sum())


V2 = {
    "horizontal flip": v2.RandomHorizontalFlip(1), "vertical flip": v2.RandomVerticalFlip(1),
    "crop": v2.RandomCrop(190), "centre crop": v2.CenterCrop(201),
    "padded crop": v2.RandomCrop(300, pad_if_needed=True),
    "crop to a size": v2.RandomResizedCrop(224, scale=(0.5, 1)), "rotation": v2.RandomRotation(40),
    "smooth rotation": v2.RandomRotation(40, interpolation=BILINEAR),
    "rotation that expands": v2.RandomRotation(40, interpolation=BILINEAR, expand=True),
    "flip of what expanded": v2.Compose([v2.RandomRotation(40, BILINEAR, expand=True), v2.RandomHorizontalFlip(1)]),
    "quarter turn": v2.RandomRotation((90, 90), expand=True),
    "affine map": v2.RandomAffine(30, translate=(0.1, 0.1), scale=(0.8, 1.2), shear=10, interpolation=BILINEAR),
    "elastic warp": v2.ElasticTransform(alpha=100.0, sigma=8.0), "strong elastic warp": v2.ElasticTransform(),
    "perspective": v2.RandomPerspective(0.4, p=1), "larger": v2.Resize((320, 300)), "smaller": v2.Resize(170),
    "zoomed out": v2.RandomZoomOut(p=1, side_range=(1.1, 1.5)),
    "several": v2.Compose([v2.RandomHorizontalFlip(1), v2.RandomRotation(20), v2.RandomResizedCrop(200, (0.6, 1))]),
    "modules": torch.nn.Sequential(v2.RandomHorizontalFlip(1), v2.RandomRotation(20)),
}  # fmt: skip
ALBUMENTATIONS = {
    "flip": A.HorizontalFlip(p=1), "crop": A.RandomCrop(190, 190), "rotation": A.Rotate((-40, 40), p=1),
    "affine map": A.Affine(rotate=(-30, 30), scale=(0.8, 1.2), p=1), "grid": A.GridDistortion(p=1),
    "elastic warp": A.ElasticTransform(alpha=120, sigma=12, p=1),
}  # fmt: skip
each_v2 = pytest.mark.parametrize("name", V2)


@each_v2
def test_a_mask_moves_as_the_picture_of_its_area(name: str) -> None:
    for seed in range(8):
        face = apply(V2[name], a_face(), "mask", seed=seed)
        assert face.mask is not None
        assert face.mask.dtype == np.uint8
        assert overlap(face.mask, face.image) >= 0.99


@pytest.mark.parametrize("name", ALBUMENTATIONS)
def test_a_mask_moves_as_the_picture_of_its_area_by_albumentations_too(name: str) -> None:
    compose = FaceCompose([ALBUMENTATIONS[name]])
    for seed in range(8):
        compose.set_random_seed(seed)
        face = a_face()
        result = compose(
            image=face.image, landmarks=face.landmarks, hull=face.hull, regions=face.regions, mask=face.mask
        )
        assert overlap(result["mask"], result["image"]) >= 0.99


def test_a_measured_overlap_of_99_percent_is_less_than_a_pixel() -> None:
    assert overlap(np.roll(area(), 1, axis=1), a_face().image) < 0.985
    assert overlap(np.roll(area(), 2, axis=1), a_face().image) < 0.97


def dots(points: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In each channel a spot whose centre of mass is at one of three points, counted from the first pixel's corner."""
    columns, rows = np.arange(SIDE) + 0.5, np.arange(SIDE)[:, None] + 0.5
    spots = [250 * np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * 1.5**2)) for x, y in points]
    return np.rint(np.dstack(spots)).astype(np.uint8)


def centre_of(spot: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    light = spot.astype(np.float64)
    height, width = light.shape
    return np.array([light.sum(0) @ (np.arange(width) + 0.5), light.sum(1) @ (np.arange(height) + 0.5)]) / light.sum()


@each_v2
def test_a_point_moves_as_the_dot_that_is_drawn_there(name: str) -> None:
    checked, limit_px = 0, 0.15 if "expand" in name else 0.5
    for seed in range(5):
        points = LANDMARKS[[0, 2, 4]]
        face = apply(V2[name], replace(a_face(dots(points)), hull=points), "hull", seed=seed)
        height, width = face.image.shape[:2]
        for number, point in enumerate(face.hull):  # which keeps its order through a reflection
            if (point > 6).all() and (point < (width - 6, height - 6)).all():
                assert np.hypot(*(centre_of(face.image[..., number]) - point)) < limit_px
                checked += 1
    assert checked >= 10


def test_flips_move_points_exactly() -> None:
    face = apply(v2.Compose([v2.RandomHorizontalFlip(1), v2.RandomVerticalFlip(1)]), a_face(), *EVERYTHING)
    np.testing.assert_array_equal(face.hull, SIDE - OUTLINE.astype(np.float32))


def test_after_a_flip_the_left_eye_is_the_one_that_the_viewer_sees_left() -> None:
    face = apply(v2.RandomHorizontalFlip(1), a_face(), *EVERYTHING)
    np.testing.assert_allclose(face.landmarks[0], (SIDE - 150, 92), atol=1e-3)
    np.testing.assert_allclose(face.regions["left_eye"], (SIDE - 162, 82, SIDE - 138, 104), atol=1e-3)
    np.testing.assert_allclose(face.landmarks_68[36], (SIDE, 0) + a_face().landmarks_68[45] * (-1, 1), atol=1e-3)
    turned = apply(v2.RandomRotation((30, 30)), a_face(), *EVERYTHING)
    assert turned.landmarks[0, 0] < turned.landmarks[1, 0]


@pytest.mark.parametrize("size", [*range(SIDE - 5, SIDE + 6), (SIDE + 3, SIDE - 3), (SIDE - 6, SIDE + 7)], ids=str)
def test_a_centre_crop_of_any_size_moves_points_and_mask_exactly_as_the_image(size: Any) -> None:
    face = apply(v2.CenterCrop(size), a_face(), *EVERYTHING)
    assert np.array_equal(face.mask, face.image[..., 0] // 255)
    top, left = np.argwhere(face.image[..., 0])[0] - np.argwhere(area())[0]
    np.testing.assert_array_equal(face.hull, OUTLINE + np.float32([left, top]))


def test_a_mirrored_border_leaves_each_point_once() -> None:
    face = apply(v2.Pad(20, padding_mode="reflect"), a_face(), *EVERYTHING)
    np.testing.assert_allclose(face.hull, OUTLINE + 20)
    assert face.image.shape == (SIDE + 40, SIDE + 40, 3)


def test_no_point_is_lost_outside_the_frame() -> None:
    face = apply(v2.CenterCrop(20), a_face(), *EVERYTHING)
    np.testing.assert_allclose(face.hull, OUTLINE - (SIDE - 20) / 2)


FILLED = {
    "rotation": v2.RandomRotation((30, 30), fill=127), "affine map": v2.RandomAffine((30, 30), fill=127),
    "perspective": v2.RandomPerspective(0.6, p=1, fill=127), "border": v2.Pad(20, fill=127),
    "padded crop": v2.RandomCrop(300, pad_if_needed=True, fill=127), "zoomed out": v2.RandomZoomOut(fill=127, p=1),
    "elastic warp": v2.ElasticTransform(alpha=400.0, fill=127),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLED)
def test_what_fills_the_image_is_not_manipulated(name: str) -> None:
    whole = Face.from_image(np.full((SIDE, SIDE, 3), 255, np.uint8))
    face = apply(FILLED[name], replace(whole, mask=np.ones((SIDE, SIDE), np.uint8)), "mask")
    assert face.mask is not None
    assert {*np.unique(face.mask)} == {0, 1}
    assert not face.mask[face.image[..., 0] == 127].any()


def test_a_blended_mask_stays_one_of_shares() -> None:
    shares = cv2.GaussianBlur(area().astype(np.float32), (31, 31), 0)
    face = apply(v2.RandomHorizontalFlip(1), replace(a_face(), mask=shares), "mask")
    assert face.mask is not None
    np.testing.assert_array_equal(face.mask, shares[:, ::-1])


def test_a_face_without_mask_or_68_points_has_none_after_it() -> None:
    plain = replace(a_face(), mask=None, landmarks_68=np.empty((0, 2), np.float32), regions={})
    face = apply(v2.RandomHorizontalFlip(1), plain, *EVERYTHING)
    assert face.mask is None
    assert face.landmarks_68.shape == (0, 2)
    assert face.regions == {}


def test_what_a_batch_delivers_changes_no_image() -> None:
    transform = v2.Compose([
        v2.RandomRotation(30), v2.ColorJitter(0.3, 0.3, 0.3, 0.1), v2.ElasticTransform(), v2.GaussianBlur(5),
        v2.RandomApply([v2.RandomHorizontalFlip()]), v2.RandomPerspective(), v2.RandomPosterize(4),
    ])  # fmt: skip
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    images = [apply(transform, a_face(noise), *delivered, seed=1).image for delivered in ((), ("mask",), EVERYTHING)]
    assert (images[0] != noise).any()
    assert all((image == images[0]).all() for image in images)


def test_nothing_given_is_written_to() -> None:
    face, same = a_face(), a_face()
    apply(v2.Compose([v2.RandomHorizontalFlip(1), v2.RandomRotation(30), v2.Resize(99)]), face, *EVERYTHING)
    assert face.mask is not None
    assert (face.mask == same.mask).all()
    assert (face.hull == same.hull).all()
    assert (face.image == same.image).all()


def inverted(pixels: torch.Tensor) -> torch.Tensor:
    return 255 - pixels


def brightened(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.clone() | 7


def darkened(pixels: torch.Tensor) -> torch.Tensor:
    return torch.stack([pixels[channel] for channel in range(3)]) >> 1


class _Brightness(torch.nn.Module):
    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return brightened(pixels)


class _SizedMask(v2.Transform):  # type: ignore[misc]  # torchvision has no types
    def forward(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "mask": sample["mask"][:9]}


class _ImageOnly(v2.Transform):  # type: ignore[misc]
    def forward(self, sample: Any) -> Any:
        return sample["image"] if isinstance(sample, dict) else sample


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (v2.Compose([brightened]), "Compose does not take points and mask beside an image .*'clone'.* out of fields"),
        (v2.Compose([darkened]), r"does not take points and mask .*KeyError: 0.* v2.Lambda\(function, tv_tens"),
        (torch.nn.Sequential(v2.RandomHorizontalFlip(), _Brightness()), "Sequential does not take points and mask"),
        (v2.RandAugment(), "RandAugment does not take points and mask beside an image .*leave .* out of fields"),
        (v2.SanitizeKeyPoints(), "points of .*, so a face cannot follow it; leave SanitizeKeyPoints out"),
        (_SizedMask(), r"transform returned a mask \(9, 256\): must be of its image, \(256, 256\)"),
        (_ImageOnly(), "transform returned Image: must return a dict of all that it was given"),
    ],
)
def test_what_points_cannot_follow_is_refused(transform: Any, message: str) -> None:
    outside = replace(a_face(), hull=OUTLINE.astype(np.float32) - 100)
    with pytest.raises(UsageError, match=message):
        apply(transform, outside, *EVERYTHING)


@pytest.mark.parametrize("delivered", [(), EVERYTHING], ids=["image", "points"])
def test_a_lambda_of_images_leaves_points_and_mask_alone(delivered: tuple[str, ...]) -> None:
    transform = v2.Lambda(inverted, tv_tensors.Image) if delivered else v2.Lambda(inverted)
    face = apply(v2.Compose([transform]), a_face(), *delivered)
    assert (face.image == 255 - a_face().image).all()
    np.testing.assert_array_equal(face.mask, area())
    np.testing.assert_array_equal(face.hull, OUTLINE)


def test_a_function_between_transforms_of_v2_changes_images_where_no_points_are_delivered() -> None:
    face = apply(v2.Compose([v2.RandomHorizontalFlip(1), darkened]), a_face())
    assert (face.image == a_face().image[:, ::-1] >> 1).all()


def test_an_error_of_ones_own_function_is_left_as_it_is() -> None:
    def broken(pixels: Any) -> Any:
        raise KeyError("brightness")

    with pytest.raises(KeyError, match="brightness"):
        apply(v2.Compose([broken]), a_face(), *EVERYTHING)


@pytest.mark.parametrize("delivered", [(), EVERYTHING], ids=["image", "points"])
@pytest.mark.parametrize("transform", [v2.Normalize([0.5] * 3, [0.5] * 3), v2.CutMix(num_classes=2)], ids=str)
def test_what_takes_no_image_of_bytes_is_refused_with_what_to_do(transform: Any, delivered: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=r"does not take an image of v2, uint8 .*leave Normalize out.* CutMix"):
        apply(transform, a_face(), *delivered)


class _OwnModule(torch.nn.Module):
    """A module that holds a transform of v2, and takes an array as any function does."""

    def __init__(self) -> None:
        super().__init__()
        self.flip = v2.RandomHorizontalFlip(1)

    def forward(self, image: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"image": self.flip(torch.from_numpy(image).permute(2, 0, 1)).permute(1, 2, 0).numpy()}


def test_a_module_of_ones_own_is_called_as_a_function() -> None:
    face = a_face()
    assert (apply(_OwnModule(), face).image == face.image[:, ::-1]).all()


def test_a_version_without_key_points_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tv_tensors, "KeyPoints")
    with pytest.raises(UsageError, match=r"torchvision .* has no KeyPoints; install 0\.23 or later"):
        adapter_of(v2.RandomHorizontalFlip())


def test_a_version_that_would_move_points_itself_is_refused_where_some_are_delivered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tv_tensors, "wrap", _wrap_as_before_0_26)
    with pytest.raises(UsageError, match=r"install 0\.26 or later, or leave landmarks, hull out of fields"):
        apply(v2.RandomHorizontalFlip(1), a_face(), "landmarks", "hull", "mask")
    face = apply(v2.RandomHorizontalFlip(1), a_face(), "mask")
    assert face.mask is not None
    np.testing.assert_array_equal(face.mask, area()[:, ::-1])


def _wrap_as_before_0_26(tensor: torch.Tensor, *, like: Any, **_: Any) -> Any:
    return tensor.as_subclass(tv_tensors.KeyPoints if isinstance(like, tv_tensors.KeyPoints) else type(like))


@pytest.mark.processes
def test_torchvision_is_imported_by_those_who_use_it_alone() -> None:
    code = (
        "import sys, albumentations as A\n"
        "from facefeed.loaders import FaceDataLoader, FaceDataset\n"
        "from facefeed.loaders.adapters.by_kind import adapter_of\n"
        "adapter_of(A.HorizontalFlip()); adapter_of(lambda image: image)\n"
        "assert 'torchvision' not in sys.modules\n"
        "from torchvision.transforms import v2\n"
        "adapter_of(v2.RandomHorizontalFlip())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
