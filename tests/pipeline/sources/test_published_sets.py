"""What a user notices of sets as they are shared: each file with its label, split, original, people and method."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from assets_layouts import Footage
from assets_published import CELEBDF_PP, FFPP_KAGGLE, PUBLISHED_SETS, Columns, PublishedSet
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import Listing, list_source
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits

sets = pytest.mark.parametrize("published", PUBLISHED_SETS.values(), ids=list(PUBLISHED_SETS))


def columns_of(listing: Listing) -> dict[str, Columns]:
    return {
        entry.video_id: Columns(
            label=entry.label, split=entry.split, source_id=entry.source_id, identity=entry.identity, kin=entry.kin,
            method=entry.method, compression=entry.compression,
        )
        for entry in listing.entries
    }  # fmt: skip


@sets
def test_every_file_has_the_columns_that_the_set_says(
    tmp_path: Path, footage: Footage, published: PublishedSet
) -> None:
    listing = list_source(published.lay(tmp_path, footage))
    assert listing.layout == published.layout
    assert columns_of(listing) == published.files
    assert tuple(listing.missing) == published.missing
    assert listing.ignored == published.ignored
    assert listing.recognised_by
    assert not any(entry.problem for entry in listing.entries)


@sets
def test_a_folder_above_is_refused_with_the_path_of_the_set(
    tmp_path: Path, footage: Footage, published: PublishedSet
) -> None:
    published.lay(tmp_path / "downloads/2026", footage)
    with pytest.raises(UsageError, match=f"holds a {published.layout} set in 'downloads/2026/") as caught:
        list_source(tmp_path)
    assert published.folder in str(caught.value)


@sets
@pytest.mark.parametrize("gone", range(2))
def test_with_half_of_the_files_missing_the_rest_keeps_its_columns(
    tmp_path: Path, footage: Footage, published: PublishedSet, gone: int
) -> None:
    src = published.lay(tmp_path, footage)
    a_fake = next(name for name, columns in published.files.items() if columns.label == 1)
    lost = [name for name in sorted(published.files)[gone::2] if name != a_fake]  # some are recognised by their fakes
    for name in lost:
        (src / name).unlink()
    listing = list_source(src, published.layout)
    assert columns_of(listing) == {name: columns for name, columns in published.files.items() if name not in lost}


@sets
def test_extracted_frames_instead_of_videos_have_the_columns_of_their_video(
    tmp_path: Path, footage: Footage, published: PublishedSet
) -> None:
    src = published.lay(tmp_path, footage)
    expected = {}
    for name, columns in published.files.items():
        folder, _, file = name.rpartition("/")
        frames = f"{folder.removesuffix('videos').rstrip('/')}/frames/{Path(file).stem}".lstrip("/")
        (src / frames).mkdir(parents=True)
        (src / name).unlink()
        for number in range(2):
            (src / frames / f"{number:03}.png").touch()
            expected[f"{frames}/{number:03}.png"] = (columns.label, columns.split, columns.method, columns.identity)
    listing = list_source(src, published.layout)
    assert {
        entry.video_id: (entry.label, entry.split, entry.method, entry.identity) for entry in listing.entries
    } == expected
    ratio = SplitRatio(train=40, val=30, test=30)
    splits = assign_splits(listing.entries, ratio=ratio, seed=0, allow_leaks=True).split_of
    for clip in {name.rpartition("/")[0] for name in expected}:
        assert len({split for name, split in splits.items() if name.startswith(f"{clip}/")}) == 1


@pytest.mark.parametrize(
    ("published", "folder", "misspelt"),
    [(FFPP_KAGGLE, "NeuralTextures", "NeuralTexture"), (FFPP_KAGGLE, "original", "orginal"),
     (CELEBDF_PP, "YouTube-real", "YouTub-real"), (CELEBDF_PP, "Celeb-synthesis", "Celeb-sythesis")],
)  # fmt: skip
def test_a_folder_nearly_called_as_published_is_refused_with_the_name_that_is_meant(
    tmp_path: Path, footage: Footage, published: PublishedSet, folder: str, misspelt: str
) -> None:
    src = published.lay(tmp_path, footage)
    (src / folder).rename(src / misspelt)
    with pytest.raises(UsageError, match=f"has a folder '{misspelt}', did you mean '{folder}'"):
        list_source(src)


@pytest.mark.parametrize("folder", ["Deepfakes", "original"])
def test_one_folder_of_a_flat_ffpp_says_the_same_of_its_files_as_the_whole(
    tmp_path: Path, footage: Footage, folder: str
) -> None:
    src = FFPP_KAGGLE.lay(tmp_path, footage)
    listing = list_source(src / folder)
    assert (listing.layout, listing.root) == ("ffpp", src)
    assert columns_of(listing) == {
        name: columns for name, columns in FFPP_KAGGLE.files.items() if name.startswith(folder)
    }


def test_folders_called_like_methods_with_other_videos_are_no_ffpp(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path, real=["original/anna.mp4"], fake=["Deepfakes/anna_as_ben.mp4", "FaceSwap/0001.mp4"])
    assert list_source(tmp_path).layout == "folder"


def test_folders_called_source_and_target_without_splits_are_no_ffiw(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path, real=["source/a.mp4"], fake=["target/a.mp4"])
    assert list_source(tmp_path).layout == "folder"


def test_a_copy_of_part_of_a_set_in_it_is_not_searched_again(tmp_path: Path, footage: Footage) -> None:
    src = FFPP_KAGGLE.lay(tmp_path / "outer", footage)
    shutil.copytree(src, src / "backup" / "set")
    with pytest.raises(UsageError, match=r"holds a ffpp set in 'FaceForensics\+\+_C23': name that folder"):
        list_source(tmp_path / "outer")
