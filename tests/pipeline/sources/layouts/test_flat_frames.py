"""Frames of several videos in one folder of a published set, as `c23/frames/033_097_0001.png`, are of their videos."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from facefeed.pipeline.planning.image_clips import with_clips
from facefeed.pipeline.sources import Entry, Listing, list_source, listing_warnings
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits

PAIRS = {"train": ["033", "097"], "val": ["001", "002"], "test": ["003", "004"]}
FFPP_PLACES = [
    ("original_sequences/youtube/c23/frames", "manipulated_sequences/Deepfakes/c23/frames"),
    ("original_sequences/youtube/c23", "manipulated_sequences/Deepfakes/c23"),
    ("original_sequences/youtube", "manipulated_sequences/Deepfakes"),
    ("original_sequences/c23/faces", "manipulated_sequences/Deepfakes/c23/faces"),
]


def lay(root: Path, names: Iterable[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def listed(root: Path) -> Listing:
    return with_clips(list_source(root), [], [root.resolve()])


def by_name(listing: Listing) -> dict[str, Entry]:
    return {entry.video_id: entry for entry in listing.entries}


def lay_ffpp(root: Path, originals: str, fakes: str, end: str = "_{:04}.png") -> Path:
    for split, pair in PAIRS.items():
        lay(root, [f"splits/{split}.json"])
        (root / f"splits/{split}.json").write_text(json.dumps([pair]))
        a, b = pair
        lay(root, (f"{originals}/{stem}{end.format(frame)}" for stem in (a, b) for frame in (1, 2)))
        lay(root, (f"{fakes}/{stem}{end.format(frame)}" for stem in (f"{a}_{b}", f"{b}_{a}") for frame in (1, 2)))
    return root


@pytest.mark.parametrize(("originals", "fakes"), FFPP_PLACES)
@pytest.mark.parametrize("end", ["_{:04}.png", "_{:03}.png", "_{:04}_0.png"])
def test_flat_frames_of_ffpp_have_the_split_original_and_people_of_their_video(
    tmp_path: Path, originals: str, fakes: str, end: str
) -> None:
    listing = listed(lay_ffpp(tmp_path, originals, fakes, end))
    fake = by_name(listing)[f"{fakes}/001_002{end.format(2)}"]
    assert (fake.split, fake.source_id) == ("val", f"{originals}/001{end.format(2)}")
    assert (fake.label, fake.method, fake.people) == (1, "Deepfakes", ("youtube/002", "youtube/001"))
    assert all(entry.split and entry.identity and not entry.num_images for entry in listing.entries)
    assert {entry.footage for entry in listing.entries} == {
        f"youtube/{stem}" for pair in PAIRS.values() for stem in pair
    }
    assert listing.missing == []
    assert listing.warnings == ()


@pytest.mark.parametrize("end", ["_{:04}.png", "_{:03}_0.png"])
def test_flat_frames_of_actors_are_of_their_recording_whatever_its_scene_is_called(tmp_path: Path, end: str) -> None:
    original = f"original_sequences/actors/c23/01__kitchen_pan{end}"
    fake = f"manipulated_sequences/DeepFakeDetection/c23/01_02__kitchen_pan__YVGY8LOK{end}"
    listing = listed(lay(tmp_path, (name.format(number) for name in (original, fake) for number in (1, 2))))
    assert {entry.footage for entry in listing.entries} == {"actors/01__kitchen_pan"}
    assert by_name(listing)[fake.format(2)].source_id == original.format(2)
    assert listing.missing == []


def test_flat_frames_of_celebdf_pp_are_of_their_video_whoever_drives_it(tmp_path: Path) -> None:
    fake = "Celeb-synthesis/TalkingFace/FLOAT/id0_0000_driven_by_id2"
    frames = [f"{stem}_{number:04}.png" for stem in (fake, "Celeb-real/id0_0000") for number in (1, 2)]
    lay(tmp_path, [*frames, "Celeb-real/id3_0000_0001.png"])
    (tmp_path / "List_of_testing_videos.txt").write_text(f"0 {fake}.mp4\n1 Celeb-real/id0_0000.mp4\n")
    entries = by_name(listed(tmp_path))
    assert {entries[name].split for name in frames} == {"test"}
    assert len({entries[name].footage for name in frames}) == 1


def test_flat_frames_of_ffpp_without_lists_are_drawn_clip_by_clip(tmp_path: Path) -> None:
    root = lay_ffpp(tmp_path, *FFPP_PLACES[1])
    for split in PAIRS:
        (root / f"splits/{split}.json").unlink()
    entries = listed(root).entries
    splits = assign_splits(entries, ratio=SplitRatio(train=34, val=33, test=33), seed=0).split_of
    assert set(splits.values()) == {"train", "val", "test"}
    splits_of = defaultdict(set)
    for entry in entries:
        splits_of[entry.footage].add(splits[entry.video_id])
    assert all(len(used) == 1 for used in splits_of.values())


def test_an_original_whose_flat_frames_are_not_there_is_missing_once(tmp_path: Path) -> None:
    lay(tmp_path, (f"manipulated_sequences/Deepfakes/c23/frames/033_097_{frame:04}.png" for frame in range(3)))
    assert list_source(tmp_path).missing == ["original_sequences/youtube/c23/videos/033.mp4"]


def test_a_folder_of_one_clip_in_the_folder_of_a_method_stays_one_clip(tmp_path: Path) -> None:
    lay(tmp_path, ["original_sequences/youtube/c23/033/033_001.png"])
    lay(tmp_path, ["manipulated_sequences/Deepfakes/c23/033_097/033_097_001.png"])
    lay(tmp_path, ["manipulated_sequences/Deepfakes/c23/mine/033_097_001.png"])
    assert all(entry.num_images for entry in listed(tmp_path).entries)


@pytest.mark.parametrize("inner", ["", "faces/"])
def test_flat_frames_of_celebdf_have_the_original_and_people_of_their_video(tmp_path: Path, inner: str) -> None:
    real, fake, youtube = (f"{folder}/{inner}" for folder in ("Celeb-real", "Celeb-synthesis", "YouTube-real"))
    stems = [f"{real}id0_0000", f"{real}id1_0000", f"{fake}id0_id1_0000", f"{youtube}00000", f"{youtube}00001"]
    listing = listed(lay(tmp_path, (f"{stem}_{frame:03}.jpg" for stem in stems for frame in (1, 2))))
    entries = by_name(listing)
    swap = entries[f"{fake}id0_id1_0000_002.jpg"]
    assert (swap.source_id, swap.people) == (f"{real}id0_0000_002.jpg", ("id1", "id0"))
    assert swap.footage == entries[f"{real}id0_0000_001.jpg"].footage
    assert len({entry.footage for entry in listing.entries}) == 4
    assert listing.missing == []


def test_flat_frames_of_celebdf_follow_the_list(tmp_path: Path) -> None:
    lay(tmp_path, ["Celeb-real/id0_0000_001.jpg", "YouTube-real/00170_001.jpg", "YouTube-real/00171_001.jpg"])
    (tmp_path / "List_of_testing_videos.txt").write_text("1 YouTube-real/00170.mp4\n")
    assert {name: entry.split for name, entry in by_name(listed(tmp_path)).items()} == {
        "Celeb-real/id0_0000_001.jpg": "train",
        "YouTube-real/00170_001.jpg": "test",
        "YouTube-real/00171_001.jpg": "train",
    }


def test_flat_frames_of_celeb_df_pp_are_of_their_video(tmp_path: Path) -> None:
    lay(tmp_path, ["Celeb-real/id0_0000_001.jpg", "Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000_001.jpg"])
    fake = by_name(listed(tmp_path))["Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000_001.jpg"]
    assert (fake.method, fake.source_id) == ("GHOST", "Celeb-real/id0_0000_001.jpg")


def test_a_video_and_flat_images_of_it_are_in_one_split(tmp_path: Path) -> None:
    lay(tmp_path, ["Celeb-real/id0_0000.mp4", "Celeb-real/id0_0000_1.jpg"])
    lay(tmp_path, ["YouTube-real/00170.mp4", "YouTube-real/00170_1.jpg"])
    entries = listed(tmp_path).entries
    assert len(entries) == 4
    assert len({entry.footage for entry in entries}) == 2


def test_flat_frames_of_deeperforensics_follow_the_lists(tmp_path: Path) -> None:
    for split, stem in {"train": "033_M101", "val": "034_M102", "test": "035_W103"}.items():
        lay(tmp_path, [f"lists/splits/{split}.txt", f"manipulated_videos/end_to_end/{stem}_001.png"])
        (tmp_path / f"lists/splits/{split}.txt").write_text(f"{stem}.mp4\n")
    listing = listed(tmp_path)
    assert {entry.identity: entry.split for entry in listing.entries} == {
        "M101": "train",
        "M102": "val",
        "W103": "test",
    }
    assert listing.missing == []


def test_official_lists_that_name_no_input_are_warned_of(tmp_path: Path) -> None:
    root = lay_ffpp(tmp_path, "original_sequences/youtube/mine", "manipulated_sequences/Deepfakes/mine")
    warnings = listing_warnings(list_source(root))
    assert any(text.startswith("splits/train.json, splits/val.json, splits/test.json: no input") for text in warnings)


def test_official_lists_that_name_some_inputs_are_not_warned_of(tmp_path: Path) -> None:
    root = lay_ffpp(tmp_path, *FFPP_PLACES[1])
    lay(root, ["original_sequences/youtube/mine/a.png"])
    assert not any("no input is known" in text for text in listing_warnings(list_source(root)))
