"""What a training loop notices of `FaceDataset`: pixels, labels, refusals, damage, and nothing that stays open."""

from __future__ import annotations

import gc
import io
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from albumentations.pytorch import ToTensorV2
from assets_dataset import LABELS, NO_ROWS, ROWS, TEST, VAL, Clip, copy_dataset, make_dataset
from assets_rows import damage
from facefeed.loaders import FaceDataset
from facefeed.loaders.augment import BlockMask, FaceCutout, LandmarkBlackout
from facefeed.loaders.face import Face
from facefeed.pipeline.dataset.byte_ranges import ByteRangeReader, Storage
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.schema import SPLITS
from facefeed.pipeline.dataset.stored_images import StoredImages
from facefeed.pipeline.errors import CorruptDataError, UsageError
from numpy.typing import NDArray
from PIL import Image
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, WeightedRandomSampler

SIDE = 32
MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("loaders") / "out"
    make_dataset(out)
    return out


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return copy_dataset(dataset, tmp_path / "out")


def rows_of(out: Path, split: str) -> list[dict[str, Any]]:
    """The rows below one split's folder, as any Parquet reader sees them, in the files' order."""
    files = sorted((out / "faces" / split).glob("*.parquet"))
    return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


def pixels(image: torch.Tensor) -> np.ndarray[Any, Any]:
    """What the loader hands out, undone: uint8 (H, W, 3)."""
    return ((image * STD + MEAN) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()


@pytest.mark.parametrize("split", SPLITS)
def test_it_holds_every_face_of_its_split_with_its_label(dataset: Path, split: str) -> None:
    faces = FaceDataset(dataset, split=split, image_size=SIDE)
    assert len(faces) == ROWS[split]
    assert faces.labels == LABELS
    assert [faces[position][1] for position in range(len(faces))] == [row["label"] for row in rows_of(dataset, split)]


def test_an_item_is_a_normalised_float_tensor_and_an_int(dataset: Path) -> None:
    image, label = FaceDataset(dataset, image_size=24)[0]
    assert (image.dtype, image.shape) == (torch.float32, (3, 24, 24))
    assert image.permute(1, 2, 0).is_contiguous()  # channels last, as batches have them
    assert type(label) is int
    assert FaceDataset(dataset)[0][0].shape == (3, 224, 224)


def test_at_the_stored_size_the_pixels_are_those_of_the_stored_crop(dataset: Path) -> None:
    faces = FaceDataset(dataset, split="test", image_size=SIDE)
    for position, row in enumerate(rows_of(dataset, "test")):
        with Image.open(io.BytesIO(row["image"])) as stored:
            expected = np.asarray(stored.convert("RGB"))
        assert expected.shape == (SIDE, SIDE, 3)
        assert (pixels(faces[position][0]) == expected).all()
        assert (faces.load_pixels(int(faces.rows[position])) == expected).all()


def test_it_is_normalised_by_the_statistics_of_imagenet(dataset: Path) -> None:
    black = FaceDataset(dataset, image_size=8, transform=lambda image: {"image": np.zeros_like(image)})[0][0]
    white = FaceDataset(dataset, image_size=8, transform=lambda image: {"image": np.full_like(image, 255)})[0][0]
    torch.testing.assert_close(black, (-MEAN / STD).expand(3, 8, 8))
    torch.testing.assert_close(white, ((1 - MEAN) / STD).expand(3, 8, 8))


def test_positions_are_those_of_a_list_and_any_other_says_what_to_do(dataset: Path) -> None:
    faces = FaceDataset(dataset, image_size=8)
    last = len(faces) - 1
    assert (faces[-1][0] == faces[last][0]).all()
    for wrong in (slice(0, 3), "x", None, 1.5, [1, 2]):
        for call in (faces.__getitem__, faces.info, faces.face, lambda position: faces.__getitems__([position])):
            with pytest.raises(
                TypeError, match=r"position .*: must be a whole number; for several faces take .*Subset"
            ):
                call(wrong)
    for outside in (last + 1, -last - 2):
        with pytest.raises(IndexError, match=rf"position {outside}: there are \d+ faces, 0 to {last}"):
            faces[outside]


def test_a_resized_crop_shows_the_same_face(dataset: Path) -> None:
    stored = FaceDataset(dataset, image_size=SIDE)[5][0]
    for side in (16, 100):
        resized = FaceDataset(dataset, image_size=side)[5][0]
        downscaled = torch.nn.functional.interpolate(resized[None], size=(16, 16), mode="area")[0]
        expected = torch.nn.functional.interpolate(stored[None], size=(16, 16), mode="area")[0]
        assert (downscaled - expected).abs().mean() < 0.1


def test_an_albumentations_pipeline_is_a_transform(dataset: Path) -> None:
    flip = A.Compose([A.HorizontalFlip(p=1.0), A.CenterCrop(20, 20)])
    plain, flipped = FaceDataset(dataset, image_size=SIDE), FaceDataset(dataset, image_size=SIDE, transform=flip)
    for position in (0, 200, len(plain) - 1):
        assert (flipped[position][0] == plain[position][0][:, 6:26, 6:26].flip(2)).all()


@pytest.mark.parametrize(
    "transform",
    [
        A.Compose([A.Normalize()]),
        A.Compose([ToTensorV2()]),
        A.Compose([A.Normalize(), ToTensorV2()]),
    ],
    ids=["floats", "tensor", "float tensor"],
)
def test_a_transform_that_returns_no_rgb_bytes_is_refused_with_what_to_do(dataset: Path, transform: Any) -> None:
    with pytest.raises(
        UsageError, match=r"transform returned .*must be a uint8 array.*leave Normalize and ToTensor out"
    ):
        FaceDataset(dataset, transform=transform)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "holdout"}, "split='holdout': must be one of train, val, test"),
        ({"image_size": 0}, "image_size=0: must be at least 1"),
        ({"image_size": None}, "image_size=None: needs a transform"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataset(dataset, **options)


def test_a_folder_without_a_finished_dataset_is_refused(tmp_path: Path, copy: Path) -> None:
    with pytest.raises(UsageError, match="no finished dataset"):
        FaceDataset(tmp_path)
    (copy / "index.arrow").unlink()
    with pytest.raises(UsageError, match=r"facefeed verify .* --rebuild-index"):
        FaceDataset(copy)


def test_an_index_of_another_state_is_refused(copy: Path, tmp_path: Path) -> None:
    make_dataset(tmp_path / "other", (("train", TEST),))
    (copy / "index.arrow").write_bytes((tmp_path / "other" / "index.arrow").read_bytes())
    with pytest.raises(CorruptDataError, match="index and manifest are of two states"):
        FaceDataset(copy)


def damage_third(out: Path, split: str) -> str:
    """Damages the third image of a split; returns its file."""
    index = Index(out)
    row = int(index.rows_where("split", split)[2])
    damage(out, row)
    return str(index.value("file", row))


def test_a_damaged_image_is_an_error_that_names_its_file_and_no_other_sample(copy: Path) -> None:
    name = damage_third(copy, "val")
    faces = FaceDataset(copy, split="val", image_size=SIDE)
    with pytest.raises(CorruptDataError, match=rf"{name}: the image at byte \d+.*facefeed verify"):
        faces[2]
    for sound in (0, 1, 3, len(faces) - 1):
        assert faces[sound][0].shape == (3, SIDE, SIDE)


def test_a_damaged_image_ends_an_epoch_with_the_same_error_also_out_of_a_worker(copy: Path) -> None:
    name = damage_third(copy, "val")
    faces = FaceDataset(copy, split="val", image_size=SIDE)
    with pytest.raises(CorruptDataError, match=name) as error:
        list(DataLoader(faces, batch_size=4))
    pickled = pickle.dumps(ExceptionWrapper(error._excinfo))  # as torch's workers do
    with pytest.raises(CorruptDataError, match=name):
        pickle.loads(pickled).reraise()


def unchanged(mask: Any, **_: Any) -> Any:
    return mask


class Seen:
    """A `face_transform` that changes nothing and keeps the masks that it was given."""

    def __init__(self) -> None:
        self.masks: list[NDArray[np.uint8] | None] = []

    def __call__(
        self, *, image: Any, landmarks: Any, hull: Any, regions: Any, mask: Any, partner: Any
    ) -> dict[str, Any]:
        self.masks.append(mask)
        return {"image": image, "landmarks": landmarks, "hull": hull, "regions": regions, "mask": mask}


@pytest.mark.parametrize("size", [SIDE, 2 * SIDE])
def test_a_face_transform_may_change_the_arrays_that_it_is_given(dataset: Path, size: int) -> None:
    def flip_in_place(*, image: Any, partner: Any, **points: Any) -> dict[str, Any]:
        width = image.shape[1]
        image[:] = image[:, ::-1].copy()
        for name in ("landmarks", "hull"):
            points[name][:, 0] = width - points[name][:, 0]
        for box in points["regions"].values():
            box[[0, 2]] = width - box[[2, 0]]
        return {"image": image, **points}

    plain = FaceDataset(dataset, image_size=size)
    flipped = FaceDataset(dataset, image_size=size, face_transform=flip_in_place)
    for _ in range(2):  # the index itself is as before
        for row in (0, 1):
            before, after = plain.load_augmented(row), flipped.load_augmented(row)
            assert (after.image == before.image[:, ::-1]).all()
            for points, mirrored in ((before.landmarks, after.landmarks), (before.hull, after.hull)):
                np.testing.assert_allclose(mirrored[:, 0], before.image.shape[1] - points[:, 0], rtol=1e-6)


@pytest.mark.parametrize("size", [SIDE, 2 * SIDE, SIDE // 2])
def test_a_face_transform_is_given_the_mask_of_a_fake_and_none_of_a_real_face(dataset: Path, size: int) -> None:
    recorder = Seen()
    faces = FaceDataset(dataset, split="val", image_size=size, face_transform=recorder)
    for position in range(len(faces)):
        _ = faces[position]
    rows = rows_of(dataset, "val")
    assert any(row["mask"] for row in rows)
    for row, mask in zip(rows, recorder.masks, strict=True):
        assert (row["mask"] is None) == (mask is None) == (row["label"] == 0)
        if mask is not None:
            assert (mask.shape, mask.dtype, set(np.unique(mask)) <= {0, 1}) == ((size, size), np.uint8, True)
            assert mask.mean() == pytest.approx(row["manipulated"], abs=0.05)
            if size == SIDE:
                with Image.open(io.BytesIO(row["mask"])) as stored:
                    assert (mask == np.asarray(stored)).all()
                assert (faces.face(rows.index(row)).mask == mask).all()


@pytest.mark.parametrize("stored_px", [24, 40, 48, 75])
def test_a_mask_that_is_resized_stays_on_what_its_image_shows(stored_px: int) -> None:
    distances = []
    for seed in range(20):
        centre = np.random.default_rng(seed).uniform(0.35, 0.65, 2) * stored_px
        y, x = np.mgrid[:stored_px, :stored_px] + 0.5
        disc = ((x - centre[0]) ** 2 + (y - centre[1]) ** 2 < (0.25 * stored_px) ** 2).astype(np.uint8)
        image = np.repeat(255 * disc[..., np.newaxis], 3, axis=2)
        face = replace(Face.from_image(image), mask=disc).resized(32)
        assert face.mask is not None
        assert set(np.unique(face.mask)) == {0, 1}
        distances.append(centre_of(face.mask) - centre_of(face.image[..., 0]))
    assert np.abs(np.mean(distances, axis=0)).max() < 0.1  # px


def centre_of(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]]
    return np.array([np.average(x, weights=pixels), np.average(y, weights=pixels)])


@pytest.mark.parametrize(
    ("face_transform", "masks"),
    [
        (None, False),
        ([A.HorizontalFlip(), A.OneOf([A.Affine(), LandmarkBlackout()])], False),
        ([A.HorizontalFlip(), A.OneOf([A.Affine(), FaceCutout()])], True),
        ([BlockMask()], True),
        ([A.Lambda(mask=unchanged)], True),
        ([A.ConstrainedCoarseDropout(mask_indices=[1], p=0)], True),
        ([A.ConstrainedCoarseDropout(bbox_labels=[1], p=0)], False),
        ([A.OneOf([A.CropNonEmptyMaskIfExists(SIDE, SIDE)], p=0)], True),
        ([A.MaskDropout(p=0)], True),
        (Seen(), True),
    ],
)
def test_masks_are_read_only_where_something_may_look_at_them(dataset: Path, face_transform: Any, masks: bool) -> None:
    reads: list[bytes] = []

    def count_reads(name: str, stage: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            output = stage(*args, **kwargs)
            reads.append(output) if name == "read" and output is not None else None
            return output

        return call

    unwrapped = FaceDataset(dataset, split="val", image_size=SIDE, face_transform=face_transform)
    faces = unwrapped.with_wrapped_stages(count_reads)
    for position in range(len(faces)):
        _ = faces[position]
    fakes = sum(row["mask"] is not None for row in rows_of(dataset, "val"))
    assert len(reads) == len(faces) + fakes * masks


def test_a_damaged_mask_is_an_error_as_a_damaged_image_is(copy: Path) -> None:
    index = Index(copy)
    row = next(row for row in index.rows_where("split", "val").tolist() if index.value("mask_bytes", row))
    path = copy / index.value("file", row)
    content = bytearray(path.read_bytes())
    content[index.value("mask_offset", row) + index.value("mask_bytes", row) // 2] ^= 0x10
    path.write_bytes(content)
    faces = FaceDataset(copy, split="val", face_transform=Seen())
    position = faces.rows.tolist().index(row)
    with pytest.raises(CorruptDataError, match=r"the mask at byte \d+ is not the one that was written"):
        _ = faces[position]
    _ = FaceDataset(copy, split="val")[position]


def test_a_file_that_went_away_or_was_cut_is_an_error_that_names_it(copy: Path) -> None:
    faces = FaceDataset(copy, split="test", image_size=SIDE)
    (path,) = (copy / "faces" / "test").iterdir()
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(CorruptDataError, match=path.name):
        faces[len(faces) - 1]
    path.unlink()
    with pytest.raises(CorruptDataError, match=rf"{path.name}: No such file"):
        FaceDataset(copy, split="test", image_size=SIDE)[0]


def test_a_file_that_a_newer_state_has_superseded_is_no_damage(copy: Path, tmp_path: Path) -> None:
    faces = FaceDataset(copy, split="test", image_size=SIDE)
    make_dataset(tmp_path / "newer", (("test", VAL),))
    shutil.rmtree(copy)
    (tmp_path / "newer").rename(copy)
    with pytest.raises(CorruptDataError, match="has changed since it was opened; open it again"):
        faces[0]


def test_an_empty_split_has_no_faces(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", TEST), ("val", NO_ROWS)))
    for split in ("val", "test"):
        faces = FaceDataset(tmp_path / "out", split=split)
        assert len(faces) == 0
        assert list(DataLoader(faces, batch_size=4)) == []


def test_positions_beyond_the_end_are_an_index_error_and_negative_ones_count_from_it(dataset: Path) -> None:
    faces = FaceDataset(dataset, split="val", image_size=SIDE)
    with pytest.raises(IndexError):
        faces[len(faces)]
    assert (faces[-1][0] == faces[len(faces) - 1][0]).all()


def test_torchs_own_loader_takes_it_with_any_sampler(dataset: Path) -> None:
    faces = FaceDataset(dataset, image_size=SIDE)
    weights = [float(row["label"] == 1) for row in rows_of(dataset, "train")]
    sampler = WeightedRandomSampler(weights, 40, generator=torch.Generator().manual_seed(0))
    batches = list(DataLoader(faces, batch_size=16, sampler=sampler))
    assert [tuple(images.shape) for images, _ in batches] == [(16, 3, SIDE, SIDE)] * 2 + [(8, 3, SIDE, SIDE)]
    assert {label for _, labels in batches for label in labels.tolist()} == {1}


def test_a_pickled_dataset_gives_the_same_items(dataset: Path) -> None:
    faces = FaceDataset(dataset, split="val", image_size=SIDE, transform=A.Compose([A.Transpose(p=1.0)]))
    faces[0]  # so that a descriptor is open, which must not be pickled
    reloaded: FaceDataset = pickle.loads(pickle.dumps(faces))
    assert len(reloaded) == len(faces)
    assert (reloaded[7][0] == faces[7][0]).all()
    few = FaceDataset(dataset, split="val", filters=[("frame_index", "<", 1)])
    many = FaceDataset(dataset, split="val", filters=[("frame_index", "<", 9)])
    assert len(few) < len(many)
    assert len(pickle.dumps(few)) == len(pickle.dumps(many)), "its settings, not its rows"


@pytest.fixture
def many_files(tmp_path: Path) -> Iterator[Path]:
    units = tuple(("train", (Clip(f"real/{number}.mp4", 1),)) for number in range(20))
    make_dataset(tmp_path / "many", units)
    yield tmp_path / "many"
    gc.collect()


def open_below(out: Path) -> int:
    """How many descriptors this process holds on files of OUT/faces."""
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return sum(str(link.readlink()).startswith(f"{out}/faces/") for link in links)


class RoomForSix(Storage):
    def max_open_files(self) -> int:
        return 6


def test_descriptors_are_few_while_it_lives_and_gone_afterwards(many_files: Path) -> None:
    faces = FaceDataset(many_files, image_size=SIDE)
    faces._read_image = StoredImages(faces.index, ByteRangeReader(faces.out, RoomForSix())).image
    first = [faces[position][0] for position in range(20)]
    assert open_below(many_files) == 6
    repeated = [faces[position][0] for position in [*range(19, -1, -1), *range(0, 20, 3)]]
    assert all((a == b).all() for a, b in zip(first[::-1], repeated, strict=False))
    assert open_below(many_files) == 6
    del faces
    gc.collect()
    assert open_below(many_files) == 0
