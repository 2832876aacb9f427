"""What a user notices of FaceForensics++: each file with its label, original and people, and no leak in the splits."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow.dataset as pads
import pytest
from assets_layouts import PAIRS, SPLITS, Footage, fakes_of, ffpp_names, lay_ffpp, write_splits
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.sources import Entry, Listing, list_source, listing_warnings
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.video import Sampling

C23 = "original_sequences/youtube/c23/videos"
FAKES = "manipulated_sequences"


@pytest.fixture(scope="module")
def ffpp(tmp_path_factory: pytest.TempPathFactory, footage: Footage) -> Path:
    """The whole small set; tests that change it copy it."""
    return lay_ffpp(tmp_path_factory.mktemp("ffpp") / "FaceForensics++", footage)


@pytest.fixture
def mine(ffpp: Path, tmp_path: Path) -> Path:
    """A copy that a test may take apart."""
    return shutil.copytree(ffpp, tmp_path / "mine")


def by_name(listing: Listing) -> dict[str, Entry]:
    return {entry.video_id: entry for entry in listing.entries}


def split_of(listing: Listing) -> dict[str, str]:
    return assign_splits(listing.entries, ratio=SplitRatio(train=40, val=30, test=30), seed=0).split_of


def people_across_splits(entries: Iterable[Entry], splits: dict[str, str]) -> set[str]:
    """Everyone whose video, or a fake made with whom, lies in two splits; read from the files' names alone."""
    splits_by_person: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        stem = Path(entry.video_id).stem
        kind = "actor" if "__" in stem else "youtube"
        for number in stem.split("__")[0].split("_"):
            splits_by_person[f"{kind} {number}"].add(splits[entry.video_id])
    return {name for name, used_splits in splits_by_person.items() if len(used_splits) > 1}


# --- what is recognised


def test_every_video_of_the_set_is_listed_once_with_the_label_of_its_folder(ffpp: Path) -> None:
    listing = list_source(ffpp)
    real, fake = ffpp_names()
    assert (listing.layout, listing.labels) == ("ffpp", ("real", "fake"))
    assert sorted(entry.video_id for entry in listing.entries) == sorted(real + fake)
    assert {entry.video_id for entry in listing.entries if entry.label == 0} == set(real)
    assert {entry.video_id for entry in listing.entries if entry.label == 1} == set(fake)
    assert {entry.dataset for entry in listing.entries} == {"ffpp"}
    assert not any(entry.problem for entry in listing.entries)
    assert listing.missing == []


def test_extracted_frames_are_no_inputs_and_are_counted(ffpp: Path) -> None:
    assert list_source(ffpp).ignored == {"in images/": 3}


# --- masks


def test_a_fake_s_mask_is_the_video_of_its_name_whatever_its_compression(ffpp: Path) -> None:
    entries = list_source(ffpp).entries
    masks = {entry.video_id: entry.mask_id for entry in entries if entry.mask_id}
    expected = {
        f"{FAKES}/Deepfakes/{grade}/videos/{name}.mp4": f"{FAKES}/Deepfakes/masks/videos/{name}.mp4"
        for grade in ("c23", "raw")
        for name in fakes_of(PAIRS)
    }
    assert masks == expected
    assert not {*expected.values()} & {entry.video_id for entry in entries}, "a mask is no input"
    assert all(entry.mask_size_bytes == (ffpp / entry.mask_id).stat().st_size for entry in entries if entry.mask_id)


def test_masks_are_found_beside_a_part_of_the_set(ffpp: Path) -> None:
    listing = list_source(ffpp / FAKES / "Deepfakes/c23/videos")
    assert {Path(str(entry.mask_id)).name for entry in listing.entries} == {f"{name}.mp4" for name in fakes_of(PAIRS)}
    assert listing.ignored == {}


def test_masks_of_deepfakedetection_are_found_by_the_whole_name(mine: Path) -> None:
    fake = "01_02__kitchen_pan__YVGY8LOK.mp4"
    mask = mine / FAKES / "DeepFakeDetection/masks/videos" / fake
    mask.parent.mkdir(parents=True)
    mask.touch()
    masks = {entry.mask_id for entry in list_source(mine).entries if entry.method == "DeepFakeDetection"}
    assert masks == {None, mask.relative_to(mine).as_posix()}


def test_masks_in_a_folder_called_mask_are_the_fakes_own_too(mine: Path) -> None:
    plain = list_source(mine)
    (mine / FAKES / "Deepfakes/masks").rename(mine / FAKES / "Deepfakes/mask")
    listing = list_source(mine)
    assert {entry.video_id: entry.mask_id for entry in listing.entries} == {
        entry.video_id: entry.mask_id and entry.mask_id.replace("masks", "mask") for entry in plain.entries
    }
    assert listing.ignored == plain.ignored


def test_masks_that_belong_to_no_fake_here_are_counted_as_ignored(mine: Path) -> None:
    (mine / FAKES / "Deepfakes/masks/videos/000_001.mp4").touch()
    (mine / FAKES / "Deepfakes/masks/readme.txt").touch()
    assert list_source(mine).ignored == {"in images/": 3, "in masks/": 2}


def test_a_flat_copy_may_have_masks_in_the_folder_of_a_method(tmp_path: Path, footage: Footage) -> None:
    masks = [f"Deepfakes/masks/videos/{name}.mp4" for name in fakes_of(PAIRS)]
    flat = footage.lay(tmp_path / "c23", fake=[f"Deepfakes/{name}.mp4" for name in fakes_of(PAIRS)] + masks)
    assert sorted(str(entry.mask_id) for entry in list_source(flat).entries) == sorted(masks)


@pytest.mark.parametrize(
    ("path", "source_id", "identity", "related", "method", "grade"),
    [
        (f"{C23}/033.mp4", None, "youtube/033", (), None, "c23"),
        ("original_sequences/youtube/raw/videos/097.mp4", None, "youtube/097", (), None, "raw"),
        ("original_sequences/actors/c23/videos/01__kitchen_pan.mp4", None, "actors/01", (), None, "c23"),
        (f"{FAKES}/Deepfakes/c23/videos/033_097.mp4", f"{C23}/033.mp4", "youtube/097", ("youtube/033",), "Deepfakes",
         "c23"),
        (f"{FAKES}/Deepfakes/raw/videos/097_033.mp4", "original_sequences/youtube/raw/videos/097.mp4", "youtube/033",
         ("youtube/097",), "Deepfakes", "raw"),
        # The face stays the target's: only its expression is the source's.
        (f"{FAKES}/NeuralTextures/c23/videos/033_097.mp4", f"{C23}/033.mp4", "youtube/033", ("youtube/097",),
         "NeuralTextures", "c23"),
        (f"{FAKES}/DeepFakeDetection/c23/videos/01_02__kitchen_pan__YVGY8LOK.mp4",
         "original_sequences/actors/c23/videos/01__kitchen_pan.mp4", "actors/02", ("actors/01",), "DeepFakeDetection",
         "c23"),
    ],
)  # fmt: skip
def test_a_name_says_whose_video_and_whose_face_it_is(
    ffpp: Path,
    path: str,
    source_id: str | None,
    identity: str,
    related: tuple[str, ...],
    method: str | None,
    grade: str,
) -> None:
    entry = by_name(list_source(ffpp))[path]
    assert (entry.source_id, entry.identity, entry.related_identities) == (source_id, identity, related)
    assert (entry.method, entry.compression) == (method, grade)


@pytest.mark.parametrize(
    ("path", "label", "method", "grade", "people"),
    [
        (f"{C23}/holiday.mp4", 0, None, "c23", ()),
        (f"{C23}/033_097.mp4", 0, None, "c23", ("youtube/033", "youtube/097")),
        ("original_sequences/youtube/c15/videos/033.mp4", 0, None, None, ("youtube/033",)),
        ("original_sequences/friends/c23/videos/033.mp4", 0, None, "c23", ("youtube/033",)),
        (f"{FAKES}/MyMethod/c23/videos/033_097.mp4", 1, "MyMethod", "c23", ("youtube/033", "youtube/097")),
        (f"{FAKES}/Deepfakes/c23/videos/033.mp4", 1, "Deepfakes", "c23", ("youtube/033",)),
        (f"{FAKES}/c23/Deepfakes/033_097.mp4", 1, "c23", None, ("youtube/033", "youtube/097")),
        (f"{FAKES}/Deepfakes/c23/videos/01_02__hall__YVGY8LOK.mp4", 1, "Deepfakes", "c23", ("actors/01", "actors/02")),
        (f"{FAKES}/033_097.mp4", 1, None, None, ("youtube/033", "youtube/097")),
        (f"{FAKES}/Deepfakes/c23/videos/097_033 <script>.mp4", 1, "Deepfakes", "c23", ("youtube/097", "youtube/033")),
        (f"{FAKES}/MyMethod/c23/videos/033_097_v2.mp4", 1, "MyMethod", "c23", ("youtube/033", "youtube/097")),
        (f"{C23}/033 again.mp4", 0, None, "c23", ("youtube/033",)),
        (f"{C23}/033_2020.mp4", 0, None, "c23", ("youtube/033",)),
        (f"{C23}/2020_033.mp4", 0, None, "c23", ()),
    ],
)
def test_in_an_unknown_place_nothing_is_guessed_but_the_people_named_are_kept_together(
    tmp_path: Path, footage: Footage, path: str, label: int, method: str | None, grade: str | None, people: tuple[str]
) -> None:
    (entry,) = list_source(footage.lay(tmp_path, real=[path])).entries
    assert (entry.label, entry.method, entry.compression) == (label, method, grade)
    assert (entry.source_id, entry.identity, entry.related_identities) == (None, None, people)


def test_a_name_that_cannot_be_read_goes_to_the_split_of_the_people_it_begins_with(
    mine: Path, footage: Footage
) -> None:
    stray = f"{FAKES}/MyMethod/c23/videos/672_720_v2.mp4"
    footage.lay(mine, fake=[stray])
    assert split_of(list_source(mine))[stray] == "test"


def test_the_older_name_of_raw_is_raw(tmp_path: Path, footage: Footage) -> None:
    names = ["original_sequences/youtube/c0/videos/033.mp4", f"{FAKES}/FaceSwap/c0/videos/033_097.mp4"]
    fake, real = sorted(list_source(footage.lay(tmp_path, real=names)).entries, key=lambda entry: entry.video_id)
    assert {fake.compression, real.compression} == {"raw"}
    assert fake.source_id == real.video_id


def test_media_beside_the_sequences_are_counted_not_taken(mine: Path, footage: Footage) -> None:
    footage.lay(mine, real=["downloaded_videos/abc/abc.mp4", "downloaded_videos/abc/extracted.mp4", "teaser.mp4"])
    listing = list_source(mine)
    assert len(listing.entries) == sum(map(len, ffpp_names()))
    assert listing.ignored["in downloaded_videos/"] == 2
    assert listing.ignored["media beside the sequences"] == 1


def test_a_folder_of_landmarks_alone_says_what_it_holds(tmp_path: Path) -> None:
    frames = tmp_path / "original_sequences/youtube/c23/landmarks/033"
    frames.mkdir(parents=True)
    (frames / "0000.npy").touch()
    with pytest.raises(UsageError, match=r"holds no video and no image but 1 in landmarks/ \(layout ffpp\)"):
        list_source(tmp_path)


# --- parts of it


@pytest.mark.parametrize(
    "part",
    [FAKES, f"{FAKES}/Deepfakes", f"{FAKES}/Deepfakes/raw", f"{FAKES}/NeuralTextures/c23/videos", "original_sequences"],
)
def test_a_part_says_the_same_of_its_files_as_the_whole(ffpp: Path, part: str) -> None:
    full, some = list_source(ffpp), list_source(ffpp / part)
    assert some.root == full.root
    assert some.entries == [entry for entry in full.entries if entry.video_id.startswith(part)]
    assert some.missing == []


def test_a_folder_of_masks_is_not_taken_for_videos_of_a_method(ffpp: Path) -> None:
    assert list_source(ffpp / FAKES / "Deepfakes/masks").layout == "folder"


@pytest.mark.parametrize("start", range(2))
def test_with_half_of_the_files_missing_the_rest_keeps_labels_and_splits(mine: Path, start: int) -> None:
    for frames in mine.glob("*/*/*/images"):  # which would stand for a video that is missing
        shutil.rmtree(frames)
    full = list_source(mine)
    removed = {entry.video_id for entry in full.entries[start::2] if "actors" not in str(entry.people)}
    for name in removed:
        (mine / name).unlink()
    half = list_source(mine)
    assert half.missing == sorted(removed)
    assert half.entries == [entry for entry in full.entries if entry.video_id not in removed]
    before, after = split_of(full), split_of(half)
    assert after == {name: before[name] for name in after}


def test_drawn_splits_stay_too_whichever_grade_or_method_is_missing(mine: Path) -> None:
    shutil.rmtree(mine / "splits")
    before = split_of(list_source(mine))
    for part in ("original_sequences/youtube/raw", f"{FAKES}/NeuralTextures", "original_sequences/youtube"):
        shutil.rmtree(mine / part)
        after = split_of(list_source(mine))
        assert after == {name: before[name] for name in after}, f"without {part}"


def test_originals_that_are_not_there_are_missing_and_no_failure(mine: Path) -> None:
    shutil.rmtree(mine / "splits")
    shutil.rmtree(mine / "original_sequences")
    listing = list_source(mine)
    numbers = sorted(number for pair in PAIRS for number in pair)
    assert [name for name in listing.missing if "/youtube/c23/" in name] == [
        f"{C23}/{number}.mp4" for number in numbers
    ]
    assert not any(entry.problem for entry in listing.entries)


# --- splits


def test_the_official_files_split_originals_and_both_fakes_of_each_pair(ffpp: Path) -> None:
    official = {number: split for split, pairs in SPLITS.items() for pair in pairs for number in pair}
    for entry in list_source(ffpp).entries:
        target = Path(entry.video_id).stem[:3]
        assert entry.split == official.get(target), entry.video_id
    splits = split_of(list_source(ffpp))
    assert not people_across_splits(list_source(ffpp).entries, splits)
    assert Counter(splits[name] for name in splits if "actors" not in name and "__" not in name) == {
        "train": 30, "val": 10, "test": 10,
    }  # fmt: skip


def test_split_files_may_lie_beside_the_sequences(mine: Path) -> None:
    before = list_source(mine)
    for file in (mine / "splits").iterdir():
        file.rename(mine / file.name)
    assert list_source(mine).entries == before.entries
    assert list_source(mine).ignored == before.ignored


def test_one_split_file_alone_is_no_split(mine: Path) -> None:
    for name in ("train.json", "val.json"):
        (mine / "splits" / name).unlink()
    assert {entry.split for entry in list_source(mine).entries} == {None}


@pytest.mark.parametrize("folder", ["Splits", "splits"])
def test_split_files_are_read_whatever_their_case(mine: Path, folder: str) -> None:
    given = split_of(list_source(mine))
    (mine / "splits").rename(mine / folder)
    (mine / folder / "val.json").rename(mine / folder / "VAL.json")
    assert split_of(list_source(mine)) == given


@pytest.mark.parametrize(("name", "meant"), [("split", "splits"), ("splits/valid.json", "val.json")])
def test_a_split_file_whose_name_is_nearly_right_is_refused(mine: Path, name: str, meant: str) -> None:
    (mine / ("splits" if "/" not in name else "splits/val.json")).rename(mine / name)
    with pytest.raises(UsageError, match=rf"has '{Path(name).name}', did you mean '{meant}'"):
        list_source(mine)


@pytest.mark.parametrize(
    ("gone", "warned"),
    [(("val",), "val.json is not there: splits of the videos that it lists are drawn"),
     (("train", "val"), "train.json and val.json are not there: splits are drawn, not the published"),
     (("train", "val", "test"), "train.json, val.json and test.json are not there: splits are drawn")],
)  # fmt: skip
def test_split_files_that_are_not_there_are_named(mine: Path, gone: tuple[str, ...], warned: str) -> None:
    for name in gone:
        (mine / f"splits/{name}.json").unlink()
    assert any(text.startswith(warned) for text in listing_warnings(list_source(mine)))


def test_without_split_files_nobody_is_in_two_splits_whatever_the_grade_method_or_direction(mine: Path) -> None:
    shutil.rmtree(mine / "splits")
    listing = list_source(mine)
    splits = split_of(listing)
    assert set(splits.values()) == {"train", "val", "test"}
    assert people_across_splits(listing.entries, splits) == set()


def test_nobody_is_in_two_splits_either_where_only_fakes_are_there(mine: Path) -> None:
    shutil.rmtree(mine / "splits")
    listing = list_source(mine / FAKES / "Deepfakes")
    splits = split_of(listing)
    assert len(set(splits.values())) > 1
    assert people_across_splits(listing.entries, splits) == set()


def test_a_number_in_two_split_files_is_a_leak_that_is_named(mine: Path) -> None:
    write_splits(mine / "splits", {"val": PAIRS[3:], "test": PAIRS[4:]})
    with pytest.raises(UsageError, match=r"'720' is in splits/val\.json and in splits/test\.json: a leak.*are drawn"):
        list_source(mine)


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}", "[7]", '["720", "672"]', '[["720"]]', '[["720", 672]]', '[["a", "b"]]', '[[["720", "672"]]]'],
)
def test_a_split_file_that_is_none_is_named_with_a_way_out(mine: Path, text: str) -> None:
    (mine / "splits/val.json").write_text(text)
    with pytest.raises(UsageError, match=r"val\.json: .*take the split files away"):
        list_source(mine)


def test_a_fake_whose_people_are_in_two_official_splits_is_set_aside(mine: Path, footage: Footage) -> None:
    stray = f"{FAKES}/Deepfakes/c23/videos/033_720.mp4"
    footage.lay(mine, fake=[stray])
    listing = list_source(mine)
    assert by_name(listing)[stray].split is None
    assert assign_splits(listing.entries, ratio=SplitRatio(), seed=0).bridging == [stray]


# --- the whole way


def test_the_columns_of_the_dataset_say_what_the_folders_say(
    ffpp: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    options = Options(sampling=Sampling(frames=1), keep=small_options.keep, size_px=small_options.size_px)
    summary = precompute(
        ffpp, tmp_path / "out", options=options, detector=FixedBoxDetector(), scheduler=cluster_address
    )
    real, fake = ffpp_names()
    assert summary.manifest.inputs == {
        "total": len(real) + len(fake), "ok": len(real) + len(fake), "partial": 0, "no_faces": 0,
        "failed": {}, "missing": 0,
    }  # fmt: skip
    assert verify(tmp_path / "out").findings == []
    columns = ["video_id", "source_id", "identity", "dataset", "method", "compression", "split", "label"]
    rows = pads.dataset(tmp_path / "out/faces").to_table(columns=columns).to_pylist()
    listed = by_name(list_source(ffpp))
    assert {row["video_id"] for row in rows} == set(listed)
    for row in rows:
        entry = listed[row["video_id"]]
        assert {name: row[name] for name in columns[1:6]} == {name: getattr(entry, name) for name in columns[1:6]}
        assert row["label"] == int(row["video_id"].startswith(FAKES))
        assert entry.split in (None, row["split"])
    splits = {row["video_id"]: row["split"] for row in rows}
    assert people_across_splits(listed.values(), splits) == set()
    second_run = precompute(
        ffpp, tmp_path / "out", options=options, detector=FixedBoxDetector(), scheduler=cluster_address
    )
    assert (second_run.totals.inputs, second_run.changes.changed) == (0, []), (
        "what the plan kept of each video is what it was given"
    )
