"""What a training loop notices of a batch: its pixels, its memory, its columns, and that it may be kept."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import numpy as np
import pytest
import torch
from albumentations.pytorch import ToTensorV2
from assets_device import default_device
from assets_rows import SIDE, images_of, make_small, stored_pixels, stored_rows
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.loaders.device import BatchedCrop, BatchedFlip
from facefeed.loaders.normalise import _factors, _statistics, normalise
from facefeed.pipeline.errors import UsageError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


@pytest.fixture(scope="module")
def stored(dataset: Path) -> list[dict[str, Any]]:
    return stored_rows(dataset)


def loader_of(out: Path, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(out, **{"num_workers": 0, "image_size": SIDE, "batch_size": 10, **options})


def test_a_batch_is_images_and_labels_as_torch_wants_them(dataset: Path) -> None:
    images, labels = next(iter(FaceDataLoader(dataset, split="val", batch_size=5, num_workers=0)))
    assert (images.dtype, images.shape) == (torch.float32, (5, 3, 224, 224))
    assert (labels.dtype, labels.shape) == (torch.int64, (5,))


def test_bytes_are_the_stored_pixels_and_floats_are_those_normalised(
    dataset: Path, stored: list[dict[str, Any]]
) -> None:
    options: dict[str, Any] = {"fields": ("image", "label", "row")}
    for batch, floats in zip(loader_of(dataset, dtype="uint8", **options), loader_of(dataset, **options), strict=True):
        assert batch["image"].dtype == torch.uint8
        assert floats["image"].dtype == torch.float32
        rows = [stored[row] for row in batch["row"].tolist()]
        pixels = batch["image"].permute(0, 2, 3, 1)
        assert all((image.numpy() == stored_pixels(row)).all() for image, row in zip(pixels, rows, strict=True))
        assert torch.equal(normalise(pixels), floats["image"])
        assert batch["label"].tolist() == floats["label"].tolist() == [row["label"] for row in rows]


@pytest.mark.parametrize("image_size", [16, 20, 48])
def test_bytes_and_floats_agree_at_other_sizes_too(dataset: Path, image_size: int) -> None:
    pairs = zip(loader_of(dataset, dtype="uint8", image_size=image_size),
                loader_of(dataset, image_size=image_size), strict=True)  # fmt: skip
    for (pixels, _), (floats, _) in pairs:
        assert pixels.shape[2:] == (image_size, image_size)
        assert torch.equal(normalise(pixels.permute(0, 2, 3, 1)), floats)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("transform", [None, A.Compose([A.HorizontalFlip(p=1.0)])], ids=["plain", "flipped"])
def test_memory_is_channels_last_or_plain_as_was_asked(dataset: Path, dtype: Any, transform: Any) -> None:
    options: dict[str, Any] = {"dtype": dtype, "transform": transform}
    channels_last = loader_of(dataset, **options)
    plain = loader_of(dataset, channels_last=False, **options)
    for (images, _), (plain_images, _) in zip(channels_last, plain, strict=True):
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert plain_images.is_contiguous()
        assert plain_images.view(len(plain_images), -1).shape[1] == 3 * SIDE * SIDE
        assert torch.equal(images, plain_images)


@pytest.mark.parametrize("dtype", ["float64", "float16", None, torch.float32])
def test_another_type_is_refused(dataset: Path, dtype: Any) -> None:
    with pytest.raises(UsageError, match=r"dtype=.*must be float32 or uint8"):
        loader_of(dataset, dtype=dtype)


# ---- transforms


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_a_transform_decides_over_pixels_and_size(dataset: Path, dtype: Any) -> None:
    crop = A.Compose([A.HorizontalFlip(p=1.0), A.CenterCrop(20, 12)])
    for (cropped, _), (images, _) in zip(
        loader_of(dataset, dtype=dtype, transform=crop), loader_of(dataset, dtype=dtype), strict=True
    ):
        assert cropped.shape[1:] == (3, 20, 12)
        assert torch.equal(cropped, images[:, :, 6:26, 10:22].flip(3))


def test_without_a_size_the_transform_brings_all_crops_to_one(dataset: Path) -> None:
    resize = A.Compose([A.Resize(24, 40)])
    sizes = {images.shape[1:] for images, _ in loader_of(dataset, image_size=None, transform=resize)}
    assert sizes == {(3, 24, 40)}
    with pytest.raises(UsageError, match="image_size=None: needs a transform"):
        loader_of(dataset, image_size=None)


def crop_odd(image: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Cuts a row off images whose first pixel is odd."""
    return {"image": image[image[0, 0, 0] % 2 :]}


@pytest.mark.parametrize("options", [{}, {"image_size": None}, {"dtype": "uint8"}], ids=str)
def test_sizes_that_differ_within_a_batch_are_an_error_that_names_them(dataset: Path, options: dict[str, Any]) -> None:
    loader = loader_of(dataset, transform=crop_odd, **options)
    sizes = r"\((32|31), 32\)"
    with pytest.raises(UsageError, match=rf"images of sizes \[{sizes}, {sizes}\] for one batch.*resize last"):
        list(loader)


def crop_odd_faces(image: np.ndarray[Any, Any], **face: Any) -> dict[str, Any]:
    return {**face, **crop_odd(image)}


@pytest.mark.parametrize(
    ("transforms", "name"),
    [
        ({"transform": crop_odd}, "transform"),
        ({"face_transform": crop_odd_faces}, "face_transform"),
        ({"face_transform": crop_odd_faces, "transform": crop_odd}, "face_transform and transform"),
    ],
)
def test_sizes_that_differ_are_an_error_of_the_transforms_that_were_given(
    dataset: Path, transforms: dict[str, Any], name: str
) -> None:
    with pytest.raises(UsageError, match=rf"\A{name} returned images of sizes"):
        list(loader_of(dataset, **transforms))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"landmarks": np.zeros((2, 2), np.float32)}, r"landmarks of shape \(2, 2\): must be \(5, 2\), points as x, y"),
        ({"landmarks": "none"}, r"landmarks of shape \(\): must be \(5, 2\)"),
        ({"hull": np.zeros(8, np.float32)}, r"hull of shape \(8,\): must be \("),
        ({"regions": 3}, "no boxes as regions: must be a dict of name to x0, y0, x1, y1"),
        ({"regions": {"mouth": [1.0, 2.0]}}, "no boxes as regions"),
        (
            {"regions": {"mouth": [1.0, 2, 3, 4]}},
            "the regions mouth: must be .*, as it was given; return boxes outside",
        ),
    ],
)
def test_points_of_another_shape_are_an_error_of_the_face_transform(
    dataset: Path, changed: dict[str, Any], message: str
) -> None:
    def spoil(**face: Any) -> dict[str, Any]:
        return {**face, **changed}

    with pytest.raises(UsageError, match=rf"\Aface_transform returned {message}"):
        list(loader_of(dataset, face_transform=spoil))


def test_points_may_be_returned_as_lists(dataset: Path) -> None:
    def listed(**face: Any) -> dict[str, Any]:
        regions = {name: box.tolist() for name, box in reversed(face["regions"].items())}
        return {**face, "landmarks": face["landmarks"].tolist(), "hull": face["hull"].tolist(), "regions": regions}

    fields = ("image", "landmarks", "hull", "regions")
    [plain, *_], [same, *_] = (
        list(loader_of(dataset, fields=fields, **given)) for given in ({}, {"face_transform": listed})
    )
    assert same["landmarks"].dtype == torch.float32
    assert torch.equal(same["landmarks"], plain["landmarks"])
    assert all(map(torch.equal, same["hull"], plain["hull"]))
    assert same["regions"].keys() == plain["regions"].keys()
    assert all(torch.equal(same["regions"][name], plain["regions"][name]) for name in plain["regions"])


@pytest.mark.parametrize("last", [A.Normalize(), ToTensorV2()], ids=["floats", "tensor"])
def test_normalize_and_totensor_in_a_transform_are_an_error_that_says_to_leave_them_out(
    dataset: Path, last: Any
) -> None:
    loader = loader_of(dataset, transform=A.Compose([A.HorizontalFlip(), last]))
    with pytest.raises(UsageError, match=r"transform returned .*leave Normalize and ToTensor out"):
        next(iter(loader))


def test_a_transform_that_keeps_and_writes_to_what_it_is_given_harms_no_batch(dataset: Path) -> None:
    kept: list[np.ndarray[Any, Any]] = []

    def scribble(image: np.ndarray[Any, Any]) -> dict[str, Any]:
        copy = image.copy()
        kept.append(image)
        for earlier in kept[:-1]:
            earlier[:] = 0
        return {"image": copy}

    for dtype in ("float32", "uint8"):
        plain = [images for images, _ in loader_of(dataset, dtype=dtype)]
        scribbled = [images for images, _ in loader_of(dataset, dtype=dtype, transform=scribble)]
        assert all(torch.equal(*pair) for pair in zip(plain, scribbled, strict=True))
        kept.clear()


def test_a_collate_fn_of_ones_own_gets_pairs_and_its_batch_is_handed_on(dataset: Path) -> None:
    def collate(samples: list[tuple[torch.Tensor, int]]) -> dict[str, Any]:
        assert all(type(label) is int for _, label in samples)
        return {"sum": torch.stack([image.sum() for image, _ in samples]), "labels": [label for _, label in samples]}

    collated = list(loader_of(dataset, collate_fn=collate))
    for batch, (images, labels) in zip(collated, loader_of(dataset), strict=True):
        assert batch["labels"] == labels.tolist()
        torch.testing.assert_close(batch["sum"], images.sum((1, 2, 3)), rtol=1e-4, atol=1e-2)


@dataclass(frozen=True)
class Labelled:
    """A face_transform of one's own that returns a label for every face."""

    label: Any

    def __call__(self, **face: Any) -> dict[str, Any]:
        return {**face, "label": self.label}


def test_a_soft_label_of_a_face_transform_is_refused_and_not_cut_to_zero(dataset: Path) -> None:
    for soft in (0.7, np.float32(0.3), float("nan")):
        with pytest.raises(UsageError, match=r"returned label .*: must be a whole number.* collate_fn"):
            next(iter(loader_of(dataset, face_transform=Labelled(soft))))
        with pytest.raises(UsageError, match="must be a whole number"):
            FaceDataset(dataset, image_size=SIDE, face_transform=Labelled(soft))[0]
    for whole in (1, 1.0, np.int64(1), torch.tensor(1)):
        _, labels = next(iter(loader_of(dataset, face_transform=Labelled(whole))))
        assert labels.tolist() == [1] * 10
        assert labels.dtype == torch.int64
        assert FaceDataset(dataset, image_size=SIDE, face_transform=Labelled(whole))[0][1] == 1


# ---- keeping batches


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("fields", [None, ("image", "label")])
def test_all_batches_may_be_kept(dataset: Path, dtype: Any, fields: Any) -> None:
    loader = loader_of(dataset, dtype=dtype, batch_size=4, fields=fields)
    copies = [images_of(batch).clone() for batch in loader]
    loader.set_epoch(0)
    kept = [images_of(batch) for batch in loader]
    assert len(kept) == 27
    assert all(torch.equal(*pair) for pair in zip(kept, copies, strict=True))
    loader.set_epoch(0)
    second_epoch = [images_of(batch) for batch in loader]
    pointers = {images.data_ptr() for images in (*kept, *second_epoch)}
    assert len(pointers) == 54
    assert all(torch.equal(*pair) for pair in zip(kept, copies, strict=True))


def test_a_part_of_a_batch_may_be_kept_in_any_form(dataset: Path) -> None:
    loader = loader_of(dataset, batch_size=4)
    kept, copies = [], []
    for number, (images, _) in enumerate(loader):
        part = [images[1], images.numpy()[2], images.permute(0, 2, 3, 1)[:, 5:9], images.detach()][number % 4]
        kept.append(part)
        copies.append(torch.as_tensor(part).clone())
        del images, part
    gc.collect()
    list(loader)
    assert all(torch.equal(torch.as_tensor(part), copy) for part, copy in zip(kept, copies, strict=True))


def test_memory_is_used_again_where_nobody_holds_it(dataset: Path) -> None:
    pointers = set()
    loader = loader_of(dataset, batch_size=4)
    for _ in range(2):
        for images, _ in loader:
            pointers.add(images.data_ptr())
            del images
    assert len(pointers) <= 3


@pytest.mark.parametrize("options", [{}, {"dtype": "uint8"}, {"decode": "device"}], ids=str)
def test_a_loader_first_iterated_in_inference_mode_goes_on_outside_of_it(
    dataset: Path, options: dict[str, Any]
) -> None:
    loader = loader_of(dataset, shuffle=False, **options)
    with torch.inference_mode():
        expected = [images.clone() for images, _ in loader]
    assert all(torch.equal(images, other) for (images, _), other in zip(loader, expected, strict=True))


@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": "uint8"}, {"image_size": None, "transform": A.Resize(20, 20)}, {"decode": "device"},
     {"decode": "device", "image_size": 24}, {"num_workers": 1},
     {"device_transform": [BatchedFlip(), BatchedCrop()]}],
    ids=["float32", "uint8", "without a pool", "decoded later", "resized later", "worker", "device transform"],
)  # fmt: skip
def test_a_default_device_of_the_training_script_changes_no_batch(dataset: Path, options: dict[str, Any]) -> None:
    expected = list(loader_of(dataset, **{**options, "num_workers": 0}))
    _factors.cache_clear()
    _statistics.cache_clear()
    with default_device("meta"):
        batches = list(loader_of(dataset, **options))
    for (images, labels), (expected_images, expected_labels) in zip(batches, expected, strict=True):
        assert torch.equal(images, expected_images)
        assert torch.equal(labels, expected_labels)


def test_batches_of_a_broken_off_epoch_stay_what_they_were(dataset: Path) -> None:
    loader = loader_of(dataset, batch_size=4)
    batches = iter(loader)
    kept = [next(batches)[0] for _ in range(3)]
    copies = [images.clone() for images in kept]
    list(loader)
    assert all(torch.equal(*pair) for pair in zip(kept, copies, strict=True))
    with pytest.raises(UsageError, match="another iter"):
        next(batches)


def test_a_dataset_that_was_made_before_gives_the_same_batches(dataset: Path) -> None:
    first, second = (
        FaceDataLoader(source, 10, num_workers=0, **options)
        for source, options in ((dataset, flip_options()), (FaceDataset(dataset, **flip_options()), {}))
    )
    assert all(torch.equal(batch[0], other_batch[0]) for batch, other_batch in zip(first, second, strict=True))


def flip_options() -> dict[str, Any]:
    return {"transform": A.Compose([A.VerticalFlip(p=0.5)]), "image_size": 16, "filters": [("label", "=", 1)]}


@pytest.mark.parametrize(
    "options", [{"split": "val"}, {"image_size": 99}, {"transform": crop_odd}, {"filters": [("label", "=", 1)]},
                {"frames_per_video": 3}],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_options_of_a_dataset_that_was_made_before_are_not_passed_over_in_silence(
    dataset: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        FaceDataLoader(FaceDataset(dataset), num_workers=0, **options)
