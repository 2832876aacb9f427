"""Batches of transforms by torchvision and by functions of one's own: repeatable, resumable, one draw for each clip."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
import torch
from assets_dataset import DenseStandIn, make_dataset
from assets_loaders import flip_by_torch, noise_of_numpy
from facefeed.loaders import Clip, FaceDataLoader, FaceDataset
from facefeed.loaders.augment import FaceCompose, FaceXRay, LandmarkBlackout, MouthCrop, RegionCrop, SelfBlend
from facefeed.pipeline.errors import UsageError
from torch.utils.data import DataLoader
from torchvision.transforms import v2

SIDE = 48
FIELDS = ("image", "label", "row", "landmarks", "hull", "regions", "landmarks_68", "mask")
IMAGE_FIELDS = ("image", "label", "row")
Pixels = np.ndarray[Any, Any]


TRANSFORMS: dict[str, Any] = {
    "v2": v2.Compose([
        v2.RandomHorizontalFlip(), v2.RandomRotation(20), v2.RandomResizedCrop(SIDE, (0.6, 1)),
        v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.GaussianNoise(),
    ]),
    "one of v2": v2.ElasticTransform(),
    "modules": torch.nn.Sequential(v2.RandomHorizontalFlip(), v2.RandomPerspective(p=1)),
    "by position": noise_of_numpy,
    "by keyword": flip_by_torch,
}  # fmt: skip
each_kind = pytest.mark.parametrize("name", TRANSFORMS)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds") / "out"
    make_dataset(path, landmarker=DenseStandIn())
    return path


def loader_of(out: Path, transform: Any, **options: Any) -> FaceDataLoader:
    settings = {"split": "val", "num_workers": 0, "image_size": SIDE, "batch_size": 4, "fields": FIELDS}
    settings |= {"dtype": "uint8", "shuffle": True}
    return FaceDataLoader(out, transform=transform, **{**settings, **options})


def seen(batches: Any) -> list[bytes]:
    """Each batch as the bytes of all its columns."""
    return [b"".join(_bytes_of(column) for column in batch.values()) for batch in batches]


def _bytes_of(column: Any) -> bytes:
    if isinstance(column, dict):
        column = list(column.values())
    return b"".join(map(_bytes_of, column)) if isinstance(column, list) else column.numpy().tobytes()


@each_kind
def test_two_runs_have_the_same_batches_and_two_epochs_have_not(out: Path, name: str) -> None:
    loader = loader_of(out, TRANSFORMS[name])
    first, second = seen(loader), seen(loader)
    assert not {*first} & {*second}
    assert len(torch.rand(3)) == len(np.random.rand(3))  # what the training script draws changes nothing
    assert seen(loader_of(out, TRANSFORMS[name])) == first


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", ["v2", "by position"])
def test_batches_are_the_same_for_any_number_of_workers(out: Path, name: str, workers: int) -> None:
    with_workers = loader_of(out, TRANSFORMS[name], num_workers=workers)
    assert seen(with_workers) == seen(loader_of(out, TRANSFORMS[name]))


@each_kind
def test_stopped_in_mid_epoch_it_goes_on_with_exactly_the_batches_that_were_left(out: Path, name: str) -> None:
    whole, loader = seen(loader_of(out, TRANSFORMS[name])), loader_of(out, TRANSFORMS[name])
    assert seen(islice(loader, 3)) == whole[:3]
    resumed = loader_of(out, TRANSFORMS[name])
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    assert seen(resumed) == whole[3:]


@each_kind
def test_the_generators_of_the_training_script_are_left_alone(out: Path, name: str) -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    expected = torch.rand(4), np.random.rand(4)
    torch.manual_seed(0)
    np.random.seed(0)
    next(iter(loader_of(out, TRANSFORMS[name])))
    assert torch.equal(torch.rand(4), expected[0])
    assert (np.random.rand(4) == expected[1]).all()


@each_kind
def test_asking_for_points_and_masks_changes_no_image(out: Path, name: str) -> None:
    all_columns, images_alone = (loader_of(out, TRANSFORMS[name], fields=fields) for fields in (FIELDS, IMAGE_FIELDS))
    for batch, plain in zip(all_columns, images_alone, strict=True):
        assert torch.equal(batch["image"], plain["image"])


def test_points_and_masks_of_a_batch_move_with_its_images(out: Path) -> None:
    plain = next(iter(loader_of(out, None, shuffle=False, batch_size=31)))
    moved = next(iter(loader_of(out, v2.RandomHorizontalFlip(1), shuffle=False, batch_size=31)))
    assert torch.equal(moved["image"], plain["image"].flip(3))
    assert torch.equal(moved["mask"].nan_to_num(-1), plain["mask"].flip(2).nan_to_num(-1))
    assert int((moved["mask"] == 1).sum()) > 0
    mirrored = torch.tensor([SIDE, 0]) + plain["landmarks"][:, [1, 0, 2, 4, 3]] * torch.tensor([-1, 1])
    torch.testing.assert_close(moved["landmarks"], mirrored, atol=1e-4, rtol=0)
    for hull, before in zip(moved["hull"], plain["hull"], strict=True):
        torch.testing.assert_close(hull, torch.tensor([SIDE, 0]) + before * torch.tensor([-1, 1]), atol=1e-4, rtol=0)
    left, right = moved["regions"]["left_eye"], plain["regions"]["right_eye"]
    torch.testing.assert_close(left[:, 0], SIDE - right[:, 2], atol=1e-4, rtol=0)
    assert torch.equal(moved["landmarks_68"].isnan(), plain["landmarks_68"].isnan())


def test_a_transform_of_the_face_comes_before_it(out: Path) -> None:
    reals = {"filters": [("label", "==", 0)], "face_transform": [SelfBlend(p=1)], "shuffle": False}
    plain = next(iter(loader_of(out, None, **reals)))
    flipped = next(iter(loader_of(out, v2.RandomHorizontalFlip(1), **reals)))
    assert torch.equal(flipped["image"], plain["image"].flip(3))
    assert torch.equal(flipped["mask"], plain["mask"].flip(2))
    assert float(plain["mask"].max()) <= 1
    assert set(flipped["label"].tolist()) == {1}


def test_torchs_own_loader_draws_other_numbers_in_each_epoch(out: Path) -> None:
    dataset = FaceDataset(out, split="val", image_size=SIDE, transform=TRANSFORMS["v2"])
    torch_loader = DataLoader(dataset, 32)
    assert not torch.equal(next(iter(torch_loader))[0], next(iter(torch_loader))[0])


@each_kind
def test_a_profiler_may_time_it_and_gets_the_same_batches(out: Path, name: str) -> None:
    calls: list[str] = []

    def counting(stage: str, call: Any) -> Any:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            calls.append(stage)
            return call(*arguments, **keywords)

        return counted

    loader = loader_of(out, TRANSFORMS[name])
    timed = loader.with_batch_dataset(loader.dataset.with_wrapped_stages(counting))
    assert seen(timed) == seen(loader)
    assert calls.count("augment") == len(loader.dataset)


# ---- clips


class _OnePicture:
    """Puts one picture in place of every image, so that only the draws of a function after it differ."""

    picture = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, image: Pixels) -> Any:
        return self.function(self.picture.copy())


class _OnePictureOfV2(v2.Transform):  # type: ignore[misc]  # torchvision has no types
    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        return torch.from_numpy(_OnePicture.picture.copy()).permute(2, 0, 1)


@each_kind
def test_all_images_of_a_clip_have_one_draw_and_clips_have_their_own(out: Path, name: str) -> None:
    transform = TRANSFORMS[name]
    is_v2 = isinstance(transform, torch.nn.Module)
    on_one_picture = v2.Compose([_OnePictureOfV2(), transform]) if is_v2 else _OnePicture(transform)
    options: dict[str, Any] = {"clip": Clip(frames=4, clips_per_video=8), "split": "train", "fields": IMAGE_FIELDS}
    clips = [clip for batch in loader_of(out, on_one_picture, **options) for clip in batch["image"]]
    assert len(clips) > 8
    for clip in clips:
        assert all(torch.equal(image, clip[0]) for image in clip)
    draws = {clip[0].numpy().tobytes() for clip in clips}
    assert len(draws) == 2 if name == "by keyword" else len(draws) > 0.8 * len(clips)


def test_points_and_masks_of_a_clip_move_by_the_one_draw_of_their_clip(out: Path) -> None:
    options: dict[str, Any] = {"clip": Clip(frames=4, clips_per_video=8), "split": "train"}
    flips = []
    for plain, moved in zip(
        loader_of(out, None, **options), loader_of(out, v2.RandomHorizontalFlip(), **options), strict=True
    ):
        for number in range(len(plain["image"])):
            is_flipped = torch.equal(moved["image"][number], plain["image"][number].flip(3))
            change = (lambda mask: mask.flip(2)) if is_flipped else (lambda mask: mask)
            assert torch.equal(moved["mask"][number].nan_to_num(-1), change(plain["mask"][number]).nan_to_num(-1))
            nose = plain["landmarks"][number][:, 2]
            expected = torch.tensor([SIDE, 0]) + nose * torch.tensor([-1, 1]) if is_flipped else nose
            torch.testing.assert_close(moved["landmarks"][number][:, 2], expected, atol=1e-4, rtol=0)
            flips.append(is_flipped)
    assert {*flips} == {True, False}


# ---- refusals


def top_left(image: Pixels, **_: Any) -> Pixels:
    return image[:32, :32]


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (A.HorizontalFlip(), "HorizontalFlip"),
        (A.Compose([A.RandomGamma(), A.Affine(rotate=(-9, 9))]), "Affine"),
        (A.Compose([A.OneOf([A.RandomGamma(), A.Rotate((-9, 9))])]), "Rotate"),
        (A.SomeOf([A.Sequential([A.RandomResizedCrop((SIDE, SIDE))])], n=1), "RandomResizedCrop"),
        (A.Compose([A.Resize(SIDE, SIDE + 1), A.CenterCrop(SIDE, SIDE)]), "Resize"),
        (A.Compose([A.PadIfNeeded(64, 64), A.CenterCrop(SIDE, SIDE)]), "PadIfNeeded"),
    ],
    ids=lambda part: part if isinstance(part, str) else "of",
)
@pytest.mark.parametrize("field", ["landmarks", "hull", "regions", "landmarks_68", "mask"])
def test_albumentations_that_would_leave_points_and_mask_behind_are_refused(
    out: Path, transform: Any, name: str, field: str
) -> None:
    message = rf"^transform: {name} would move the image without its {field}; .* face_transform, a list .*A\.{name}"
    with pytest.raises(UsageError, match=message):
        loader_of(out, transform, fields=("image", field))
    assert next(iter(loader_of(out, transform, fields=IMAGE_FIELDS)))["image"].shape[2] == SIDE
    loader_of(out, None, face_transform=[transform], fields=("image", field))


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (A.Compose([A.RandomGamma(), FaceXRay()]), "FaceXRay"),
        (A.Compose([A.OneOf([A.RandomGamma(), A.Sequential([LandmarkBlackout()])])]), "LandmarkBlackout"),
        (A.SomeOf([MouthCrop()], n=1), "MouthCrop"), (RegionCrop(), "RegionCrop"),
        (SelfBlend(), "SelfBlend"), (FaceCompose([A.RandomGamma()]), "FaceCompose"),
        (A.Compose([A.OneOf([FaceCompose([A.RandomGamma()])])]), "FaceCompose"),
    ],
    ids=lambda part: part if isinstance(part, str) else "of",
)  # fmt: skip
def test_what_needs_a_face_is_refused_where_it_would_get_the_image_alone(out: Path, transform: Any, name: str) -> None:
    with pytest.raises(UsageError, match=f"^transform: {name} is for faces, .*; give it to face_transform"):
        loader_of(out, transform, fields=IMAGE_FIELDS)
    loader_of(out, A.Compose([A.RandomGamma(), LandmarkBlackout(p=0)]), fields=IMAGE_FIELDS)


@pytest.mark.parametrize(
    "transform",
    [
        A.Compose([A.RandomGamma(p=1), A.ImageCompression(p=1)]), A.CoarseDropout(p=1), A.PixelDropout(p=1),
        A.Compose([A.NoOp(), A.HorizontalFlip(p=0)]), A.Compose([A.OneOf([A.GridDropout(), A.Erasing()])]),
        A.Compose([A.Resize(SIDE, SIDE), A.Morphological(p=1)]),
    ],
    ids=["colours", "dropout", "pixels", "never applied", "one of", "the same size"],
)  # fmt: skip
def test_albumentations_that_move_nothing_go_with_points_and_mask(out: Path, transform: Any) -> None:
    batches = zip(loader_of(out, transform), loader_of(out, None), strict=True)
    assert all(torch.equal(changed["landmarks"], plain["landmarks"]) for changed, plain in batches)


@pytest.mark.parametrize(
    ("transform", "argument"),
    [
        (A.CoarseDropout(fill_mask=0), "fill_mask"), (A.Compose([A.OneOf([A.GridDropout(fill_mask=0)])]), "fill_mask"),
        (A.XYMasking(num_masks_x=1, mask_x_length=9, fill_mask=0), "fill_mask"),
        (A.PixelDropout(mask_drop_value=0), "mask_drop_value"), (A.Lambda(image=top_left, mask=top_left), "mask"),
    ],
    ids=lambda part: part if isinstance(part, str) else "of",
)  # fmt: skip
def test_albumentations_that_are_to_change_the_mask_are_refused_where_they_get_none(
    out: Path, transform: Any, argument: str
) -> None:
    message = rf"^transform: (\w+)\({argument}=...\) would change a mask, .* face_transform, .* leave {argument} out"
    with pytest.raises(UsageError, match=message):
        loader_of(out, transform, fields=("image", "mask"))
    loader_of(out, transform, fields=("image", "landmarks"))
    loader_of(out, None, face_transform=[transform], fields=("image", "mask"))


def inverted(pixels: torch.Tensor) -> torch.Tensor:
    return 255 - pixels


@pytest.mark.parametrize(
    "transform",
    [
        v2.Lambda(inverted), v2.Compose([v2.RandomApply([v2.Lambda(inverted)])]),
        torch.nn.Sequential(v2.Lambda(inverted)),
    ],
    ids=["alone", "composed", "modules"],
)  # fmt: skip
@pytest.mark.parametrize("field", ["landmarks", "mask"])
def test_a_lambda_that_names_no_type_is_refused_where_it_would_change_points_or_mask(
    out: Path, transform: Any, field: str
) -> None:
    message = rf"Lambda would be called with {field} as with the image; .* Lambda\(function, tv_tensors\.Image\)"
    with pytest.raises(UsageError, match=message):
        loader_of(out, transform, fields=("image", field))
    images = next(iter(loader_of(out, transform, fields=IMAGE_FIELDS, shuffle=False)))["image"]
    plain = next(iter(loader_of(out, None, fields=IMAGE_FIELDS, shuffle=False)))["image"]
    is_inverted = [bool((image == 255 - before).all()) for image, before in zip(images, plain, strict=True)]
    if not isinstance(transform, v2.Compose):
        assert all(is_inverted)
    else:  # of some of the images
        assert is_inverted != [False] * len(is_inverted)


@pytest.mark.parametrize(
    "transform",
    [lambda image: image[:40, :40], lambda image: {"image": image[4:, 4:]}, A.Lambda(image=top_left)],
    ids=["image", "dict", "albumentations"],
)
@pytest.mark.parametrize("field", ["landmarks", "hull", "mask"])
def test_another_size_is_refused_where_nobody_knows_where_the_points_went(
    out: Path, transform: Any, field: str
) -> None:
    message = f"of one of 48 x 48, and does not say where {field} went; give what moves pixels to face_transform"
    with pytest.raises(UsageError, match=message):
        next(iter(loader_of(out, transform, fields=("image", field))))
    assert next(iter(loader_of(out, transform, fields=IMAGE_FIELDS)))["image"].shape[2] < SIDE


def test_a_wrong_result_is_an_error_with_workers_too(out: Path) -> None:
    with pytest.raises(
        UsageError, match=r"transform returned Image torch.float32 \(3, 48, 48\): must be an image of v2"
    ):
        next(iter(loader_of(out, v2.ToDtype(torch.float32), num_workers=1)))
