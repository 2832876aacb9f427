"""What a user of a mixture notices of names: labels and classes that mean the same, columns, folders, clear errors."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from assets_clips import write_clip
from assets_columns import Returning
from assets_dataset import Clip, DenseStandIn, make_dataset
from assets_in_process import in_process
from assets_mixtures import make_one
from assets_rows import make_of_schema
from facefeed.loaders import FaceDataLoader, Quotas
from facefeed.loaders.augment import MouthCrop, SelfBlend
from facefeed.loaders.mixture.mixed_index import MixedIndex
from facefeed.loaders.mixture.names import merged_labels
from facefeed.loaders.workers.readahead import byte_runs
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.video import Sampling

FIELDS = ("image", "label", "dataset_index", "video_id", "method")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """plain: real is 0; swapped: real is 1; numbers: labels are called 0 and 1; dense: has landmarks_68."""
    folder = tmp_path_factory.mktemp("names")
    make_one(folder / "plain", 12)
    make_one(folder / "swapped", 9, labels=("fake", "real"))
    make_one(folder / "numbers", 6, labels=("0", "1"))
    make_one(folder / "dense", 6, landmarker=DenseStandIn())
    make_one(folder / "whole", 6, columns={"quality": "int"})
    make_one(folder / "shares", 6, columns={"quality": "float"})
    make_one(folder / "wide", 6, margin=0.9)
    return folder


def loader_of(folder: Path, *names: str, **options: Any) -> FaceDataLoader:
    settings = {"batch_size": 7, "num_workers": 0, "image_size": 8, "fields": FIELDS}
    return FaceDataLoader([folder / name for name in names], **{**settings, **options})  # type: ignore[arg-type]


def labels_by_dataset(loader: FaceDataLoader) -> dict[tuple[int, str], set[str]]:
    """The names of the labels that the faces in the folders real/ and fake/ of each dataset came with."""
    seen: dict[tuple[int, str], set[str]] = {}
    names = loader.dataset.labels
    for batch in loader:
        for dataset, video, label in zip(
            batch["dataset_index"].tolist(), batch["video_id"], batch["label"], strict=True
        ):
            seen.setdefault((dataset, video.split("/")[0]), set()).add(names[label])
    return seen


@pytest.mark.parametrize("real", ["original", "Pristine"])
def test_the_real_class_is_0_and_fake_1_whatever_the_real_one_is_called(real: str, tmp_path: Path) -> None:
    for name, labels in (("one", (real, "fake")), ("other", ("fake", real))):
        make_dataset(tmp_path / name, (("train", (Clip("real/a.mp4", 2), Clip("fake/b.mp4", 2))),), labels=labels)
    for names in (["one"], ["one", "other"], ["other"]):
        assert loader_of(tmp_path, *names).dataset.labels == (real, "fake")
    assert merged_labels({"a": ("fake", "swap")}) == ("fake", "swap"), "no class is the real one"


@pytest.mark.parametrize(("real", "is_continued"), [("real", True), ("Real", True), ("original", False)])
def test_a_state_from_when_fake_could_come_first_is_continued_only_where_the_order_is_the_same(
    real: str, is_continued: bool, tmp_path: Path
) -> None:
    make_dataset(tmp_path / "one", (("train", (Clip("real/a.mp4", 2), Clip("fake/b.mp4", 2))),), labels=(real, "Fake"))
    mixed = loader_of(tmp_path, "one").dataset.index
    assert isinstance(mixed, MixedIndex)
    before = json.dumps([[index.fingerprint for index in mixed.indexes], [{}]], sort_keys=True)
    assert (mixed.fingerprint == hashlib.sha256(before.encode()).hexdigest()) is is_continued


def test_labels_are_matched_by_name_and_not_by_number(folder: Path) -> None:
    for names in (("plain", "swapped"), ("swapped", "plain")):
        loader = loader_of(folder, *names)
        assert loader.dataset.labels == ("real", "fake")
        number = names.index("swapped")  # in this one the videos in fake/ are called real
        assert labels_by_dataset(loader) == {
            (number, "real"): {"fake"}, (number, "fake"): {"real"},
            (1 - number, "real"): {"real"}, (1 - number, "fake"): {"fake"},
        }  # fmt: skip


def test_quotas_and_transforms_go_by_the_labels_of_the_mixture(folder: Path) -> None:
    loader = loader_of(folder, "plain", "swapped", batch_size=8, balance=Quotas({"real": 1, "fake": 1}))
    assert all(batch["label"].tolist() == [0, 1] * (len(batch["label"]) // 2) for batch in loader)
    blended = loader_of(folder, "plain", "swapped", image_size=32, face_transform=[SelfBlend(p=1.0)])
    labels, datasets = (torch.cat([batch[name] for batch in blended]) for name in ("label", "dataset_index"))
    assert int(labels[datasets == 0].sum()) > 8  # 8 of 12 are stored as fake
    assert int(labels[datasets == 1].sum()) > 3  # 3 of 9


def test_names_that_differ_are_mapped_by_rename(folder: Path) -> None:
    rename = {"numbers": {"label": {"0": "real", "1": "fake"}, "method": {"swap": "FaceSwap"}}}
    loader = loader_of(folder, "plain", "numbers", rename=rename)
    assert loader.dataset.labels == ("real", "fake")
    assert labels_by_dataset(loader) == {(dataset, name): {name} for dataset in (0, 1) for name in ("real", "fake")}
    methods = {
        (n, method)
        for batch in loader
        for n, method in zip(batch["dataset_index"].tolist(), batch["method"], strict=True)
    }
    assert methods == {(0, None), (0, "swap"), (0, "talk"), (1, None), (1, "FaceSwap"), (1, "talk")}


def test_classes_may_be_mapped_to_one_and_balanced_by_the_new_name(folder: Path) -> None:
    rename = {
        "plain": {"method": {"swap": "all", "talk": "all"}},
        "swapped": {"method": {"swap": "all", "talk": "all"}},
    }
    loader = loader_of(folder, "plain", "swapped", rename=rename, balance=Quotas({"all": 1}, column="method"))
    assert {method for batch in loader for method in batch["method"]} == {"all"}
    assert [each.drawn for each in loader.describe().datasets] == [8, 6]


def test_a_label_that_some_have_not_is_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "facefeed.loaders"):
        loader = loader_of(folder, "plain", "numbers")
    assert loader.dataset.labels == ("real", "fake", "0", "1")
    assert "label 'real': numbers has none; the same under another name? see rename=" in caplog.text
    assert "label '1': plain has none" in caplog.text


@pytest.mark.parametrize("is_first", [True, False])
def test_a_dataset_of_an_older_facefeed_takes_no_numbers_from_the_frames_of_another(
    tmp_path: Path, is_first: bool
) -> None:
    write_clip(tmp_path / "src/clip", (3, 7, 11), "{:04}.png")
    with in_process():
        precompute(
            tmp_path / "src", tmp_path / "numbered", options=Options(sampling=Sampling(every=1), margin=0),
            detector="whole-frame", allow_unlabelled=True,
        )  # fmt: skip
    make_of_schema(2, tmp_path / "older")
    names = ["older", "numbered"] if is_first else ["numbered", "older"]
    loader = loader_of(tmp_path, *names, split=None, fields=("image", "dataset_index", "frame_number"))
    numbers: dict[str, set[int]] = {name: set() for name in names}
    for batch in loader:
        for dataset, number in zip(batch["dataset_index"].tolist(), batch["frame_number"].tolist(), strict=True):
            numbers[names[dataset]].add(number)
    assert numbers == {"older": {-1}, "numbered": {3, 7, 11}}
    first_and_last = {loader.dataset.info(position)["frame_number"] for position in (0, len(loader.dataset) - 1)}
    assert first_and_last == {-1, 11 if is_first else 3}
    row = int(loader.dataset.rows[-1])
    assert loader.dataset.index.number("frame_number", row) == (11 if is_first else -1)


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"other": {}}, "rename: no dataset is called 'other'; there are plain, numbers"),
        ({"plain": {"score": {"1": "2"}}}, "rename: plain: 'score': must be label, dataset, method"),
        ({"plain": {"video_id": {}}}, "rename: plain: 'video_id': must be"),
        ({"numbers": {"label": {"real": "fake"}}}, r"rename: numbers \(.*\) has no label 'real'; it has 0, 1"),
        ({"plain": {"method": {"Swap": "swap"}}}, "has no method 'Swap'; it has swap, talk"),
        ({"numbers": {"label": {"0": 0}}}, "rename: numbers: label: '0' -> 0: must be a name"),
        ({"numbers": {"label": {"0": "Real"}}}, r"labels: numbers has 'Real' and plain has 'real'; .* give rename="),
        ({"label": {"0": "real"}}, "rename=.*: must be like"),
        ([("0", "real")], "rename=.*: must be like"),
    ],
)  # fmt: skip
def test_a_mapping_that_cannot_hold_is_refused(folder: Path, rename: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        loader_of(folder, "plain", "numbers", rename=rename)


def test_filters_of_what_the_mixture_numbers_or_names_in_another_way_are_refused(folder: Path) -> None:
    for names in (("plain", "swapped"), ("swapped", "plain")):
        for filters in ([("label", "==", 1)], pc.field("label") == 1):
            with pytest.raises(UsageError, match="label has other numbers in swapped than in the mixture"):
                loader_of(folder, *names, filters=filters)
    rename = {"plain": {"method": {"swap": "FaceSwap"}}}
    with pytest.raises(UsageError, match="method has other names in plain than in the mixture"):
        loader_of(folder, "plain", "swapped", rename=rename, filters=[("method", "==", "swap")])
    kept = {"plain": {"method": {"swap": "swap"}}}
    assert len(loader_of(folder, "plain", "swapped", rename=kept, filters=[("method", "==", "swap")]).dataset)


def test_links_are_called_as_they_are_and_not_as_what_they_lead_to(folder: Path, tmp_path: Path) -> None:
    for name, target in (("one", "plain"), ("two", "dense")):
        (tmp_path / name).symlink_to(folder / target)
    loader = FaceDataLoader([tmp_path / "one", tmp_path / "two"], num_workers=0)
    assert [each.name for each in loader.describe().datasets] == ["one", "two"]


def test_one_dataset_under_two_names_is_refused_since_its_rows_would_count_as_those_of_two(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(folder / "plain")
    with pytest.raises(UsageError, match=r"'plain' and 'link' are the same dataset, .*; give it once, and weights="):
        FaceDataLoader([folder / "plain", tmp_path / "link"], num_workers=0)
    with pytest.raises(UsageError, match="'first' and 'second' are the same dataset, whose"):
        FaceDataLoader({"first": "s3://b/x", "second": "s3://b/x/"}, num_workers=0)


def test_a_column_that_one_dataset_lacks_is_named_with_its_folder(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=rf"'landmarks_68' is no column.*; plain \({folder}/plain\) has no landmarks_68"
    ):
        loader_of(folder, "dense", "plain", fields=("image", "landmarks_68"))
    with pytest.raises(UsageError, match=rf"MouthCrop: needs landmarks_68, which {folder}/plain lacks; run"):
        loader_of(folder, "dense", "plain", face_transform=[MouthCrop()])
    with pytest.raises(UsageError, match=rf"'quality' is no column.*; plain \({folder}/plain\) has no quality"):
        loader_of(folder, "whole", "plain", fields=("image", "quality"))
    loader = loader_of(folder, "dense", "plain", fields=("image", "landmarks"))
    assert sum(len(batch["landmarks"]) for batch in loader) == 18


def test_a_column_of_two_kinds_is_named_with_both(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"'quality' is no column.*whole .*has quality as int64, another as double"):
        loader_of(folder, "whole", "shares", fields=("image", "quality"))


def test_lists_of_integers_are_of_one_type_where_only_one_dataset_has_nulls(tmp_path: Path) -> None:
    schema = pa.schema([("list", pa.list_(pa.int32(), 2))])
    for name, first in (("complete", [1, 2]), ("partly", None)):
        make_one(tmp_path / name, 6)
        add_columns(
            tmp_path / name,
            Returning(lambda faces, first=first: {"list": [first, *[[1, 2]] * (len(faces) - 1)]}, schema),
            workers=1,
        )
    loader = loader_of(tmp_path, "complete", "partly", fields=("image", "list"), batch_size=1)
    lists = [batch["list"] for batch in loader]
    assert {each.dtype for each in lists} == {torch.float64}
    assert 0 < sum(int(each.isnan().all()) for each in lists) < len(lists)


def test_a_filter_on_a_column_that_one_lacks_names_the_dataset(folder: Path) -> None:
    with pytest.raises(UsageError, match=rf"plain \({folder}/plain\): filters=.*quality"):
        loader_of(folder, "whole", "plain", filters=[("quality", ">", 1)])


def test_crops_that_show_faces_at_other_sizes_are_reported_unless_cut_anew(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "facefeed.loaders"):
        loader_of(folder, "plain", "wide")
    assert (
        "stored with different --margin (plain: 0.3, wide: 0.9): a network may learn the dataset by it" in caplog.text
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING, "facefeed.loaders"):
        loader_of(folder, "plain", "wide", crop={"margin": 0.0, "size": 16}, image_size="auto")
    assert "--margin" not in caplog.text


def test_passwords_of_addresses_are_in_no_error_of_a_mixture() -> None:
    with pytest.raises(UsageError, match="https://host/a/faces and https://host/b/faces are both called") as refused:
        FaceDataLoader(["https://me:hidden@host/a/faces", "https://me:hidden@host/b/faces"], num_workers=0)
    assert "hidden" not in str(refused.value)


def test_folders_of_one_name_need_names(folder: Path, tmp_path: Path) -> None:
    make_one(tmp_path / "plain", 6)
    with pytest.raises(UsageError, match=r"are both called 'plain'; name them, \{'first': "):
        FaceDataLoader([folder / "plain", tmp_path / "plain"], num_workers=0)
    named = FaceDataLoader(
        {"old": folder / "plain", "new": tmp_path / "plain"}, num_workers=0, weights={"new": 1, "old": 3}
    )
    assert [(each.name, each.share) for each in named.describe().datasets] == [("old", 0.75), ("new", 0.25)]


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ([], r"dataset=\[\]: must name a folder at least"),
        ([3], "dataset: 3 in a mixture: must be a folder"),
        ({"a": None}, "dataset: None in a mixture"),
        ({"ff": "a", "ff/c23": "b"}, "dataset: 'ff/c23', .* must not contain '/', .* try 'ff-c23'"),
        (["nothing-here"], r"nothing-here \(.*nothing-here\): .*manifest"),
    ],
)  # fmt: skip
def test_what_is_no_folder_or_would_make_one_video_of_two_is_refused(datasets: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaceDataLoader(datasets, num_workers=0)


def test_windows_are_read_ahead_from_the_files_of_every_folder(folder: Path) -> None:
    dataset = loader_of(folder, "plain", "swapped").dataset
    files = {Path(name) for name, _, _ in byte_runs(dataset.index, dataset.rows)}
    assert all(path.is_file() for path in files)
    assert {path.relative_to(folder).parts[0] for path in files} == {"plain", "swapped"}


def test_rows_are_numbered_through_in_the_order_of_the_folders(folder: Path) -> None:
    index = loader_of(folder, "plain", "swapped").dataset.index
    assert index.numbers("dataset_index", np.arange(len(index))).tolist() == [0] * 17 + [1] * 14
