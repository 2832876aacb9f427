"""What a user notices of FaceForensics++ with levels of folders left out or called after classes: the same columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from assets_layouts import PAIRS, SPLITS, Footage, fakes_of, write_splits
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import Entry, list_source, listing_warnings

FAKE = "033_097.mp4"
NUMBERS = [number for pair in PAIRS for number in pair]
REAL_FOLDERS = ("real", "Real", "reals", "originals", "original_videos", "pristine", "0_real")


def lay(root: Path, footage: Footage, originals: str, fakes: str) -> Path:
    """All pairs in these two folders, and the official splits."""
    real, fake = (
        [f"{originals}/{number}.mp4" for number in NUMBERS],
        [f"{fakes}/{name}.mp4" for name in fakes_of(PAIRS)],
    )
    footage.lay(root, real=real, fake=fake)
    write_splits(root / "splits", SPLITS)
    return root


def by_stem(src: Path) -> dict[str, Entry]:
    listing = list_source(src)
    assert (listing.layout, listing.missing) == ("ffpp", [])
    return {Path(entry.video_id).stem: entry for entry in listing.entries}


def columns(entry: Entry) -> tuple[object, ...]:
    original = entry.source_id and Path(entry.source_id).stem
    return entry.label, entry.method, entry.identity, entry.related_identities, entry.split, original


# --- which folders may be absent, or be called after the class


@pytest.mark.parametrize(
    ("originals", "fakes"),
    [
        ("original_sequences/c23", "manipulated_sequences/Deepfakes/c23"),
        ("original_sequences/youtube/c23", "manipulated_sequences/Deepfakes/c23"),
        ("original_sequences/c23/videos", "manipulated_sequences/Deepfakes/c23"),
        ("original_sequences/youtube/c23", "manipulated_sequences/Deepfakes/c23/videos"),
        ("original_sequences", "manipulated_sequences/DF"),
        ("original_sequences/videos", "manipulated_sequences/Deepfakes/videos"),
        ("original_sequences/c23", "fake/Deepfakes/c23"),
        ("real/c23", "manipulated_sequences/Deepfakes/c23"),
        *((real, "DF") for real in REAL_FOLDERS),
        ("real/videos", "Deepfakes"),
        ("real/c40/videos", "Deepfakes/c40/videos"),
        *((real, "fake/Deepfakes") for real in REAL_FOLDERS),
        ("0_real", "1_fake/Deepfakes"),
        ("original", "Manipulated/DF"),
        ("real/youtube/c23/videos", "fake/Deepfakes/c23/videos"),
    ],
)
def test_originals_people_and_splits_are_found_wherever_a_copy_has_the_videos(
    tmp_path: Path, footage: Footage, originals: str, fakes: str
) -> None:
    published = lay(
        tmp_path / "published", footage, "original_sequences/youtube/c23/videos",
        "manipulated_sequences/Deepfakes/c23/videos",
    )  # fmt: skip
    copy = lay(tmp_path / "copy", footage, originals, fakes)
    found = by_stem(copy)
    assert {stem: columns(entry) for stem, entry in found.items()} == {
        stem: columns(entry) for stem, entry in by_stem(published).items()
    }
    assert {entry.source_id for entry in found.values() if entry.label} == {f"{originals}/{n}.mp4" for n in NUMBERS}
    listing = list_source(copy)
    assert listing_warnings(listing) == []
    for part in {originals.split("/", maxsplit=1)[0], fakes.split("/", maxsplit=1)[0], fakes}:
        entries = [entry for entry in listing.entries if entry.video_id.startswith(f"{part}/")]
        assert list_source(copy / part).entries == entries, "a part says the same of its files"


def test_a_grade_that_only_the_folder_of_the_set_names_is_its_compression(tmp_path: Path, footage: Footage) -> None:
    src = lay(tmp_path / "FF++_c40", footage, "real", "fake/Deepfakes")
    assert {entry.compression for entry in list_source(src).entries} == {"c40"}


def test_masks_are_found_without_the_folder_of_videos(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(
        tmp_path, real=["original_sequences/c23/033.mp4"],
        fake=[f"manipulated_sequences/DF/{folder}/{FAKE}" for folder in ("c23", "mask")],
    )  # fmt: skip
    assert by_stem(src)["033_097"].mask_id == f"manipulated_sequences/DF/mask/{FAKE}"
    assert list_source(src).ignored == {}


def test_an_original_of_another_grade_is_missing_rather_than_taken(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, real=["original_sequences/033.mp4"], fake=[f"manipulated_sequences/DF/c40/{FAKE}"])
    assert list_source(src).missing == ["original_sequences/c40/033.mp4"]


def test_videos_of_the_set_in_folders_that_it_does_not_have_are_reported_with_those_that_it_has(
    tmp_path: Path, footage: Footage
) -> None:
    stray = f"manipulated_sequences/c23/Deepfakes/{FAKE}"
    src = footage.lay(tmp_path, real=["original_sequences/c23/033.mp4"], fake=[stray])
    text = "\n".join(listing_warnings(list_source(src)))
    assert "1 video is called as those of FaceForensics++, but in folders of which it has no such" in text
    assert f"({stray!r})" in text
    assert "move them to original_sequences/[youtube or actors]/[c23]/[videos]/ and manipulated_sequences/" in text


# --- never a set without reals beside a folder of reals


@pytest.mark.parametrize(
    ("real", "fake", "published"),
    [("source/033.mp4", f"F2F/{FAKE}", "original"), ("youtube/c23/videos/033.mp4", f"F2F/{FAKE}", "original"),
     ("real/anna.mp4", f"F2F/{FAKE}", "original"), ("1_real/033.mp4", f"F2F/{FAKE}", "original"),
     ("youtube/c23/videos/033.mp4", f"manipulated_sequences/DF/c23/videos/{FAKE}", "original_sequences"),
     ("real/anna.mp4", f"manipulated_sequences/DF/c23/videos/{FAKE}", "original_sequences")],
)  # fmt: skip
def test_a_folder_that_may_be_that_of_the_originals_is_refused_with_the_name_that_is_meant(
    tmp_path: Path, footage: Footage, real: str, fake: str, published: str
) -> None:
    src = footage.lay(tmp_path, real=[real], fake=[fake])
    folder = real.split("/", maxsplit=1)[0]
    with pytest.raises(UsageError, match=f"no folder '{published}' of originals, and '{folder}' .*rename it to"):
        list_source(src)
    (src / folder).rename(src / published)
    assert {entry.label for entry in list_source(src).entries} == {0, 1}


def test_two_folders_that_are_called_after_the_class_and_hold_originals_are_refused(
    tmp_path: Path, footage: Footage
) -> None:
    src = footage.lay(tmp_path, real=["real/033.mp4", "pristine/033.mp4"], fake=[f"F2F/{FAKE}"])
    with pytest.raises(UsageError, match="'pristine' and 'real' are both folders of the originals"):
        list_source(src)


@pytest.mark.parametrize("second", ["real/anna.mp4", "real/035.mp4", "more/035.mp4"])
def test_beside_the_published_folder_of_originals_a_second_one_is_refused_rather_than_left_out(
    tmp_path: Path, footage: Footage, second: str
) -> None:
    src = footage.lay(tmp_path, real=["original/033.mp4", second], fake=[f"F2F/{FAKE}"])
    folder = second.split("/", maxsplit=1)[0]
    with pytest.raises(UsageError, match=f"'{folder}' .*would be left out.*move its videos into 'original'"):
        list_source(src)
