"""Each form of an export, read back by what reads it elsewhere."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from assets_dataset import ROWS, Clip, make_dataset
from assets_docs import REFERENCE
from assets_export import exported, files_below, listed, named, without
from assets_rows import damage, stored_rows
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.export.forms.shards import plan_shards
from facefeed.pipeline.export.rows import StoredRows
from PIL import Image
from torchvision.datasets import ImageFolder

TOTAL = sum(ROWS.values())
OWN_FILES = ("export.json", "SHA256SUMS")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "out"
    make_dataset(path)
    return path


@pytest.fixture(scope="module")
def rows(out: Path) -> dict[str, dict[str, Any]]:
    return {row["face_id"]: row for row in stored_rows(out)}


def read_tar(path: Path) -> dict[str, dict[str, bytes]]:
    """Fields of each sample by its key, as webdataset groups them: all that follows the first dot."""
    samples: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            content = tar.extractfile(member)
            assert content is not None
            key, _, field = member.name.partition(".")
            samples.setdefault(key, {})[field] = content.read()
    return samples


@pytest.mark.parametrize("form", ["folders", "webdataset", "hf", "deepfakebench"])
def test_an_export_lists_each_of_its_files_with_its_hash_and_leaves_nothing_else(
    out: Path, tmp_path: Path, form: str
) -> None:
    figures = exported(out, tmp_path / "dest", form)
    assert (figures["rows"], figures["skipped"], figures["damaged"], figures["findings"]) == (TOTAL, {}, 0, [])
    sums = listed(tmp_path / "dest")
    assert files_below(tmp_path / "dest") == {*sums, *OWN_FILES}
    for path, digest in sums.items():
        assert hashlib.sha256((tmp_path / "dest" / path).read_bytes()).hexdigest() == digest
    assert figures["files"] == len(sums)
    assert figures["bytes"] == sum((tmp_path / "dest" / path).stat().st_size for path in sums)


def test_the_reference_documents_every_key_of_the_figures(out: Path, tmp_path: Path) -> None:
    text = (REFERENCE / "json.md").read_text(encoding="utf-8").split("## An export\n")[1].split("\n## ")[0]
    documented = {key.partition(".")[0] for key in re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE)}
    assert exported(out, tmp_path / "dest", "folders").keys() == documented


# ---- folders


def test_torchvision_reads_the_folders_and_every_image_is_the_stored_one(
    out: Path, tmp_path: Path, rows: dict[str, dict[str, Any]]
) -> None:
    exported(out, tmp_path / "dest", "folders")
    for split, count in ROWS.items():
        folder = ImageFolder(str(tmp_path / "dest" / split))
        assert folder.classes == ["fake", "real"]
        assert len(folder) == count
        stored = sorted(row["image"] for row in rows.values() if row["split"] == split)
        assert sorted(Path(path).read_bytes() for path, _ in folder.samples) == stored


def test_the_table_has_every_light_column_of_every_row(
    out: Path, tmp_path: Path, rows: dict[str, dict[str, Any]]
) -> None:
    exported(out, tmp_path / "dest", "folders")
    with (tmp_path / "dest" / "metadata.csv").open(newline="", encoding="utf-8") as file:
        table = {line["face_id"]: line for line in csv.DictReader(file)}
    assert table.keys() == rows.keys()
    for face_id, row in rows.items():
        line = table[face_id]
        assert line.keys() == {"file_name", "class", *row} - {"image", "mask", "file"}
        assert (tmp_path / "dest" / line["file_name"]).read_bytes() == row["image"]
        assert np.array_equal(np.float32(json.loads(line["landmarks"])), np.float32(row["landmarks"]))
        assert np.array_equal(np.float32(json.loads(line["hull"])), np.float32(row["hull"]))
        regions = json.loads(line["regions"])
        assert {name: [np.float32(edge) for edge in box] for name, box in regions.items()} == row["regions"]
        assert line["fake_segments"] == ""
        assert line["source_id"] == (row["source_id"] or "")
        assert np.float32(line["sharpness"]) == row["sharpness"]
        assert (
            line["manipulated"] == ""
            if row["manipulated"] is None
            else np.float32(line["manipulated"]) == row["manipulated"]
        )
        assert line["class"] == ("real", "fake")[row["label"]]


def test_a_row_of_unknown_label_has_a_folder_of_its_own(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", (Clip("real/a.mp4", 2), named("other/b.mp4", label=-1))),))
    exported(tmp_path / "out", tmp_path / "dest", "folders")
    assert len(files_below(tmp_path / "dest" / "train" / "unknown")) == 2


def test_a_class_that_is_called_unknown_has_the_folder_of_its_name(tmp_path: Path) -> None:
    clips = Clip("real/a.mp4", 2), named("other/b.mp4", 3, label=1), named("other/c.mp4", 4, label=-1)
    make_dataset(tmp_path / "out", (("train", clips),), labels=("real", "unknown"))
    exported(tmp_path / "out", tmp_path / "dest", "folders")
    folders = {folder.name: len(files_below(folder)) for folder in (tmp_path / "dest/train").iterdir()}
    assert folders == {"real": 2, "unknown": 3, "no_label": 4}


PARTLY = {"label": 1, "fake_segments": ((0.0, 0.07), (0.1, 0.15)), "outside_label": 0}


def test_a_video_that_is_fake_in_part_has_a_label_for_each_frame_and_its_segments(tmp_path: Path) -> None:
    clips = (*(Clip(f"real/{number}.mp4", 2) for number in range(5)), named("part/a.mp4", 5, **PARTLY))
    make_dataset(tmp_path / "out", (("train", clips),))
    segments = [list(segment) for segment in PARTLY["fake_segments"]]  # type: ignore[attr-defined]
    exported(tmp_path / "out", tmp_path / "folders", "folders")
    with (tmp_path / "folders" / "metadata.csv").open(newline="", encoding="utf-8") as file:
        table = [*csv.DictReader(file)]
    assert {line["file_name"].split("/")[1] for line in table if line["video_id"] == "part/a.mp4"} == {"fake", "real"}
    assert [json.loads(line["fake_segments"]) for line in table if line["fake_segments"]] == [segments] * 5
    exported(tmp_path / "out", tmp_path / "webdataset", "webdataset")
    samples = [json.loads(s["json"]) for s in read_tar(tmp_path / "webdataset" / "train-000000.tar").values()]
    assert [json.loads(sample["fake_segments"]) for sample in samples if sample["fake_segments"]] == [segments] * 5
    rows = read_by_hugging_face(tmp_path / "webdataset", "webdataset", tmp_path, splits=["train"])
    assert len(rows["train"]) == 15
    exported(tmp_path / "out", tmp_path / "hf", "hf")
    assert len(read_by_hugging_face(tmp_path / "hf", "hf", tmp_path, splits=["train"])["train"]) == 15


def test_columns_of_ones_own_are_exported_and_replace_none_of_the_forms(tmp_path: Path) -> None:
    kinds = {"class": "string", "age": "int", "quality": "float"}
    clips = (
        *(named(f"real/{number}.mp4", 2, values=(None, None, None)) for number in range(4)),
        named("real/z.mp4", 2, values=("A", 31, 0.5)),
    )
    make_dataset(tmp_path / "out", (("train", clips),), columns=kinds)
    exported(tmp_path / "out", tmp_path / "folders", "folders")
    with (tmp_path / "folders" / "metadata.csv").open(newline="", encoding="utf-8") as file:
        lines = [tuple(line[name] for name in ("class", "class_", "age", "quality")) for line in csv.DictReader(file)]
    assert sorted(set(lines)) == [("real", "", "", ""), ("real", "A", "31", "0.5")]
    exported(tmp_path / "out", tmp_path / "webdataset", "webdataset")
    samples = [json.loads(s["json"]) for s in read_tar(tmp_path / "webdataset" / "train-000000.tar").values()]
    seen = {tuple(sample[name] for name in ("class", "class_", "age", "quality")) for sample in samples}
    assert seen == {("real", "", -1, -1.0), ("real", "A", 31, 0.5)}
    exported(tmp_path / "out", tmp_path / "hf", "hf")
    for form in ("webdataset", "hf"):  # the first samples have nothing in these columns
        assert len(read_by_hugging_face(tmp_path / form, form, tmp_path, splits=["train"])["train"]) == 10


def test_classes_keep_their_names_but_for_what_no_folder_may_have(tmp_path: Path) -> None:
    """A name is no path: what follows a dot is no suffix of it, and what precedes a slash no folder."""
    clips = (Clip("real/a.mp4", 1), Clip("fake/a-swap.mp4", 1))
    make_dataset(tmp_path / "out", (("train", clips),), labels=("FF/Deep.fakes", "30.5"))
    exported(tmp_path / "out", tmp_path / "dest", "folders")
    assert ImageFolder(str(tmp_path / "dest" / "train")).classes == ["30_5", "FF_Deep_fakes"]


def test_no_cell_of_the_table_is_a_formula(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", (named("real/a.mp4", identity="=1+2"),)),))
    exported(tmp_path / "out", tmp_path / "dest", "folders")
    with (tmp_path / "dest" / "metadata.csv").open(newline="", encoding="utf-8") as file:
        assert {line["identity"] for line in csv.DictReader(file)} == {"'=1+2"}


def test_images_keep_their_format(tmp_path: Path) -> None:
    from facefeed.pipeline.dataset.image_codec import ImageEncoder  # noqa: PLC0415

    make_dataset(tmp_path / "out", (("train", (Clip("real/a.mp4", 2),)),), image=ImageEncoder(format="png"))
    exported(tmp_path / "out", tmp_path / "dest", "folders")
    paths = without(files_below(tmp_path / "dest"), *OWN_FILES, "metadata.csv")
    assert paths == {"train/real/a/000000_0.png", "train/real/a/000001_0.png"}
    for path in paths:
        with Image.open(tmp_path / "dest" / path) as image:
            assert image.format == "PNG"


# ---- webdataset


def test_every_sample_of_the_tar_shards_has_image_columns_and_mask(
    out: Path, tmp_path: Path, rows: dict[str, dict[str, Any]]
) -> None:
    exported(out, tmp_path / "dest", "webdataset")
    seen = {}
    for split in ROWS:
        for key, sample in read_tar(tmp_path / "dest" / f"{split}-000000.tar").items():
            assert sample.keys() == {"jpg", "json", "mask.png"}
            columns = json.loads(sample["json"])
            seen[columns["face_id"]] = key
            row = rows[columns["face_id"]]
            assert (columns["split"], row["split"]) == (split, split)
            assert sample["jpg"] == row["image"]
            assert columns["landmarks"] == row["landmarks"]
            assert columns["class"] == ("real", "fake")[row["label"]]
            check_mask(sample["mask.png"], columns, row)
    assert seen.keys() == rows.keys()
    assert len(set(seen.values())) == len(rows)


def test_the_masks_of_tar_shards_are_black_also_where_the_real_class_is_called_otherwise(tmp_path: Path) -> None:
    clips = (Clip("real/anna.mp4", 2), Clip("fake/anna-swap.mp4", 2))
    make_dataset(tmp_path / "out", (("train", clips),), labels=("Original", "swap"))
    exported(tmp_path / "out", tmp_path / "dest", "webdataset")
    stored = {row["face_id"]: row for row in stored_rows(tmp_path / "out")}
    samples = [*read_tar(tmp_path / "dest" / "train-000000.tar").values()]
    assert len(samples) == len(stored) == 4
    for sample in samples:
        columns = json.loads(sample["json"])
        check_mask(sample["mask.png"], columns, stored[columns["face_id"]])


def check_mask(png: bytes, columns: dict[str, Any], row: dict[str, Any]) -> None:
    """The stored mask; without one, black for what is real, and grey where nothing is known."""
    assert columns["has_mask"] == (row["mask"] is not None)
    if row["mask"] is not None:
        assert png == row["mask"]
        return
    with Image.open(io.BytesIO(png)) as mask:
        assert mask.size == (row["width"], row["height"])
        assert set(np.unique(np.asarray(mask))) == {0 if row["label"] == 0 else 128}


def test_shards_are_of_about_the_size_that_is_asked_for_and_hold_every_row_once(
    out: Path, tmp_path: Path, rows: dict[str, dict[str, Any]]
) -> None:
    exported(out, tmp_path / "dest", "webdataset", "--shard-mb", 1)
    shards = sorted(path for path in files_below(tmp_path / "dest") if path.startswith("train-"))
    assert len(shards) > 1
    assert shards == [f"train-{number:06d}.tar" for number in range(len(shards))]
    assert all((tmp_path / "dest" / path).stat().st_size <= 1_100_000 for path in shards)
    faces = [
        json.loads(sample["json"])["face_id"]
        for path in files_below(tmp_path / "dest")
        if path.endswith(".tar")
        for sample in read_tar(tmp_path / "dest" / path).values()
    ]
    assert sorted(faces) == sorted(rows)


def test_a_shard_ends_before_its_size_unless_one_row_is_larger(out: Path) -> None:
    index = Index(out)
    stored = StoredRows(out)
    for shard_bytes in (1, 10_000, 10**9):
        shards = plan_shards(stored, stored.select(None), shard_bytes, 100)
        assert sorted(int(row) for _, part in shards for row in part) == list(range(len(index)))
        for split, part in shards:
            sizes = index.numbers("image_bytes", part) + index.numbers("mask_bytes", part) + 100
            assert sizes.sum() <= shard_bytes or len(part) == 1
            assert {index.text("split", int(row)) for row in part} == {split}
    assert len(shards) == 3


# ---- Hugging Face

READER = """
import json, sys
import datasets
datasets.disable_progress_bars()
name, dest, cache, *splits = sys.argv[1:]
def size(image):
    return image and image.size
if name == "webdataset":
    files = {split: f"{dest}/{split}-*.tar" for split in splits}
    loaded = datasets.load_dataset("webdataset", data_files=files, cache_dir=cache)
    rows = {s: [(r["json"]["face_id"], r["jpg"].size, size(r.get("mask.png"))) for r in p] for s, p in loaded.items()}
else:
    loaded = datasets.load_dataset(dest, cache_dir=cache)
    rows = {s: [(r["face_id"], r["image"].size, size(r["mask"])) for r in p] for s, p in loaded.items()}
    assert loaded["train"].features["label"].names == ["real", "fake"]
    assert isinstance(loaded["train"].features["mask"], datasets.Image)
    row = loaded[splits[-1]][0]
    assert len(row["box_xyxy"]) == 4 and len(row["landmarks"]) == 5 and len(row["regions"]["nose"]) == 4
print(json.dumps(rows))
"""


def read_by_hugging_face(dest: Path, form: str, tmp_path: Path, splits: list[str]) -> dict[str, list[Any]]:
    """Face id, size of the image and of the mask (None: without) of each row, by split."""
    # In a process of its own, cut off from the network: `datasets` reads its settings when it is imported.
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "HF_DATASETS_OFFLINE": "1", "PATH": ""}
    command = [sys.executable, "-c", READER, form, str(dest), str(tmp_path / f"{form}-cache"), *splits]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    rows: dict[str, list[Any]] = json.loads(result.stdout.splitlines()[-1])
    return rows


@pytest.mark.parametrize("form", ["hf", "webdataset"])
def test_hugging_face_reads_images_masks_and_splits(
    out: Path, tmp_path: Path, rows: dict[str, dict[str, Any]], form: str
) -> None:
    exported(out, tmp_path / "dest", form)
    loaded = read_by_hugging_face(
        tmp_path / "dest", form, tmp_path, splits=["train", "val" if form == "webdataset" else "validation", "test"]
    )
    names = ("train", "validation" if form == "hf" else "val", "test")
    assert {name: len(loaded[name]) for name in names} == dict(zip(names, ROWS.values(), strict=True))
    for face_id, image_size, mask_size in (row for part in loaded.values() for row in part):
        row = rows[face_id]
        assert image_size == [row["width"], row["height"]]
        assert mask_size == (image_size if row["mask"] is not None or form == "webdataset" else None)


def test_the_parquet_of_hugging_face_holds_the_stored_bytes_and_its_card_the_counts(
    out: Path, tmp_path: Path, rows: dict[str, dict[str, Any]]
) -> None:
    exported(out, tmp_path / "dest", "hf")
    paths = sorted(without(files_below(tmp_path / "dest"), *OWN_FILES, "README.md"))
    assert paths == [f"data/{split}-00000-of-00001.parquet" for split in ("test", "train", "validation")]
    seen = set()
    for path in paths:
        for row in pq.read_table(tmp_path / "dest" / path).to_pylist():
            stored = rows[row["face_id"]]
            assert row["image"]["bytes"] == stored["image"]
            assert (row["mask"] or {"bytes": None})["bytes"] == stored["mask"]
            for name in stored.keys() - {"image", "mask", "file"}:
                assert row[name] == stored[name], name
            seen.add(row["face_id"])
    assert seen == rows.keys()
    _, head, text = (tmp_path / "dest" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    splits = {split["name"]: split["num_examples"] for split in yaml.safe_load(head)["dataset_info"]["splits"]}
    assert splits == {"train": ROWS["train"], "validation": ROWS["val"], "test": ROWS["test"]}
    columns = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert {"image", "mask", "landmarks"} <= {*columns}
    assert len(columns) == len({*columns}), "each column has one line"


def test_hugging_face_reads_what_is_left_where_neighbouring_rows_or_a_whole_split_are_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.pipeline.export.forms.huggingface._ROW_GROUP_ROWS", 2)
    clips = (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 3))
    make_dataset(tmp_path / "out", (("train", clips), ("val", (Clip("real/bo.mp4", 3),))))
    index = Index(tmp_path / "out")
    train, val = index.rows_where("split", "train"), index.rows_where("split", "val")
    damage(tmp_path / "out", *map(int, (*train[:2], *val)))
    figures = exported(tmp_path / "out", tmp_path / "dest", "hf", exit_code=1)
    assert (figures["rows"], figures["damaged"], figures["findings"]) == (4, 5, [])
    loaded = read_by_hugging_face(tmp_path / "dest", "hf", tmp_path, splits=["train"])
    left = [index.value("face_id", int(row)) for row in train[2:]]
    assert {split: [face_id for face_id, *_ in part] for split, part in loaded.items()} == {"train": left}


# ---- one split


@pytest.mark.parametrize("form", ["folders", "webdataset", "hf", "deepfakebench"])
def test_one_split_can_be_exported_alone(out: Path, tmp_path: Path, form: str) -> None:
    figures = exported(out, tmp_path / "dest", form, "--split", "val")
    assert figures["rows"] == ROWS["val"]
    assert not any("train" in path or path.startswith("test") for path in files_below(tmp_path / "dest"))
