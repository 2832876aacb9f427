"""What a user notices of originals: found whatever their files were renamed to, or refused, never lost unsaid."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest
from assets_layouts import (
    CLEAN_TEST,
    Footage,
    celebdf_names,
    ffpp_names,
    lay_celebdf,
    lay_ffpp,
    write_splits,
)
from assets_layouts import SPLITS as OFFICIAL
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import Entry, Listing, list_source
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits


def by_name(listing: Listing) -> dict[str, Entry]:
    return {entry.video_id: entry for entry in listing.entries}


def renamed(root: Path, names: list[str], suffix: str) -> None:
    for name in names:
        (root / name).rename((root / name).with_suffix(suffix))


def original_in_another_split(listing: Listing) -> list[str]:
    """Fakes whose original is listed, by what the folders' own names say, and in another split."""
    splits = assign_splits(listing.entries, ratio=SplitRatio(train=40, val=30, test=30), seed=0).split_of
    fakes = [entry for entry in listing.entries if entry.source_id]
    assert {entry.source_id for entry in fakes} <= splits.keys()
    return [entry.video_id for entry in fakes if splits[str(entry.source_id)] != splits[entry.video_id]]


# --- published sets


@pytest.mark.parametrize("suffix", [".MP4", ".mkv"])
@pytest.mark.parametrize("with_list", [True, False])
def test_celeb_df_s_originals_are_found_under_another_suffix(
    tmp_path: Path, footage: Footage, suffix: str, with_list: bool
) -> None:
    root = lay_celebdf(tmp_path, footage, CLEAN_TEST if with_list else None)
    before = list_source(root)
    real, _ = celebdf_names()
    renamed(root, real, suffix)
    after = list_source(root)
    assert after.missing == []
    assert original_in_another_split(after) == []

    def summarize(listing: Listing) -> dict[str, object]:
        stem = {name: str(PurePosixPath(name).with_suffix("")) for name in by_name(listing)}
        return {
            stem[name]: (entry.label, entry.split, entry.people, entry.source_id and stem[entry.source_id])
            for name, entry in by_name(listing).items()
        }

    assert summarize(after) == summarize(before), "the list too is of the same videos"


@pytest.mark.parametrize("suffix", [".MP4", ".mkv"])
def test_faceforensics_originals_are_found_under_another_suffix(tmp_path: Path, footage: Footage, suffix: str) -> None:
    root = lay_ffpp(tmp_path, footage)
    real, fake = ffpp_names()
    renamed(root, real, suffix)
    listing = list_source(root)
    assert listing.missing == [], "the official splits list what is there"
    assert original_in_another_split(listing) == []
    assert sum(entry.source_id is not None for entry in listing.entries) == len(fake)


def test_a_part_of_faceforensics_names_originals_beside_it_as_the_whole_does(tmp_path: Path, footage: Footage) -> None:
    root = lay_ffpp(tmp_path, footage, splits=False)
    renamed(root, ffpp_names()[0], ".MOV")
    part = list_source(root / "manipulated_sequences/Deepfakes")
    whole = by_name(list_source(root))
    assert part.entries == [whole[entry.video_id] for entry in part.entries]
    assert all(str(entry.source_id).endswith(".MOV") for entry in part.entries)


@pytest.mark.parametrize(
    ("real", "fake", "people"),
    [
        ("ID2_0000.MP4", "id2_id3_0000.mp4", ("id3", "id2")),
        ("id2_0000.mp4", "ID2_ID3_0000.MP4", ("id3", "id2")),
    ],
)
def test_names_in_capitals_show_the_same_people(
    tmp_path: Path, footage: Footage, real: str, fake: str, people: tuple[str, ...]
) -> None:
    root = footage.lay(tmp_path, real=[f"Celeb-real/{real}"], fake=[f"Celeb-synthesis/{fake}"])
    entries = by_name(list_source(root))
    assert entries[f"Celeb-real/{real}"].people == ("id2",)
    assert entries[f"Celeb-synthesis/{fake}"].people == people
    assert entries[f"Celeb-synthesis/{fake}"].source_id == f"Celeb-real/{real}"


def test_of_two_originals_the_one_with_the_fakes_suffix_is_meant(tmp_path: Path, footage: Footage) -> None:
    reals = ["Celeb-real/id0_0000.avi", "Celeb-real/id0_0000.mkv", "Celeb-real/id0_0000.mp4"]
    fakes = ["Celeb-synthesis/id0_id1_0000.mp4", "Celeb-synthesis/id0_id2_0000.webm"]
    entries = by_name(list_source(footage.lay(tmp_path, real=reals, fake=fakes)))
    assert [entries[name].source_id for name in fakes] == ["Celeb-real/id0_0000.mp4", "Celeb-real/id0_0000.avi"]


def test_an_original_that_is_nowhere_has_the_fakes_suffix_and_is_missing_once(tmp_path: Path, footage: Footage) -> None:
    celebs = ["Celeb-synthesis/id0_id1_0000.MP4", "Celeb-synthesis/id0_id2_0000.MP4"]
    listing = list_source(footage.lay(tmp_path / "celebdf", fake=celebs))
    assert {entry.source_id for entry in listing.entries} == set(listing.missing) == {"Celeb-real/id0_0000.MP4"}
    videos = "original_sequences/youtube/c23/videos"
    root = footage.lay(tmp_path / "ffpp", real=[f"{videos}/672.mp4"])
    footage.lay(root, fake=["manipulated_sequences/Deepfakes/c23/videos/720_672.MP4"])
    write_splits(root / "splits", {split: OFFICIAL[split] for split in ("val", "test")})
    missing = list_source(root).missing
    assert [Path(name).stem for name in missing if name.startswith(videos)] == ["000", "003", "720"]


# --- tables and metadata


def table(root: Path, *rows: str) -> Path:
    (root / "t.csv").write_text("\n".join(["path,label,source", *rows]))
    return root / "t.csv"


def test_an_absolute_source_in_a_table_is_the_row_it_names(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path, real=["orig.mp4"], fake=["f.mp4"])
    listing = list_source(table(tmp_path, "orig.mp4,real,", f"f.mp4,fake,{tmp_path}/orig.mp4"))
    assert by_name(listing)["f.mp4"].source_id == "orig.mp4"


def test_a_source_that_goes_out_and_in_again_is_the_row_it_names(tmp_path: Path, footage: Footage) -> None:
    root = footage.lay(tmp_path / "home", real=["orig.mp4"], fake=["f.mp4"])
    listing = list_source(table(root, "orig.mp4,real,", "f.mp4,fake,../home/./orig.mp4"))
    assert by_name(listing)["f.mp4"].source_id == "orig.mp4"


def test_a_mistyped_source_counts_as_missing_once(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path, real=["a.mp4", "unlisted.mp4"], fake=["f.mp4", "g.mp4", "h.mp4", "i.mp4"])
    rows = ["a.mp4,real,", "gone.mp4,real,", "f.mp4,fake,mistyped.mp4", "g.mp4,fake,./mistyped.mp4"]
    src = table(tmp_path, *rows, "h.mp4,fake,gone.mp4", "i.mp4,fake,unlisted.mp4")
    assert list_source(src).missing == ["gone.mp4", "mistyped.mp4"]


@pytest.mark.parametrize("part", ["", "dfdc_train_part_0"])
def test_an_absolute_original_in_dfdc_s_metadata_is_refused_by_name(
    tmp_path: Path, footage: Footage, part: str
) -> None:
    folder = tmp_path / part
    footage.lay(folder, real=["orig.mp4"], fake=["f.mp4"])
    metadata = {"orig.mp4": {"label": "REAL"}, "f.mp4": {"label": "FAKE", "original": f"{folder}/orig.mp4"}}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    pattern = rf"{folder}/metadata\.json: original '{folder}/orig\.mp4' of 'f\.mp4': is an absolute path"
    with pytest.raises(UsageError, match=pattern):
        list_source(tmp_path)


def test_an_original_in_dfdc_s_metadata_may_be_written_with_dots(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path / "dfdc_train_part_0", real=["orig.mp4"], fake=["f.mp4"])
    metadata = {"orig.mp4": {"label": "REAL"}, "f.mp4": {"label": "FAKE", "original": "./orig.mp4"}}
    (tmp_path / "dfdc_train_part_0/metadata.json").write_text(json.dumps(metadata))
    assert by_name(list_source(tmp_path))["dfdc_train_part_0/f.mp4"].source_id == "dfdc_train_part_0/orig.mp4"
