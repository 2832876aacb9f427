"""Frames that were extracted from a video stay together, whatever layout lists them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline.errors import RefusedError
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.sources import Entry, Listing, list_source
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits

RATIO = SplitRatio(train=50, val=25, test=25)
CLIPS = [f"{label}/clip{number:02}" for label in ("real", "fake") for number in range(8)]


def lay(root: Path, names: Iterable[str]) -> Path:
    """Files that are listed and never opened."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def frames(folder: str, count: int = 6) -> list[str]:
    return [f"{folder}/{number:04}.png" for number in range(count)]


def splits_of(listing: Listing) -> dict[str, str]:
    return assign_splits(listing.entries, ratio=RATIO, seed=0).split_of


def in_several(listing: Listing, clip_of: dict[str, str]) -> list[str]:
    """Clips whose frames were drawn into more than one split."""
    splits = defaultdict(set)
    for name, split in splits_of(listing).items():
        splits[clip_of[name]].add(split)
    return [clip for clip, used_splits in splits.items() if len(used_splits) > 1]


def groups(listing: Listing) -> list[list[str]]:
    """What stays together, by the last part of each name; images alone are left out."""
    names_by_footage = defaultdict(list)
    for entry in listing.entries:
        if entry.footage:
            names_by_footage[entry.footage].append(entry.video_id.rpartition("/")[2])
    return sorted(names for names in names_by_footage.values() if len(names) > 1)


def test_frames_of_one_clip_are_never_in_two_splits(tmp_path: Path) -> None:
    clip_of = {name: clip for clip in CLIPS for name in frames(clip)}
    listing = list_source(lay(tmp_path, clip_of))
    assert in_several(listing, clip_of) == []
    assert set(splits_of(listing).values()) == {"train", "val", "test"}


def test_frames_of_a_table_are_never_in_two_splits(tmp_path: Path) -> None:
    clip_of = {name: clip for clip in CLIPS for name in frames(clip)}
    lay(tmp_path, clip_of)
    table = tmp_path / "table.csv"
    table.write_text("path,label\n" + "".join(f"{name},{name[:4]}\n" for name in clip_of))
    assert in_several(list_source(table), clip_of) == []


def test_a_table_that_puts_frames_of_one_clip_into_two_splits_is_a_leak(tmp_path: Path) -> None:
    names = frames("real/clip")
    lay(tmp_path, names)
    table = tmp_path / "table.csv"
    rows = [f"{name},real,{'train' if number % 2 else 'val'}\n" for number, name in enumerate(names)]
    table.write_text("path,label,split\n" + "".join(rows))
    with pytest.raises(RefusedError, match="a leak"):
        splits_of(list_source(table))


def test_a_table_may_say_itself_which_footage_an_input_is_of(tmp_path: Path) -> None:
    names = ["shoot/1.png", "shoot/2.png", "shoot/3.png", "part1.mp4", "part2.mp4"]
    lay(tmp_path, names)
    table = tmp_path / "table.csv"
    footage = ["", "", "other", "other", "talk"]
    table.write_text("path,label,footage\n" + "".join(f"{a},real,{b}\n" for a, b in zip(names, footage, strict=True)))
    assert groups(list_source(table)) == [["part1.mp4", "3.png"]]


def write_labels(root: Path, label_of: dict[str, str]) -> Path:
    lay(root, label_of)
    table = root / "table.csv"
    table.write_text("path,label\n" + "".join(f"{name},{label}\n" for name, label in label_of.items()))
    return table


@pytest.mark.parametrize("below", ["", "/frames"])
def test_clips_called_by_numbers_are_never_in_two_splits_where_labels_are_numbers(tmp_path: Path, below: str) -> None:
    clip_of = {name: str(number) for number in range(40) for name in frames(f"clips/{number}{below}")}
    table = write_labels(tmp_path, {name: str(int(clip) % 2) for name, clip in clip_of.items()})
    assert in_several(list_source(table), clip_of) == []


def test_folders_called_after_labels_that_are_numbers_collect_images(tmp_path: Path) -> None:
    label_of = {name: label for label in "01" for split in ("a", "b") for name in frames(f"{split}/{label}")}
    corrected = label_of | {"a/0/0003.png": "1"} | dict.fromkeys(frames("other/7"), "1")
    assert groups(list_source(write_labels(tmp_path, corrected))) == [[f"{number:04}.png" for number in range(6)]]
    swapped = {name: str(1 - int(label)) for name, label in label_of.items()}
    assert len(groups(list_source(write_labels(tmp_path / "swapped", swapped)))) == 4, "no folder has its label"


@pytest.mark.parametrize(
    ("names", "together"),
    [
        (frames("talk", 2), [["0000.png", "0001.png"]]),
        (["talk/frames/1.jpg", "talk/faces/1.jpg"], [["1.jpg", "1.jpg"]]),
        (["real/frames/clip_1.jpg", "real/frames/clip_2.jpg"], [["clip_1.jpg", "clip_2.jpg"]]),
        (["real/a_0001.png", "real/a_0002.png", "real/b_0001.png", "real/b_0002.png"],
         [["a_0001.png", "a_0002.png"], ["b_0001.png", "b_0002.png"]]),
        # Clip and frame, or clip, frame and face? Either way nothing of one clip is parted.
        (["real/033_097_1.png", "real/033_098_1.png", "real/034_097_1.png", "real/034_097_2.png"],
         [["033_097_1.png", "033_098_1.png"], ["034_097_1.png", "034_097_2.png"]]),
        (["real/a_1.png", "fake/a_1.png"], []),
        (["a 1.png", "a 2.png"], [["a 1.png", "a 2.png"]]),
        (["real/00001.jpg", "real/00002.jpg"], []),  # numbered photos
        (["real/IMG_0001.jpg", "real/IMG_0002.jpg", "real/real_1.jpg", "real/real_2.jpg"], []),
        (["real/hv_0012_0.jpg", "real/hv_0012_1.jpg", "real/hv_0048_0.jpg", "real/dk_0012_0.jpg", "real/dk_0048_0.jpg"],
         [["dk_0012_0.jpg", "dk_0048_0.jpg"], ["hv_0012_0.jpg", "hv_0012_1.jpg", "hv_0048_0.jpg"]]),
        (["fake/000_003_0012.png", "fake/000_003_0048.png", "fake/004_982_0012.png", "fake/004_982_0048.png"],
         [["000_003_0012.png", "000_003_0048.png"], ["004_982_0012.png", "004_982_0048.png"]]),
        (["train/real/anna.jpg", "train/real/bert.jpg"], []),
        (["real/a_1.mp4", "real/a_2.mp4"], []),  # videos are clips of their own
    ],
)  # fmt: skip
def test_what_counts_as_one_clip(tmp_path: Path, names: list[str], together: list[list[str]]) -> None:
    assert groups(list_source(lay(tmp_path, names))) == together


FFPP = {
    **{name: f"{number}" for number in ("033", "097", "035", "036")
       for name in frames(f"original_sequences/youtube/c23/frames/{number}")},
    **{name: target for target, source in (("033", "097"), ("097", "033"), ("035", "036"), ("036", "035"))
       for name in frames(f"manipulated_sequences/Deepfakes/c23/frames/{target}_{source}")},
}  # fmt: skip


def by_name(listing: Listing) -> dict[str, Entry]:
    return {entry.video_id: entry for entry in listing.entries}


def test_faceforensics_of_extracted_frames_says_what_its_clips_are_called(tmp_path: Path) -> None:
    listing = list_source(lay(tmp_path, FFPP))
    assert (listing.layout, listing.format_class_counts(), listing.missing) == ("ffpp", "24 real, 24 fake", [])
    entry = by_name(listing)["manipulated_sequences/Deepfakes/c23/frames/033_097/0003.png"]
    assert entry.source_id == "original_sequences/youtube/c23/frames/033/0003.png"
    assert (entry.identity, entry.related_identities, entry.method) == ("youtube/097", ("youtube/033",), "Deepfakes")
    assert in_several(listing, FFPP) == []


def test_the_number_of_a_frame_is_nobody_s_name(tmp_path: Path) -> None:
    names = ["original_sequences/youtube/c23/frames/033/097.png", "original_sequences/youtube/c23/frames/talk/033.png"]
    entries = by_name(list_source(lay(tmp_path, names)))
    assert [entries[name].people for name in names] == [("youtube/033",), ()]


def test_the_official_splits_count_for_frames_too(tmp_path: Path) -> None:
    lay(tmp_path, FFPP)
    (tmp_path / "splits").mkdir()
    for split, pair in (("train", ["033", "097"]), ("test", ["035", "036"])):
        (tmp_path / "splits" / f"{split}.json").write_text(f'[["{pair[0]}", "{pair[1]}"]]')
    listing = list_source(tmp_path)
    assert {entry.split for entry in listing.entries if FFPP[entry.video_id] in ("033", "097")} == {"train"}
    assert {entry.split for entry in listing.entries if FFPP[entry.video_id] in ("035", "036")} == {"test"}


CELEB = {
    **dict.fromkeys(frames("Celeb-real/frames/id0_0000"), "real"),
    **dict.fromkeys(frames("Celeb-synthesis/frames/id0_id1_0000"), "real"),
    **dict.fromkeys(frames("YouTube-real/frames/00170"), "other"),
}  # fmt: skip


def test_celeb_df_of_extracted_frames_says_what_its_clips_are_called(tmp_path: Path) -> None:
    lay(tmp_path, CELEB)
    (tmp_path / "List_of_testing_videos.txt").write_text("1 YouTube-real/00170.mp4\n")
    listing = list_source(tmp_path)
    assert (listing.layout, listing.format_class_counts()) == ("celebdf", "12 real, 6 fake")
    entry = by_name(listing)["Celeb-synthesis/frames/id0_id1_0000/0002.png"]
    assert (entry.source_id, entry.identity, entry.related_identities) == (
        "Celeb-real/frames/id0_0000/0002.png", "id1", ("id0",))  # fmt: skip
    assert {entry.split for entry in listing.entries if CELEB[entry.video_id] == "real"} == {"train"}
    assert {entry.split for entry in listing.entries if CELEB[entry.video_id] == "other"} == {"test"}
    assert listing.missing == []


def test_a_fake_s_frames_stay_with_its_original_s_also_where_people_are_given_up(tmp_path: Path) -> None:
    listing = list_source(lay(tmp_path, CELEB))
    footage = {entry.footage for entry in listing.entries if CELEB[entry.video_id] == "real"}
    assert len(footage) == 1
    assert None not in footage


@pytest.mark.parametrize("folder", ["Celeb-real", "Celeb-real/videos", "original_sequences/youtube/c23/videos"])
def test_an_image_in_the_folder_of_the_videos_is_called_by_its_own_name(tmp_path: Path, folder: str) -> None:
    (entry,) = list_source(lay(tmp_path, [f"{folder}/{'id0_0000' if 'Celeb' in folder else '033'}.png"])).entries
    assert entry.identity in ("id0", "youtube/033")


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        ([f"{clip}/{label}/1.png" for clip in ("v07", "v08") for label in ("real", "fake")], True),
        ([f"{clip}/0_real/faces/img_{number}.png" for clip in ("a/v07", "a/v08") for number in range(2)], True),
        ([f"{clip}/real/anna.png" for clip in ("v07", "v08")], False),  # photos
        ([f"{clip}/real/talk_{number}.png" for clip in ("v07", "v08") for number in range(2)], False),  # of `talk`
        ([f"set/{label}/{number}.png" for label in ("real", "fake") for number in range(2)], False),
        ([f"{split}/v07/real/1.png" for split in ("train", "test")], False),
        ([f"train/{clip}/real/1.png" for clip in ("v07", "v08")] + ["test/v09/real/1.png"], False),  # splits are given
    ],
)
def test_frames_that_splits_may_separate_since_their_folder_is_called_after_a_class_are_a_warning(
    tmp_path: Path, names: list[str], warned: bool
) -> None:
    assert len(separable_frames(lay(tmp_path / "src", names))) == warned


def separable_frames(src: Path, **options: Any) -> list[str]:
    """The warnings of a run on frames that splits may separate."""
    _, listing, _ = prepare_job(src, src.parent / "out", allow_unlabelled=True, **options)
    return [text for text in listing.warnings if "splits may separate" in text]


def test_frames_whose_splits_a_file_gives_are_no_warning(tmp_path: Path) -> None:
    names = [f"{clip}/{label}/1.png" for clip in ("v07", "v08") for label in ("real", "fake")]
    splits = tmp_path / "splits.json"
    splits.write_text(json.dumps({"train": names[:2], "val": names[2:]}))
    assert separable_frames(lay(tmp_path / "src", names), splits=splits) == []


def test_the_warning_of_frames_that_splits_may_separate_names_where_they_are_one_clip(tmp_path: Path) -> None:
    names = [name for clip in ("a/v07", "a/v08") for label in ("real", "fake") for name in frames(f"{clip}/{label}")]
    (warning,) = separable_frames(lay(tmp_path / "src", names))
    assert warning == (
        "24 numbered images in folders such as 'a/v07/fake' are inputs of their own, which splits may separate: a "
        "folder called after a class or a split collects images; where 'a/v07' is a clip, move its frames into folders "
        "such as 'a/fake/v07', or name it in the column footage of a table"
    )
    moved = ["a/fake/v07", "a/fake/v08", "a/real/v07", "a/real/v08"]
    clip_of = {name: clip for clip in moved for name in frames(clip)}
    assert in_several(list_source(lay(tmp_path / "moved", clip_of)), clip_of) == []
