"""What a user notices of DFDC with several of its parts, its sample, its test set, and half of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as pads
import pytest
from assets_layouts import DFDC_PARTS, Footage, lay_dfdc
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.image_clips import with_clips
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Entry, Listing, list_source
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

ORIGINALS = {f"{part}/{name}": original for part, files in DFDC_PARTS.items() for name, original in files.items()}


@pytest.fixture(scope="module")
def dfdc(tmp_path_factory: pytest.TempPathFactory, footage: Footage) -> Path:
    return lay_dfdc(tmp_path_factory.mktemp("dfdc") / "dfdc", footage)


@pytest.fixture
def mine(dfdc: Path, tmp_path: Path) -> Path:
    """A copy that a test may take apart."""
    return shutil.copytree(dfdc, tmp_path / "mine")


def by_name(listing: Listing) -> dict[str, Entry]:
    return {entry.video_id: entry for entry in listing.entries}


def change_metadata(root: Path, part: str, change: dict[str, dict[str, Any]]) -> None:
    path = root / part / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def test_every_video_of_all_parts_has_its_label_and_its_original_in_its_own_part(dfdc: Path) -> None:
    entries = by_name(list_source(dfdc))
    assert entries.keys() == {*ORIGINALS, "test_videos/zzz.mp4"}
    for name, original in ORIGINALS.items():
        part = name.split("/")[0]
        assert entries[name].label == int(original is not None)
        assert entries[name].source_id == (f"{part}/{original}" if original else None)


@pytest.mark.parametrize("part", ["dfdc_train_part_0", "train/dfdc_train_part_0"])
def test_images_that_metadata_names_directly_have_the_originals_that_it_names(tmp_path: Path, part: str) -> None:
    (tmp_path / part).mkdir(parents=True)
    metadata = {"a.png": {"label": "FAKE", "original": "b.png"}, "b.png": {"label": "REAL"}}
    (tmp_path / part / "metadata.json").write_text(json.dumps(metadata))
    for name in metadata:
        (tmp_path / part / name).touch()
    entries = by_name(list_source(tmp_path))
    assert entries[f"{part}/a.png"].source_id == f"{part}/b.png"


def test_a_video_that_metadata_name_by_a_link_too_is_listed_once(mine: Path) -> None:
    name, original = next((name, original) for name, original in ORIGINALS.items() if original)
    part, _, file = name.partition("/")
    (mine / part / "link.mp4").symlink_to(file)
    change_metadata(mine, part, {"link.mp4": {"label": "FAKE", "split": "train", "original": original}})
    listing = list_source(mine)
    assert by_name(listing).keys() == {*ORIGINALS, "test_videos/zzz.mp4"}
    assert listing.ignored["links to files that are listed already"] == 1
    change_metadata(mine, part, {"link.mp4": {"label": "REAL", "split": "train"}})
    with pytest.raises(UsageError, match=f"names '{name}' and '{part}/link.mp4', which are one file by a link"):
        list_source(mine)


def test_a_video_that_metadata_name_by_a_link_alone_has_the_label_of_that(mine: Path) -> None:
    part = next(iter(DFDC_PARTS))
    (mine / "test_videos/zzz.mp4").rename(mine / "test_videos/own.mp4")
    (mine / part / "link.mp4").symlink_to("../test_videos/own.mp4")
    change_metadata(mine, part, {"link.mp4": {"label": "REAL", "split": "train"}})
    listing = list_source(mine)
    assert by_name(listing).keys() == {*ORIGINALS, f"{part}/link.mp4"}
    assert by_name(listing)[f"{part}/link.mp4"].label == 0
    assert listing.ignored["links to files that are listed already"] == 1


def test_an_original_that_metadata_name_by_a_link_is_the_video_that_it_leads_to(mine: Path) -> None:
    name, original = next((name, original) for name, original in ORIGINALS.items() if original)
    part, _, file = name.partition("/")
    (mine / part / "alias.mp4").symlink_to(original)
    before = by_name(list_source(mine))
    change_metadata(mine, part, {file: {"label": "FAKE", "split": "train", "original": "alias.mp4"}})
    after = by_name(list_source(mine))
    assert after.keys() == before.keys()
    assert after[name].source_id == before[name].source_id == f"{part}/{original}"


def test_test_videos_without_labels_are_unknown_and_no_failure(dfdc: Path) -> None:
    entry = by_name(list_source(dfdc))["test_videos/zzz.mp4"]
    assert (entry.label, entry.problem) == (-1, None)


def test_a_fake_in_a_folder_of_videos_stays_with_its_original_there(mine: Path) -> None:
    for part in DFDC_PARTS:
        (mine / part / "videos").mkdir()
        for path in (mine / part).glob("*.mp4"):
            path.rename(mine / part / "videos" / path.name)
    entries = by_name(list_source(mine))
    sources = {
        f"{part}/videos/{name}": f"{part}/videos/{original}"
        for part, files in DFDC_PARTS.items()
        for name, original in files.items()
        if original and f"{part}/videos/{original}" in entries
    }
    assert sources
    assert {name: entries[name].source_id for name in sources} == sources


def test_an_original_that_another_part_holds_is_found_there(mine: Path) -> None:
    change_metadata(mine, "dfdc_train_part_1", {"ggg.mp4": {"label": "FAKE", "original": "hhh.mp4"}})
    entries = by_name(list_source(mine))
    assert entries["dfdc_train_part_1/ggg.mp4"].source_id == "dfdc_train_part_49/hhh.mp4"
    splits = assign_splits(list(entries.values()), ratio=SplitRatio(train=34, val=33, test=33), seed=0).split_of
    assert splits["dfdc_train_part_1/ggg.mp4"] == splits["dfdc_train_part_49/iii.mp4"]


def test_the_competitions_own_folder_is_recognised_by_its_sample(mine: Path) -> None:
    for part in list(DFDC_PARTS)[1:]:
        shutil.rmtree(mine / part)
    (mine / "dfdc_train_part_0").rename(mine / "train_sample_videos")
    listing = list_source(mine)
    assert listing.layout == "dfdc"
    assert by_name(listing)["train_sample_videos/bbb.mp4"].source_id == "train_sample_videos/aaa.mp4"


def test_a_video_of_the_sample_is_in_the_split_that_it_is_in_in_its_part(tmp_path: Path) -> None:
    names = [f"{number:03}.mp4" for number in range(60)]
    for folder, count in (("dfdc_train_part_0", 60), ("train_sample_videos/videos", 30)):
        (tmp_path / folder).mkdir(parents=True)
        for name in names[:count]:
            (tmp_path / folder / name).touch()
        metadata = json.dumps({name: {"label": "REAL"} for name in names[:count]})
        (tmp_path / folder.removesuffix("/videos") / "metadata.json").write_text(metadata)
    listing = list_source(tmp_path)
    split_of = assign_splits(listing.entries, ratio=SplitRatio(train=50, val=25, test=25), seed=0).split_of
    assert {*split_of.values()} == {"train", "val", "test"}
    for name in names[:30]:
        assert split_of[f"dfdc_train_part_0/{name}"] == split_of[f"train_sample_videos/videos/{name}"]
    assert any("in other parts too: 30 (000, 001, 002 and 27 more)" in text for text in listing.warnings)
    assert {entry.footage for entry in listing.entries if entry.video_id.endswith("059.mp4")} == {None}


def test_the_test_set_says_is_fake_instead_of_a_label(mine: Path) -> None:
    shutil.move(mine / "dfdc_train_part_1", mine / "test")
    metadata = {"eee.mp4": {"is_fake": 0, "augmentations": {}}, "fff.mp4": {"is_fake": 1}, "ggg.mp4": {"is_fake": 2}}
    (mine / "test/metadata.json").write_text(json.dumps(metadata))
    entries = list_source(mine / "test").entries
    assert [(entry.label, entry.problem) for entry in entries] == [(0, None), (1, None), (-1, "unknown_label")]


@pytest.mark.parametrize("train", ["", "train", "Train"])
@pytest.mark.parametrize(
    ("part", "unzipped"),
    [("dfdc_train_part_0", "dfdc_train_part_0/dfdc_train_part_0"), ("dfdc_train_part_0", "DFDC-train-part-0"),
     ("dfdc_train_part_1", "dfdc_train_part_01/dfdc_train_part_1")],
)  # fmt: skip
def test_a_part_in_a_folder_of_its_archive_or_in_another_case_is_read_like_the_others(
    mine: Path, train: str, part: str, unzipped: str
) -> None:
    before = {entry.video_id: (entry.label, entry.source_id) for entry in list_source(mine).entries}
    root = mine / train
    for name in DFDC_PARTS:
        new = root / (unzipped if name == part else name)
        content = (mine / name).rename(mine / f"moved {name}")
        new.parent.mkdir(parents=True, exist_ok=True)
        content.rename(new)

    def moved(path: str | None) -> str | None:
        folder, _, name = (path or "").partition("/")
        place = {**{name: name for name in DFDC_PARTS}, part: unzipped}.get(folder)
        return path and (f"{train}/{place}/{name}".lstrip("/") if place else path)

    after = {entry.video_id: (entry.label, entry.source_id) for entry in list_source(mine).entries}
    assert after == {moved(name): (label, moved(source)) for name, (label, source) in before.items()}


@pytest.mark.parametrize(
    ("found", "meant"),
    [("dfdc_train_part_0/content", "dfdc_train_part_0"), ("dfdc_train_part_0/home/me", "dfdc_train_part_0"),
     ("dfdc_trian_part_0", "dfdc_train_part_0"), ("train/dfdc_trian_part_0", "dfdc_train_part_0"),
     ("training/dfdc_train_part_0", "dfdc_train_part_0"), ("others", None)],
)  # fmt: skip
def test_a_part_in_a_folder_where_the_set_has_none_is_refused_with_the_path_that_is_meant(
    mine: Path, found: str, meant: str | None
) -> None:
    content = (mine / "dfdc_train_part_0").rename(mine / "moved")
    (mine / found).parent.mkdir(parents=True, exist_ok=True)
    content.rename(mine / found)
    question = f"did you mean '{meant}/metadata.json'" if meant else "is its folder called as the set's"
    with pytest.raises(UsageError, match=rf"'{found}/metadata\.json' is not read, .* no label; {question}\?"):
        list_source(mine)


@pytest.mark.parametrize("found", ["validaton", "validation/validation", "sets/validation"])
def test_a_validation_set_in_a_folder_where_the_set_has_none_is_refused_with_the_path_that_is_meant(
    mine: Path, footage: Footage, found: str
) -> None:
    footage.lay(mine, real=[f"{found}/videos/v.mp4"])
    (mine / found / "labels.csv").write_text("filename,label\nv.mp4,0\n")
    with pytest.raises(
        UsageError, match=rf"'{found}/labels\.csv' is not read, .* did you mean 'validation/labels\.csv'"
    ):
        list_source(mine)


@pytest.mark.parametrize("videos", ["validation", "validation/videos", "Val"])
@pytest.mark.parametrize("with_test", [False, True])
def test_the_validation_set_beside_parts_for_training_has_its_labels_and_is_val(
    mine: Path, footage: Footage, videos: str, with_test: bool
) -> None:
    footage.lay(mine, real=[f"{videos}/v.mp4"], fake=[f"{videos}/w.mp4", "test/x.mp4"])
    folder = videos.partition("/")[0]
    (mine / folder / "labels.csv").write_text("filename,label\nv.mp4,0\nw.mp4,1\n")
    if with_test:
        (mine / "test/labels.csv").write_text("filename,label\nx.mp4,1\n")
    listing = list_source(mine)
    entries = by_name(listing)
    assert [(entries[f"{videos}/{name}.mp4"].label, entries[f"{videos}/{name}.mp4"].split) for name in "vw"] == [
        (0, "val"), (1, "val")
    ]  # fmt: skip
    assert (entries["test/x.mp4"].label, entries["test/x.mp4"].split) == ((1, "test") if with_test else (-1, None))
    assert {entries[name].split for name in ORIGINALS} == {"train"}
    assert listing.missing == []


@pytest.mark.parametrize(
    ("column", "cell", "is_dfdc"),
    [
        ("class", "real", False), ("is_real", "1", False), ("is_real", "yes", False), ("is_fake", "False", False),
        ("class", "fake", True), ("prediction", "real", True), ("audio", "real", True),
    ],
)  # fmt: skip
def test_a_table_in_which_another_column_says_that_1_is_real_is_not_of_this_set(
    tmp_path: Path, footage: Footage, column: str, cell: str, is_dfdc: bool
) -> None:
    footage.lay(tmp_path, real=["v.mp4"])
    (tmp_path / "labels.csv").write_text(f"filename,label,{column}\nv.mp4,1,{cell}\n")
    listing = list_source(tmp_path)
    assert (listing.layout, [entry.label for entry in listing.entries]) == (
        ("dfdc", [1]) if is_dfdc else ("folder", [-1])
    )


@pytest.mark.parametrize("start", range(2))
def test_with_half_of_the_files_missing_the_rest_keeps_labels_and_splits(mine: Path, start: int) -> None:
    # With this seed no split is ever empty: then a video would move there, whichever is nearest.
    ratio = SplitRatio(train=34, val=33, test=33)
    full = list_source(mine)
    before = assign_splits(full.entries, ratio=ratio, seed=1).split_of
    removed = {entry.video_id for entry in full.entries[start::2]} & ORIGINALS.keys()
    for name in removed:
        (mine / name).unlink()
    half = list_source(mine)
    assert sorted(half.missing) == sorted(removed)
    assert half.entries == [entry for entry in full.entries if entry.video_id not in removed]
    after = assign_splits(half.entries, ratio=ratio, seed=1).split_of
    assert after == {name: before[name] for name in after}


def test_a_fake_in_test_whose_original_is_in_train_is_a_leak(mine: Path) -> None:
    change_metadata(mine, "dfdc_train_part_0", {"bbb.mp4": {"label": "FAKE", "split": "test", "original": "aaa.mp4"}})
    entries = list_source(mine).entries
    with pytest.raises(
        RefusedError, match=r"bbb\.mp4: .* in test, .*aaa\.mp4, of the same original .* in train: a leak"
    ):
        assign_splits(entries, ratio=SplitRatio(), seed=0)


def test_the_columns_of_the_dataset_say_what_the_metadata_says(
    dfdc: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    options = Options(sampling=Sampling(frames=1), keep=small_options.keep, size_px=small_options.size_px)
    out = tmp_path / "out"
    summary = precompute(dfdc, out, options=options, detector=FixedBoxDetector(), scheduler=cluster_address)
    assert summary.manifest.inputs["ok"] == 1 + len(ORIGINALS)
    assert verify(out).findings == []
    rows = pads.dataset(out / "faces").to_table(columns=["video_id", "source_id", "label", "dataset", "split"])
    splits: dict[str, set[str]] = {}
    for row in rows.to_pylist():
        name, original = row["video_id"], ORIGINALS.get(row["video_id"])
        assert row["dataset"] == "dfdc"
        assert row["label"] == (int(original is not None) if name in ORIGINALS else -1)
        assert row["source_id"] == (f"{name.split('/')[0]}/{original}" if original else None)
        splits.setdefault(row["source_id"] or name, set()).add(row["split"])
    assert {name: used_splits for name, used_splits in splits.items() if len(used_splits) > 1} == {}


RECORDS = {"a.mp4": {"label": "FAKE", "original": "b.mp4"}, "b.mp4": {"label": "REAL"}}


@pytest.mark.parametrize("inner", ["", "frames/", "faces/"])
def test_one_part_as_frames_is_read_like_its_videos(tmp_path: Path, inner: str) -> None:
    (tmp_path / "metadata.json").write_text(json.dumps(RECORDS))
    touch(tmp_path, *(f"{inner}{clip}/{frame}.png" for clip in "ab" for frame in range(2)))
    listing = list_source(tmp_path)
    assert {name: (entry.label, entry.source_id) for name, entry in by_name(listing).items()} == {
        f"{inner}a/0.png": (1, f"{inner}b/0.png"),
        f"{inner}a/1.png": (1, f"{inner}b/1.png"),
        f"{inner}b/0.png": (0, None),
        f"{inner}b/1.png": (0, None),
    }
    clips = with_clips(listing, [], [tmp_path.resolve()]).entries
    assert [(clip.video_id, clip.num_images) for clip in clips] == [(f"{inner}a", 2), (f"{inner}b", 2)]
    assert listing.missing == []


@pytest.mark.parametrize("table", ["labels.csv", "test/labels.csv"])
def test_the_test_set_as_frames_beside_its_table_has_its_labels(tmp_path: Path, table: str) -> None:
    folder = (tmp_path / table).parent
    touch(folder, "a/0.png", "b/faces/0.png", "labels.csv")
    (tmp_path / table).write_text("filename,label\na.mp4,1\nb.mp4,0\n")
    listing = with_clips(list_source(tmp_path), [], [tmp_path.resolve()])
    labels = {str((tmp_path / entry.video_id).relative_to(folder)): entry.label for entry in listing.entries}
    assert labels == {"a": 1, "b/faces": 0}


def test_a_frame_whose_number_the_original_lacks_is_of_the_same_original_as_the_others(tmp_path: Path) -> None:
    part = tmp_path / "dfdc_train_part_0"
    touch(part, "metadata.json", "a/0.png", "a/1.png", "faces/b/0.png")
    (part / "metadata.json").write_text(json.dumps(RECORDS))
    clips = with_clips(list_source(tmp_path), [], [tmp_path.resolve()]).entries
    assert {clip.video_id: clip.source_id for clip in clips} == {
        f"{part.name}/a": f"{part.name}/faces/b",
        f"{part.name}/faces/b": None,
    }


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
