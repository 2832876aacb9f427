"""Frames in folders called `033_097.mp4`, as `makedirs(out / video_name)` makes them, are those of `033_097`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from facefeed.pipeline.planning.image_clips import with_clips
from facefeed.pipeline.planning.listed_masks import with_masks
from facefeed.pipeline.sources import Entry, Listing, list_source

METADATA = {"a.mp4": {"label": "FAKE", "split": "train", "original": "b.mp4"}, "b.mp4": {"label": "REAL"}}
OFFICIAL = {
    f"splits/{split}.json": json.dumps([pair])
    for split, pair in {"train": ["033", "097"], "val": ["001", "002"], "test": ["003", "004"]}.items()
}
SETS: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {
    "ffpp": (
        [
            "original_sequences/youtube/c23/frames/033",
            "original_sequences/youtube/c23/frames/097",
            "manipulated_sequences/Deepfakes/c23/frames/033_097",
            "manipulated_sequences/Deepfakes/c23/masks/033_097",
        ],
        OFFICIAL,
    ),
    "ffpp copy": (["original/c23/033", "original/c23/097", "Deepfakes/c23/033_097"], OFFICIAL),
    "celebdf": (["Celeb-real/id0_0000", "Celeb-synthesis/id0_id1_0000", "YouTube-real/00170"], {}),
    "celebdf with its list": (
        ["Celeb-real/id0_0000", "Celeb-synthesis/id0_id1_0000", "YouTube-real/00170"],
        {"List_of_testing_videos.txt": "1 YouTube-real/00170.mp4\n"},
    ),
    "dfdc": (
        ["dfdc_train_part_0/a", "dfdc_train_part_0/b"],
        {"dfdc_train_part_0/metadata.json": json.dumps(METADATA)},
    ),
    "fakeavceleb": (
        [
            "RealVideo-RealAudio/African/men/id00076/00109",
            "FakeVideo-RealAudio/African/men/id00076/00109_id00166_wFVNyWPdmB8",
        ],
        {},
    ),
    "uadfv": (["real/0000", "fake/0000_fake"], {}),
    "ffiw": (["source/train/videos/00001", "target/train/videos/00001"], {}),
    "deeperforensics": (
        ["source_videos/M101/a", "manipulated_videos/end_to_end/033_M101"],
        {
            f"lists/splits/{split}.txt": f"{stem}\n"
            for split, stem in {"train": "033_M101", "val": "034_M101", "test": "035_M101"}.items()
        },
    ),
}


def lay(root: Path, folders: Sequence[str], lists: Mapping[str, str], suffix: str = "") -> Path:
    files = {f"{folder}{suffix}/{number:04}.png": "" for folder in folders for number in (1, 2)}
    for name, text in {**files, **lists}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def clips(root: Path) -> Listing:
    return with_masks(with_clips(list_source(root), [], [root.resolve()]), [])


def metadata(listing: Listing) -> list[Entry]:
    """The entries as they would be in folders without a suffix."""

    def plain(name: str | None) -> str | None:
        return name and name.replace(".mp4", "")

    return [
        replace(
            entry,
            video_id=str(plain(entry.video_id)),
            source_id=plain(entry.source_id),
            footage=plain(entry.footage),
            mask_id=plain(entry.mask_id),
            mtime_ns=0,
            images_digest=None,
        )
        for entry in listing.entries
    ]


@pytest.mark.parametrize("name", SETS)
def test_a_folder_of_frames_called_as_its_video_has_the_metadata_of_the_video(tmp_path: Path, name: str) -> None:
    plain = clips(lay(tmp_path / "plain", *SETS[name]))
    listing = clips(lay(tmp_path / "called", *SETS[name], suffix=".mp4"))
    assert metadata(listing) == metadata(plain)
    assert listing.missing == plain.missing
    assert listing.warnings == plain.warnings
    assert all((listing.root / entry.video_id).is_dir() for entry in listing.entries)
    assert {entry.source_id for entry in listing.entries} - {None} <= {entry.video_id for entry in listing.entries}


@pytest.mark.parametrize("name", ["ffpp", "celebdf", "dfdc", "fakeavceleb", "uadfv"])
@pytest.mark.parametrize("called_as_videos", [0, 1])
def test_an_original_is_found_where_only_one_of_the_two_folders_is_called_as_a_video(
    tmp_path: Path, name: str, called_as_videos: int
) -> None:
    folders, lists = SETS[name]
    names = clips(lay(tmp_path / "plain", folders, lists)).entries
    for label in (0, 1):
        of_label = [entry.video_id for entry in names if entry.label == label]
        lay(tmp_path / "mixed", of_label, lists, ".mp4" if label == called_as_videos else "")
    fakes = [entry for entry in clips(tmp_path / "mixed").entries if entry.label == 1]
    assert all(fake.num_images and fake.source_id for fake in fakes)
    assert all((tmp_path / "mixed" / str(fake.source_id)).is_dir() for fake in fakes)


@pytest.mark.parametrize(("frames", "masks"), [("", ".mp4"), (".mp4", "")])
def test_masks_are_found_where_only_one_of_the_two_folders_is_called_as_a_video(
    tmp_path: Path, frames: str, masks: str
) -> None:
    lay(tmp_path, ["original_sequences/youtube/c23/frames/033"], {}, frames)
    lay(tmp_path, ["manipulated_sequences/Deepfakes/c23/frames/033_097"], {}, frames)
    mask = f"manipulated_sequences/Deepfakes/masks/033_097{masks}"
    lay(tmp_path, [mask], {})
    assert [entry.mask_id for entry in clips(tmp_path).entries if entry.label == 1] == [mask]


def test_a_mask_video_is_no_mask_of_frames_in_a_folder_of_its_name(tmp_path: Path) -> None:
    lay(tmp_path, ["manipulated_sequences/Deepfakes/c23/frames/033_097"], {}, ".mp4")
    lay(tmp_path, [], {"manipulated_sequences/Deepfakes/masks/033_097.mp4": ""})
    assert [entry.mask_id for entry in clips(tmp_path).entries] == [None]
