"""What a training loop notices of `fields`: a dict of columns that fit the images row by row, points included."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import albumentations as A  # noqa: N812 (as its own documentation writes it)
import numpy as np
import pytest
import torch
from assets_rows import SIDE, make_small, shown, stored_rows
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.schema import REGION_NAMES
from facefeed.pipeline.errors import UsageError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_small(tmp_path_factory.mktemp("loaders") / "out")


@pytest.fixture(scope="module")
def stored(dataset: Path) -> list[dict[str, Any]]:
    return stored_rows(dataset)


def loader_of(out: Path, *fields: str, **options: Any) -> FaceDataLoader:
    return FaceDataLoader(
        out, fields=("image", "row", *fields),
        **{"num_workers": 0, "image_size": SIDE, "batch_size": 10, **options}
    )  # fmt: skip


TEXTS = ["face_id", "video_id", "source_id", "identity", "dataset", "method", "compression", "split", "hull_method",
         "file"]  # fmt: skip
INTEGERS = ["label", "frame_index", "frame_width", "frame_height", "track_id", "height", "width", "image_crc32"]
FLOATS = ["pts_seconds", "score", "sharpness", "manipulated"]
BOXES = ["box_xyxy", "crop_xyxy"]


@pytest.mark.parametrize("name", TEXTS)
def test_strings_come_as_a_list_with_none_for_null(dataset: Path, stored: list[dict[str, Any]], name: str) -> None:
    for batch in loader_of(dataset, name):
        assert batch[name] == [stored[row][name] for row in batch["row"].tolist()]


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_numbers_come_as_int64(dataset: Path, stored: list[dict[str, Any]], name: str) -> None:
    for batch in loader_of(dataset, name):
        assert batch[name].dtype == torch.int64
        assert batch[name].tolist() == [stored[row][name] for row in batch["row"].tolist()]


@pytest.mark.parametrize("name", FLOATS)
def test_other_numbers_come_as_floats_with_nan_for_null(dataset: Path, stored: list[dict[str, Any]], name: str) -> None:
    for batch in loader_of(dataset, name):
        assert batch[name].is_floating_point()
        expected = [np.nan if stored[row][name] is None else stored[row][name] for row in batch["row"].tolist()]
        np.testing.assert_array_equal(batch[name].numpy(), np.array(expected, batch[name].numpy().dtype))


@pytest.mark.parametrize("name", BOXES)
def test_boxes_of_the_frame_come_as_they_are(dataset: Path, stored: list[dict[str, Any]], name: str) -> None:
    for batch in loader_of(dataset, name, image_size=100):
        assert batch[name].dtype == torch.float32
        assert batch[name].tolist() == [stored[row][name] for row in batch["row"].tolist()]


@pytest.mark.parametrize("image_size", [SIDE, 16, 100])
def test_points_are_those_of_the_resized_image(dataset: Path, stored: list[dict[str, Any]], image_size: int) -> None:
    scale = image_size / SIDE
    for batch in loader_of(dataset, "landmarks", "hull", "regions", image_size=image_size):
        rows = [stored[row] for row in batch["row"].tolist()]
        same_points(batch["landmarks"], [np.array(row["landmarks"]) * scale for row in rows])
        assert batch["landmarks"].shape == (len(rows), 5, 2)
        assert isinstance(batch["hull"], list)
        for hull, row in zip(batch["hull"], rows, strict=True):
            same_points([hull], [np.array(row["hull"]) * scale])
        assert set(batch["regions"]) == set(REGION_NAMES)
        for name, boxes in batch["regions"].items():
            assert boxes.shape == (len(rows), 4)
            same_points(boxes, [np.array(row["regions"][name]) * scale for row in rows])


def same_points(actual: Any, expected: Sequence[np.ndarray[Any, Any]]) -> None:
    for tensor, array in zip(actual, expected, strict=True):
        assert tensor.dtype == torch.float32
        np.testing.assert_allclose(tensor.numpy(), array, rtol=1e-5)


def test_points_follow_a_face_transform(dataset: Path) -> None:
    flip = [A.HorizontalFlip(p=1.0)]
    plain, flipped = (
        list(loader_of(dataset, "landmarks", "regions", face_transform=transform)) for transform in (None, flip)
    )
    for batch, flipped_batch in zip(plain, flipped, strict=True):
        assert torch.equal(flipped_batch["image"], batch["image"].flip(3))
        left_eye, right_eye = batch["landmarks"][:, 0], batch["landmarks"][:, 1]
        mirrored = torch.stack([SIDE - 1 - right_eye[:, 0], right_eye[:, 1]], 1)
        assert (flipped_batch["landmarks"][:, 0] - mirrored).abs().max() <= 1  # whichever way pixel centres are counted
        assert not torch.allclose(flipped_batch["landmarks"][:, 0], left_eye)


def test_columns_may_be_written_to_and_kept(dataset: Path) -> None:
    loader = loader_of(dataset, "landmarks", "score", "hull", "regions")
    first = [batch["landmarks"].clone() for batch in loader]
    loader.set_epoch(0)
    for batch in loader:
        for tensor in (batch["landmarks"], batch["score"], batch["hull"][0], batch["regions"]["mouth"], batch["row"]):
            tensor.zero_()
    loader.set_epoch(0)
    assert all(torch.equal(batch["landmarks"], landmarks) for batch, landmarks in zip(loader, first, strict=True))


def test_asking_for_columns_changes_no_image(dataset: Path) -> None:
    all_columns = [name for name in Index(dataset).schema.names if name != "row"]
    plain = FaceDataLoader(dataset, num_workers=0, image_size=20, batch_size=10)
    assert shown(loader_of(dataset, *all_columns, image_size=20)) == shown(plain)


def test_a_dict_holds_the_fields_that_were_asked_for_and_no_others(dataset: Path) -> None:
    loader = FaceDataLoader(dataset, num_workers=0, image_size=8, fields=("label", "image", "method"))
    assert all(set(batch) == {"label", "image", "method"} for batch in loader)
    assert set(next(iter(FaceDataLoader(dataset, num_workers=0, image_size=8, fields=["image"])))) == {"image"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("image", "nonsense"), "fields: 'nonsense' is no column; there are image, row, mask, face_id, video_id"),
        (
            ("image", "dataset_index"),
            "'dataset_index' is no column, but a field of several datasets",
        ),
        (("label",), "fields: must name 'image'; for columns alone read OUT/faces with pyarrow"),
        ((), "fields: must name 'image'"),
        ("image", "fields"),
    ],
)
def test_fields_that_are_none_are_refused(dataset: Path, fields: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataLoader(dataset, num_workers=0, fields=fields)


def test_info_tells_all_of_one_face(dataset: Path, stored: list[dict[str, Any]]) -> None:
    faces = FaceDataset(dataset, split="val")
    for position in (0, len(faces) - 1, -1):
        info, row = faces.info(position), stored[int(faces.rows[position])]
        assert info == {**{name: row[name] for name in info if name in row}, **{
            name: info[name] for name in ("image_offset", "image_bytes", "mask_offset", "mask_bytes")}}  # fmt: skip
        assert info["image_bytes"] == len(row["image"])
        assert info["mask_bytes"] == len(row["mask"] or b"")


def test_a_face_has_its_stored_pixels_and_points(dataset: Path, stored: list[dict[str, Any]]) -> None:
    faces = FaceDataset(dataset, image_size=100)
    face, row = faces.face(3), stored[int(faces.rows[3])]
    assert face.image.shape == (SIDE, SIDE, 3)
    np.testing.assert_allclose(face.landmarks, row["landmarks"])
    np.testing.assert_allclose(face.regions["nose"], row["regions"]["nose"])
    assert repr(face).startswith("Face(image=(32, 32, 3), hull=(")
    assert len(repr(face)) < 200
