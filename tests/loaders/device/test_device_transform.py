"""What a training run notices of `device_transform`: a face's picture depends on seed, epoch and face alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as everyone calls it)
import numpy as np
import pytest
import torch
from assets_device import FILTERS, Jitter, kornia_jitter, of_epochs, pictures, pictures_of_rank, shuffle_channels
from assets_loaders import loader
from assets_ranks import in_ranks
from assets_rows import make_small
from facefeed.loaders import Clip, FaceDataLoader, Quotas
from facefeed.loaders.device import BatchedBrightnessContrast, BatchedCrop, BatchedFlip
from facefeed.pipeline.errors import UsageError
from torchvision.transforms import v2

FLIP_AND_JITTER = v2.Compose([v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4), v2.GaussianNoise()])
TRANSFORMS: dict[str, Any] = {
    "batched": [BatchedFlip(), BatchedBrightnessContrast(p=1), BatchedCrop(scale=(0.5, 0.9))],
    "torchvision": FLIP_AND_JITTER,
    "any callable": shuffle_channels,
    "mixed": [BatchedFlip(), v2.ColorJitter(0.4), shuffle_channels],
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_face_has_one_picture_an_epoch_whatever_its_batch_rank_and_loader(dataset: Path, name: str) -> None:
    transform = TRANSFORMS[name]
    first, second = of_epochs(dataset, transform, 2)
    assert len(first) == 107
    assert all(first[face] != second[face] for face in first), "each epoch draws anew"
    assert of_epochs(dataset, transform, 1, batch_size=7) == [first]
    assert of_epochs(dataset, transform, 1, shuffle=False) == [first]
    halves = [of_epochs(dataset, transform, 1, rank=rank, num_replicas=2)[0] for rank in (0, 1)]
    assert halves[0] | halves[1] == first
    fewer = of_epochs(dataset, transform, 1, filters=FILTERS)[0]
    assert 0 < len(fewer) < 107
    assert fewer.items() <= first.items()
    (other,) = of_epochs(dataset, transform, 1, seed=1)
    assert all(first[face] != other[face] for face in first)


@pytest.mark.gpu
@pytest.mark.parametrize("name", TRANSFORMS)
def test_on_cuda_too_a_face_has_one_picture_an_epoch(dataset: Path, name: str) -> None:
    (whole,) = of_epochs(dataset, TRANSFORMS[name], device="cuda")
    assert len(whole) == 107
    state = torch.cuda.get_rng_state()
    assert of_epochs(dataset, TRANSFORMS[name], batch_size=7, device="cuda") == [whole]
    assert torch.equal(torch.cuda.get_rng_state(), state)


@pytest.mark.processes
def test_two_ranks_of_a_process_group_deliver_the_pictures_of_one(dataset: Path, tmp_path: Path) -> None:
    transforms = [TRANSFORMS["batched"], FLIP_AND_JITTER]
    ranks = in_ranks(2, pictures_of_rank, tmp_path / "group", dataset, transforms)
    for number, transform in enumerate(transforms):
        alone = of_epochs(dataset, transform, 2, batch_size=10)
        for epoch in range(2):
            first, second = (rank[number][epoch] for rank in ranks)
            assert first | second == alone[epoch]
            assert len(first) + len(second) == 107


@pytest.mark.parametrize("name", ["batched", "torchvision"])
def test_a_resumed_epoch_goes_on_with_the_same_pictures(dataset: Path, name: str) -> None:
    transform = TRANSFORMS[name]
    ((whole),) = of_epochs(dataset, transform)
    interrupted = loader(dataset, num_workers=0, device_transform=transform)
    begun = pictures([next(iter(interrupted))])
    resumed = loader(dataset, num_workers=0, device_transform=transform, batch_size=9)
    resumed.load_state_dict(interrupted.state_dict())
    rest = pictures(resumed)
    assert begun | rest == whole
    assert len(begun) + len(rest) == 107


def test_a_face_that_comes_several_times_in_an_epoch_is_drawn_anew_each_time(dataset: Path) -> None:
    options: dict[str, Any] = {"balance": Quotas({"real": 1, "fake": 3}), "batch_size": 8, "num_workers": 0}
    seen: dict[str, list[bytes]] = {}
    for batch in loader(dataset, device_transform=Jitter(), **options):
        for face, image in zip(batch["face_id"], batch["image"], strict=True):
            seen.setdefault(face, []).append(image.numpy().tobytes())
    repeated = [images for images in seen.values() if len(images) > 1]
    assert repeated
    assert all(len(set(images)) == len(images) for images in repeated)
    once = pictures(loader(dataset, num_workers=0, device_transform=Jitter()))
    assert all(images[0] == once[face] for face, images in seen.items())


def test_the_training_scripts_own_random_numbers_stay_as_they_were(dataset: Path) -> None:
    def draw() -> tuple[float, ...]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    def seed() -> None:
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)

    seed()
    expected = draw()
    seed()
    pictures(loader(dataset, num_workers=0, device_transform=[FLIP_AND_JITTER, shuffle_channels]))
    assert draw() == expected


def test_kornias_modules_are_drawn_for_each_face_alone(dataset: Path) -> None:
    pytest.importorskip("kornia", reason="kornia is not installed")
    transform = kornia_jitter()
    first, second = of_epochs(dataset, transform, 2)
    assert of_epochs(dataset, transform, 1, batch_size=7) == [first]
    assert sum(first[face] != second[face] for face in first) > 90


def test_a_trainer_that_rebuilds_the_loader_from_its_settings_keeps_them(dataset: Path) -> None:
    own = loader(dataset, num_workers=0, device_transform=TRANSFORMS["batched"], decode="device")
    names = ("batch_size", "shuffle", "seed", "fields", "num_workers", "device_transform", "decode")
    rebuilt = FaceDataLoader(own.dataset, **{name: getattr(own, name) for name in names})
    assert pictures(rebuilt) == pictures(own)


# ---- what transforms get and what becomes of their output


def test_float32_is_transformed_in_0_to_1_and_then_normalised(dataset: Path) -> None:
    given: list[torch.Tensor] = []

    def remember(images: torch.Tensor) -> torch.Tensor:
        given.append(images)
        return images

    remembered = next(iter(loader(dataset, num_workers=0, device_transform=remember)))["image"]
    plain = next(iter(loader(dataset, num_workers=0)))["image"]
    assert {(tuple(images.shape), images.dtype) for images in given} == {((1, 3, 32, 32), torch.float32)}
    assert 0 <= min(float(images.min()) for images in given) < max(float(images.max()) for images in given) <= 1
    assert remembered.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(remembered, plain, rtol=0, atol=1e-6)


def test_uint8_is_transformed_as_stored_and_delivered_as_the_transform_left_it(dataset: Path) -> None:
    own = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3), v2.Resize(16)])
    images = next(iter(loader(dataset, num_workers=0, dtype="uint8", device_transform=own)))["image"]
    assert (images.shape, images.dtype) == ((32, 3, 16, 16), torch.float32)
    assert -1 <= float(images.min()) < -0.5
    grey = next(iter(loader(dataset, num_workers=0, dtype="uint8", device_transform=v2.Grayscale())))["image"]
    assert (grey.shape, grey.dtype) == ((32, 1, 32, 32), torch.uint8)


def test_channels_last_false_holds_behind_a_transform_too(dataset: Path) -> None:
    batch = next(iter(loader(dataset, num_workers=0, channels_last=False, device_transform=BatchedFlip())))
    assert batch["image"].is_contiguous()


def test_all_images_of_a_clip_get_the_same_draws(dataset: Path) -> None:
    options: dict[str, Any] = {"clip": Clip(frames=4), "batch_size": 3, "num_workers": 0, "dtype": "uint8"}
    for transform in (BatchedFlip(), v2.RandomHorizontalFlip()):
        clips = set()
        for seed in range(4):  # a few clips each
            plain, flipped = (
                [images for images, _ in FaceDataLoader(dataset, image_size=32, seed=seed, **options, **given)]
                for given in ({}, {"device_transform": transform})
            )
            clips |= {
                (torch.equal(a, b), torch.equal(a.flip(-1), b))
                for before, after in zip(plain, flipped, strict=True)
                for a, b in zip(before, after, strict=True)
            }
        assert clips == {(True, False), (False, True)}, "whole clips are mirrored, or none of their images"


# ---- mistakes


class CountsDraws:
    draws = "two"

    def __call__(self, images: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return images


class TakesNoNumbers(torch.nn.Module):
    draws = 1

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_transform": TakesNoNumbers()},
         r"TakesNoNumbers: is called with images \(N, 3, H, W\) and numbers \(N, draws\), as it has `draws`: too many"),
        ({"device_transform": v2.Normalize([0.5] * 3, [0.5] * 3)}, "so Normalize would do it a second time"),
        ({"device_transform": v2.Compose([v2.RandomApply([v2.Normalize([0.5] * 3, [0.5] * 3)])])}, "a second time"),
        ({"device_transform": torch.nn.Sequential(v2.Normalize([0.5] * 3, [0.5] * 3))}, "a second time"),
        ({"device_transform": A.ColorJitter()}, "ColorJitter: a transform of Albumentations takes one image"),
        ({"device_transform": [BatchedFlip(), A.Compose([A.HorizontalFlip()])]}, "Compose: .* give it to transform or"),
        ({"device_transform": lambda: None}, r"is called with images \(N, 3, H, W\): too many positional"),
        ({"device_transform": 3}, "device_transform=3: must be callable"),
        ({"device_transform": BatchedFlip}, "a class has to be called first"),
        ({"device_transform": CountsDraws()}, r"CountsDraws\.draws='two': must be a whole number"),
        ({"device_transform": [BatchedFlip(), None]}, "device_transform=None: must be callable"),
        ({"device_transform": BatchedFlip(), "fields": ("image", "landmarks", "mask")},
         "landmarks, mask would not follow BatchedFlip; .* face_transform"),
        ({"device_transform": v2.ColorJitter(), "fields": ("image", "hull")}, "hull would not follow ColorJitter"),
        ({"device_transform": BatchedFlip(), "collate_fn": list, "fields": None}, "collate_fn is delivered unchanged"),
        ({"device_transform": BatchedFlip(), "pin_memory": True}, "pin_memory cannot hold"),
    ],
)  # fmt: skip
def test_what_cannot_hold_is_refused_before_any_worker_starts(
    dataset: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        loader(dataset, **options)


def test_points_come_beside_a_transform_that_states_it_moves_no_pixels(dataset: Path) -> None:
    batch = next(iter(loader(dataset, num_workers=0, fields=("image", "landmarks"), device_transform=[
        BatchedBrightnessContrast(), Jitter()
    ])))  # fmt: skip
    assert batch["landmarks"].shape == (32, 5, 2)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda images: images[0], r"returned torch\.float32 \(3, 32, 32\) for 1 images: must return float"),
        (lambda images: images.mul(255).byte(), r"returned torch\.uint8 .* give dtype='uint8'"),
        (lambda images: images[:, :1], r"returned torch\.float32 \(1, 1, 32, 32\)"),
        (lambda images: images.numpy(), "returned ndarray"),
        (lambda images: images[..., : 16 + int(torch.randint(9, ()))], "images of sizes .*; resize last"),
    ],
    ids=["one image", "uint8", "grey", "array", "sizes"],
)
def test_an_output_that_is_no_batch_ends_the_run_with_the_rule(dataset: Path, transform: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(loader(dataset, num_workers=0, device_transform=transform))
