"""What a user notices of class folders and tables the whole way: columns, planted leaks, and half of the files gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.dataset as pads
import pytest
from assets_layouts import FOLDERS, TABLE, Footage, lay_folders, write_table
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Listing, list_source, listing_warnings
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits
from facefeed.pipeline.verify.check import verify

LABELS = ("real", "fake")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, footage: Footage) -> Path:
    return lay_folders(tmp_path_factory.mktemp("folders") / "src", footage)


@pytest.fixture
def mine(folders: Path, tmp_path: Path) -> Path:
    """A copy that a test may take apart, with a table of its files."""
    root = shutil.copytree(folders, tmp_path / "mine")
    write_table(root / "t.csv", TABLE.values())
    return root


def splits_and_labels(listing: Listing) -> dict[str, tuple[str | None, str]]:
    return {entry.video_id: (entry.split, LABELS[entry.label]) for entry in listing.entries}


def test_folders_and_table_say_what_they_hold(mine: Path) -> None:
    folder, table = list_source(mine), list_source(mine / "t.csv")
    assert (folder.layout, table.layout) == ("folder", "table")
    assert splits_and_labels(folder) == splits_and_labels(table) == FOLDERS
    for entry in table.entries:
        row = TABLE[entry.video_id]
        attributes = (entry.source_id, entry.identity, entry.method, entry.compression, entry.dataset)
        assert attributes == tuple(
            row[key] or None for key in ("source", "identity", "method", "compression", "dataset")
        )


def test_a_folder_whose_name_is_several_known_words_says_its_class_and_split(tmp_path: Path, footage: Footage) -> None:
    real, fake = ["real_train/a.mp4", "Real Videos/test-set/b.mp4"], ["fake_test/c.mp4", "training_fake/d.mp4"]
    listing = list_source(footage.lay(tmp_path, real=real, fake=fake))
    assert splits_and_labels(listing) == {
        "real_train/a.mp4": ("train", "real"), "Real Videos/test-set/b.mp4": ("test", "real"),
        "fake_test/c.mp4": ("test", "fake"), "training_fake/d.mp4": ("train", "fake"),
    }  # fmt: skip
    assert listing.warnings == ()


def test_the_number_of_a_class_may_stand_before_its_name(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, real=["car/0_real/a.mp4", "cat/0-Real/b.mp4"], fake=["car/1_fake/c.mp4"])
    assert {entry.video_id: entry.label for entry in list_source(src).entries} == {
        "car/0_real/a.mp4": 0, "cat/0-Real/b.mp4": 0, "car/1_fake/c.mp4": 1,
    }  # fmt: skip


@pytest.mark.parametrize("clip", ["real_1", "2_real", "1_real"])
def test_frames_in_a_folder_with_any_other_number_stay_one_clip(tmp_path: Path, clip: str) -> None:
    (tmp_path / "real" / clip).mkdir(parents=True)
    for number in range(3):
        (tmp_path / "real" / clip / f"{number:04}.png").touch()
    assert {entry.footage for entry in list_source(tmp_path).entries} == {f"real/{clip}"}


def test_photos_in_a_folder_of_several_known_words_are_photos(tmp_path: Path) -> None:
    for name in ("training_real/x1.png", "training_real/y.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert len({entry.footage or entry.video_id for entry in list_source(tmp_path).entries}) == 2


@pytest.mark.parametrize(
    ("folders", "named"),
    [(("real/my_train_v2", "fake/test_unseen"), "taken for none: 'my_train_v2', 'test_unseen'"),
     (("real/train", "fake/train"), "2 of 2 media files have the split train")],
)  # fmt: skip
def test_folders_that_may_be_meant_as_splits_are_named(
    tmp_path: Path, footage: Footage, folders: tuple[str, ...], named: str
) -> None:
    listing = list_source(footage.lay(tmp_path, real=[f"{folder}/{i}.mp4" for i, folder in enumerate(folders)]))
    assert {entry.split for entry in listing.entries} == {None}
    assert any(named in warning for warning in listing_warnings(listing))


@pytest.mark.parametrize("start", range(2))
@pytest.mark.parametrize("src", [".", "t.csv"])
def test_with_half_of_the_files_missing_the_rest_keeps_labels_and_splits(mine: Path, src: str, start: int) -> None:
    removed = sorted(FOLDERS)[start::2]
    for name in removed:
        (mine / name).unlink()
    half = list_source(mine / src)
    assert splits_and_labels(half) == {path: expected for path, expected in FOLDERS.items() if path not in removed}
    assert sorted(half.missing) == (removed if src == "t.csv" else [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"test/fake/i.mp4": {"source": "train/real/a.mp4"}}, "original 'train/real/a.mp4'"),
        ({"val/real/g.mp4": {"identity": "person b"}}, "person 'person b'"),
    ],
)
def test_an_original_or_a_person_on_both_sides_of_a_tables_split_is_a_leak(
    mine: Path, change: dict[str, dict[str, str]], what: str
) -> None:
    assign_splits(list_source(mine / "t.csv").entries, ratio=SplitRatio(), seed=0)
    write_table(mine / "t.csv", (row | change.get(path, {}) for path, row in TABLE.items()))
    listing = list_source(mine / "t.csv")
    with pytest.raises(RefusedError, match=f"of the same {what}, in .*: a leak; .* or leave out the column split, so"):
        assign_splits(listing.entries, ratio=SplitRatio(), seed=0, without_splits=listing.without_splits)


def test_a_video_that_a_table_puts_into_val_and_test_is_refused(mine: Path) -> None:
    duplicate = TABLE["test/real/i.mp4"] | {"split": "val"}
    write_table(mine / "t.csv", [*TABLE.values(), duplicate])
    with pytest.raises(UsageError, match=r"names 'test/real/i\.mp4' more than once"):
        list_source(mine / "t.csv")


def test_the_columns_of_the_dataset_say_what_the_table_says(
    mine: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    out = tmp_path / "out"
    precompute(mine / "t.csv", out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert verify(out).findings == []
    columns = ["video_id", "label", "split", "source_id", "identity", "method", "compression", "dataset"]
    rows = pads.dataset(out / "faces").to_table(columns=columns).to_pylist()
    assert {row["video_id"]: row for row in rows} == {
        path: {
            "video_id": path, "label": LABELS.index(row["label"]), "split": row["split"],
            "source_id": row["source"] or None, "identity": row["identity"], "method": row["method"] or None,
            "compression": row["compression"], "dataset": row["dataset"],
        }
        for path, row in TABLE.items()
    }  # fmt: skip


def test_the_columns_of_the_dataset_say_what_the_folders_say(
    folders: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    out = tmp_path / "out"
    precompute(folders, out, options=small_options, detector=FixedBoxDetector(), scheduler=cluster_address)
    rows = pads.dataset(out / "faces").to_table(columns=["video_id", "label", "split", "identity"]).to_pylist()
    assert {row["video_id"]: (row["split"], LABELS[row["label"]]) for row in rows} == FOLDERS
    assert {row["identity"] for row in rows} == {None}


@pytest.mark.parametrize("above", ["Deepfake Dataset", "synthetic_data", "x/original"])
def test_a_folder_that_holds_both_classes_names_none(tmp_path: Path, footage: Footage, above: str) -> None:
    labels = {f"{above}/real/a.mp4": 0, f"{above}/fake/a.mp4": 1, "compressed/real/b.mp4": 0, f"{above}/c.mp4": -1}
    src = footage.lay(tmp_path, real=labels)
    assert {entry.video_id: entry.label for entry in list_source(src).entries} == labels


def test_one_folder_of_the_other_class_leaves_the_labels_of_all_around_it(tmp_path: Path, footage: Footage) -> None:
    labels = {
        "real/0.mp4": 0,
        "real/p9/1.mp4": 0,
        "real/p9/fakes/x.mp4": 1,
        "fake/2.mp4": 1,
        "fake/m/original/3.mp4": 0,
    }
    src = footage.lay(tmp_path, real=labels)
    assert {entry.video_id: entry.label for entry in list_source(src, "folder").entries} == labels


@pytest.mark.parametrize("without", ["original/real", "Deepfakes/fake"], ids=["real", "fake"])
def test_a_folder_of_the_other_class_keeps_its_label_while_that_beside_it_is_absent(
    tmp_path: Path, footage: Footage, without: str
) -> None:
    labels = {"original/real/a.mp4": 0, "original/fake/a.mp4": 1, "Deepfakes/real/b.mp4": 0, "Deepfakes/fake/b.mp4": 1}
    labels |= {"original/c.mp4": -1, "Deepfakes/test_videos/c.mp4": -1}
    src = footage.lay(tmp_path, real=[name for name in labels if not name.startswith(without)])
    assert all(labels[entry.video_id] == entry.label for entry in list_source(src, "folder").entries)
