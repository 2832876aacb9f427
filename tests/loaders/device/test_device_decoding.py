"""What a training run notices of `decode="device"`: the same faces in the same order, and nearly the same pixels."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from assets_dataset import copy_dataset
from assets_device import Jitter, OwnCuts, Unreadable, default_dtype, of_epochs
from assets_loaders import loader, seen
from assets_rows import damage, make_small, rows_seen, stored_rows
from facefeed.loaders import Clip, FaceDataLoader, FaceDataset
from facefeed.loaders.device.jpegs import decode_by_torchvision, decode_jpegs
from facefeed.loaders.device.resize import cut_all
from facefeed.pipeline.dataset.image_codec import ImageEncoder
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.errors import CorruptDataError, UsageError

FIELDS = ("image", "label", "face_id", "row", "landmarks", "regions", "hull", "mask")
CPU = torch.device("cpu")
STORED_SIDE = 32


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


def both(out: Path, **options: Any) -> tuple[list[Any], list[Any]]:
    """The batches of an epoch, decoded on the device and in workers."""
    options = {"num_workers": 0, "dtype": "uint8", "fields": FIELDS, **options}
    return list(loader(out, decode="device", **options)), list(loader(out, **options))


def stored_jpegs(out: Path, count: int = 8) -> list[torch.Tensor]:
    images = StoredImages(FaceDataset(out).index)
    return [torch.tensor(list(images.image(row)), dtype=torch.uint8) for row in range(count)]


# Grey levels by which images of noise may differ, on average and at most; photos differ by a quarter of it.
@pytest.mark.parametrize(("side", "mean", "most"), [(STORED_SIDE, 0, 0), (24, 0.3, 1), (40, 0.3, 1), (12, 8, 60)])
def test_images_are_those_of_the_workers_decoder_but_for_rounding(
    dataset: Path, side: int, mean: float, most: int
) -> None:
    batches, expected = both(dataset, image_size=side)
    assert len(batches) == len(expected) == 4
    for batch, other in zip(batches, expected, strict=True):
        assert (batch["image"].shape, batch["image"].dtype) == ((len(batch["label"]), 3, side, side), torch.uint8)
        apart = (batch["image"].float() - other["image"].float()).abs()
        assert float(apart.mean()) <= mean
        assert float(apart.max()) <= most


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crops wide enough for the crop protocols."""
    return make_small(tmp_path_factory.mktemp("wide") / "out", margin=0.8, size_px=64)


@pytest.mark.parametrize(
    ("crop", "side", "mean", "most"),
    [("deepfakebench", 48, 0.4, 2), ("ffpp", 40, 0.4, 2), ({"margin": 0.2, "size": 64, "align": "arcface"}, 64, 0.4, 2),
     ({"margin": 0.4, "size": 9}, 9, 12, 90)],
    ids=["deepfakebench", "ffpp", "arcface", "small"],
)  # fmt: skip
def test_crop_protocols_are_cut_on_the_device_as_workers_cut_them(
    wide: Path, crop: Any, side: int, mean: float, most: int
) -> None:
    fields = ("image", "face_id", "landmarks")
    for batch, other in zip(*both(wide, crop=crop, image_size=side, fields=fields), strict=True):
        assert batch["face_id"] == other["face_id"]
        assert torch.equal(batch["landmarks"], other["landmarks"])
        apart = (batch["image"].float() - other["image"].float()).abs()
        assert float(apart.mean()) <= mean
        assert float(apart.max()) <= most


def test_a_face_has_the_same_crop_to_the_bit_in_every_batch(wide: Path) -> None:
    options: dict[str, Any] = {"crop": "deepfakebench", "image_size": 48, "decode": "device"}
    (whole,) = of_epochs(wide, Jitter(), **options)
    assert of_epochs(wide, Jitter(), batch_size=5, **options) == [whole]


def test_a_replaced_image_is_cut_as_its_own_face_is(wide: Path, tmp_path: Path) -> None:
    out = copy_dataset(wide, tmp_path / "out")
    damage(out, 3, 50)
    faces = FaceDataset(out, crop="ffpp", image_size=40)
    faces._crop_mappings = OwnCuts()
    options: dict[str, Any] = {"num_workers": 0, "dtype": "uint8", "fields": ("image", "row")}
    jpegs = FaceDataLoader(faces, decode="device", **options)
    for batch, other in zip(jpegs, FaceDataLoader(faces, **options), strict=True):
        assert torch.equal(batch["row"], other["row"])
        assert float((batch["image"].float() - other["image"].float()).abs().max()) <= 2


def test_what_lies_beyond_a_stored_crop_is_black() -> None:
    crops = torch.full((2, 3, 10, 10), 200, dtype=torch.uint8)
    to_images = np.array([[[1.0, 0, 5], [0, 1, 0]], [[1, 0, -5], [0, 1, 0]]])  # moved right, moved left
    right, left = cut_all(list(crops), to_images, 10)[..., 0]
    assert right[:, 5:].eq(200).all()
    assert right[:, :5].eq(0).all()
    assert left[:, :5].eq(200).all()
    assert left[:, 5:].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_a_default_dtype_of_the_training_script_moves_no_cut(dtype: torch.dtype) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 300, 300), np.uint8)
    crops = list(torch.from_numpy(pixels))
    to_images = np.array([[[0.9, 0.1, 5], [-0.1, 0.9, 9]], [[1, 0, -5], [0, 1, 3]]])
    expected = cut_all(crops, to_images, 299)
    with default_dtype(dtype):
        assert torch.equal(cut_all(crops, to_images, 299), expected)


def test_labels_points_and_masks_are_those_of_the_resized_images(dataset: Path) -> None:
    for batch, other in zip(*both(dataset, image_size=24), strict=True):
        assert batch["face_id"] == other["face_id"]
        for name in ("label", "row", "landmarks"):
            assert torch.equal(batch[name], other[name])
        assert all(torch.equal(hull, expected) for hull, expected in zip(batch["hull"], other["hull"], strict=True))
        assert all(torch.equal(batch["regions"][name], other["regions"][name]) for name in other["regions"])
        torch.testing.assert_close(batch["mask"], other["mask"], rtol=0, atol=0, equal_nan=True)


def test_float32_is_normalised_as_ever(dataset: Path) -> None:
    for (images, labels), (expected, expected_labels) in zip(
        *both(dataset, dtype="float32", fields=None, image_size=STORED_SIDE), strict=True
    ):
        assert images.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(images, expected, rtol=0, atol=1e-6)
        assert torch.equal(labels, expected_labels)


def test_order_and_resume_are_the_same_with_workers_and_without(dataset: Path) -> None:
    whole = seen(loader(dataset, num_workers=0, batch_size=20))
    jpegs = loader(dataset, num_workers=2, batch_size=20, decode="device")
    assert [[face for face, _ in batch] for batch in seen(jpegs)] == [[face for face, _ in batch] for batch in whole]
    assert jpegs.stats().images == 107
    begun = loader(dataset, num_workers=0, batch_size=20, decode="device")
    steps = iter(begun)
    first = [next(steps), next(steps)]
    resumed = loader(dataset, num_workers=0, batch_size=20, decode="device")
    resumed.load_state_dict(begun.state_dict())
    assert rows_of(first) + rows_of(resumed) == [face for batch in whole for face, _ in batch]


def rows_of(batches: Any) -> list[str]:
    return [face for batch in batches for face in batch["face_id"]]


def test_ranks_share_the_rows_as_ever(dataset: Path) -> None:
    for rank in (0, 1):
        options: dict[str, Any] = {"rank": rank, "num_replicas": 2, "fields": ("image", "row")}
        jpegs, decoded = both(dataset, **options)
        assert rows_seen(jpegs) == rows_seen(decoded)


def test_a_device_transform_gets_the_decoded_images(dataset: Path) -> None:
    (decoded,) = of_epochs(dataset, Jitter())
    assert of_epochs(dataset, Jitter(), decode="device") == [decoded]


def test_batches_in_flight_take_the_memory_of_their_jpegs(dataset: Path) -> None:
    largest = max(len(row["image"]) for row in stored_rows(dataset) if row["split"] == "train")
    options: dict[str, Any] = {"image_size": 224, "num_workers": 2, "batch_size": 10}
    batches = loader(dataset, decode="device", **options)
    decoded = loader(dataset, **options)
    assert batches.describe().shared_bytes == (2 * 2 + 3) * 10 * largest
    assert decoded.describe().shared_bytes == (2 * 2 + 3) * 10 * 224 * 224 * 3 * 4
    kept = list(batches) + list(batches)
    assert sorted(rows_of(kept)) == sorted(2 * rows_of(loader(dataset, num_workers=0)))
    pool = batches._batch_dataset.pool
    assert pool is not None
    assert len(pool._free) == 7 - 2 * 2, "kept batches use none of it, those of the next epoch two a worker"


# ---- damage


def test_a_damaged_image_is_replaced_by_the_same_one_and_counted(dataset: Path, tmp_path: Path) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    damage(out, 3, 4, 50)
    options: dict[str, Any] = {"num_workers": 0, "fields": ("image", "row")}
    jpegs, decoded = loader(out, decode="device", **options), loader(out, **options)
    assert rows_seen(jpegs) == rows_seen(decoded)
    assert jpegs.stats().corrupt == 3
    assert jpegs.stats().replaced == decoded.stats().replaced
    with pytest.raises(CorruptDataError, match="is not the one that was written"):
        list(loader(out, decode="device", on_corrupt="raise", **options))


def with_unreadable(out: Path, *rows: int) -> FaceDataset:
    """A dataset with images of these rows that pass their checksum and cannot be decoded."""
    dataset = FaceDataset(out, image_size=STORED_SIDE)
    dataset._read_image = Unreadable(dataset._read_image, rows)
    return dataset


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_image_that_only_the_decoder_finds_damaged_is_replaced_by_the_same_one_and_counted(
    dataset: Path, tmp_path: Path, num_workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    damage(out, 3)  # whose replacement would be row 4
    options: dict[str, Any] = {"fields": FIELDS, "dtype": "uint8", "batch_size": 30}
    jpegs = FaceDataLoader(with_unreadable(out, 4, 50), decode="device", num_workers=num_workers, **options)
    decoded = FaceDataLoader(with_unreadable(out, 4, 50), num_workers=0, **options)
    for batch, expected in zip(jpegs, decoded, strict=True):
        assert batch["face_id"] == expected["face_id"]
        assert torch.equal(batch["image"], expected["image"])
        assert torch.equal(batch["landmarks"], expected["landmarks"])
    assert jpegs.stats().corrupt == decoded.stats().corrupt == 3
    assert set(jpegs.stats().replaced) == set(decoded.stats().replaced)
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(messages) == 2
    assert all("3 damaged images were replaced" in message for message in messages)


def test_with_raise_the_decoders_error_ends_the_run(dataset: Path) -> None:
    batches = FaceDataLoader(with_unreadable(dataset, 50), decode="device", num_workers=0, on_corrupt="raise")
    with pytest.raises(CorruptDataError, match="cannot be decoded"):
        list(batches)


def test_a_device_that_cannot_decode_what_the_cpu_can_ends_the_run(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(jpegs: list[torch.Tensor], *_: Any) -> None:
        raise CorruptDataError(f"a batch of {len(jpegs)} JPEGs cannot be decoded on cuda: unknown subsampling")

    monkeypatch.setattr("facefeed.loaders.transfer.jpeg_decoder.decode_jpegs", fail)
    batches = loader(dataset, decode="device", num_workers=0)
    with pytest.raises(UsageError, match="unknown subsampling; the CPU can decode it: take decode='workers'"):
        list(batches)
    assert batches.stats().corrupt == 0


def test_of_clips_too_the_images_and_replacements_are_the_same(dataset: Path, tmp_path: Path) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    damage(out, *range(0, 60, 5))  # so many that every clip drawn has one
    options: dict[str, Any] = {
        "clip": Clip(frames=6, pad=True), "batch_size": 2, "fields": ("image", "row", "valid"), "dtype": "uint8",
        "num_workers": 0,
    }  # fmt: skip
    jpegs = FaceDataLoader(with_unreadable(out, 60), decode="device", **options)
    decoded = FaceDataLoader(with_unreadable(out, 60), **options)
    for batch, expected in zip(jpegs, decoded, strict=True):
        for name in ("row", "valid", "image"):
            assert torch.equal(batch[name], expected[name])
    assert jpegs.stats().corrupt == decoded.stats().corrupt > 0


@pytest.mark.gpu
def test_on_cuda_nvjpeg_decodes_and_what_it_cannot_is_replaced(dataset: Path) -> None:
    options: dict[str, Any] = {"num_workers": 0, "fields": ("image", "row"), "dtype": "uint8", "decode": "device"}
    jpegs = FaceDataLoader(with_unreadable(dataset, 4, 50), device="cuda", **options)
    expected = FaceDataLoader(with_unreadable(dataset, 4, 50), **options)
    for batch, other in zip(jpegs, expected, strict=True):
        assert batch["image"].device.type == "cuda"
        assert torch.equal(batch["row"].cpu(), other["row"])
        assert float((batch["image"].cpu().float() - other["image"].float()).abs().mean()) <= 10  # of noise
    assert jpegs.stats().replaced == expected.stats().replaced


# ---- the decoder itself


def test_torchvision_decodes_a_list_to_the_same_pixels_within_a_level(dataset: Path) -> None:
    jpegs = stored_jpegs(dataset)
    images = decode_by_torchvision(jpegs, CPU)
    expected = decode_jpegs(jpegs, CPU, STORED_SIDE).movedim(-1, 1)
    assert [tuple(image.shape) for image in images] == [(3, STORED_SIDE, STORED_SIDE)] * 8
    assert int((torch.stack(images).int() - expected.int()).abs().max()) <= 1


def test_what_torchvision_cannot_decode_is_damage(dataset: Path) -> None:
    jpegs = stored_jpegs(dataset)
    jpegs[3] = torch.cat([jpegs[3][:2], torch.zeros(100, dtype=torch.uint8)])
    with pytest.raises(CorruptDataError, match="a batch of 8 JPEGs cannot be decoded on cpu"):
        decode_by_torchvision(jpegs, CPU)


def test_images_of_several_sizes_come_in_their_order() -> None:
    sizes, jpegs, expected = [(40, 40), (20, 30), (40, 40), (16, 16)], [], []
    for number, (height, width) in enumerate(sizes):
        image = np.full((height, width, 3), 60 * number, np.uint8)
        jpegs.append(torch.from_numpy(cv2.imencode(".jpg", image)[1].ravel()))
        expected.append(60 * number)
    images = decode_jpegs(jpegs, CPU, 16)
    assert images.shape == (4, 16, 16, 3)
    assert [round(float(image.float().mean())) for image in images] == expected


# ---- mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": "gpu"}, "decode='gpu': must be 'workers' or 'device'"),
        ({"transform": lambda image: {"image": image}}, "so transform cannot hold; give device_transform"),
        (
            {"face_transform": [], "transform": lambda image: {"image": image}},
            "face_transform and transform cannot hold",
        ),
        ({"collate_fn": list, "fields": None}, "so collate_fn cannot hold"),
        ({"pin_memory": True}, "pin_memory cannot hold"),
    ],
    ids=["decode", "transform", "both", "collate_fn", "pin_memory"],
)
def test_what_needs_pixels_in_a_worker_is_refused(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        loader(dataset, **{"decode": "device", "image_size": STORED_SIDE, **options})


def test_crops_that_are_no_jpegs_are_refused_before_any_worker_starts(tmp_path: Path) -> None:
    out = make_small(tmp_path / "out", image=ImageEncoder(format="png"))
    with pytest.raises(UsageError, match="are png, not JPEG; take decode='workers'"):
        loader(out, decode="device")
