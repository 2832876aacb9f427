"""What a user notices of folders beside those of a FaceForensics++ that are read: none is left out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import list_source, listing_warnings

FAKE = "033_097.mp4"
ACTORS_REAL, ACTORS_FAKE = "01__kitchen_pan.mp4", "01_02__kitchen_pan__YVGY8LOK.mp4"
FLAT = ("original/033.mp4", f"Deepfakes/{FAKE}")
TREE = ("original_sequences/youtube/c23/videos/033.mp4", f"manipulated_sequences/Deepfakes/c23/videos/{FAKE}")
CLASSES = ("real/033.mp4", f"fake/DF/{FAKE}")
NO_FFPP = "if this is no FaceForensics\\+\\+, read it with --layout folder"


def lay(root: Path, *names: str) -> Path:
    """Files by their names alone: no layout opens a video."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"video")
    return root


@pytest.mark.parametrize(
    ("read", "beside", "message"),
    [
        (FLAT, "real/097.mp4", "'real' holds videos called as its originals.*move its videos into 'original'"),
        (FLAT, "more/c23/097.mp4", "'more' holds videos called as its originals.*move its videos into 'original'"),
        (FLAT, "real/anna.mp4", "'real' is called after the class real.*move its videos into 'original'"),
        (TREE, "real/097.mp4", "'real' holds videos called as its.*move its videos into 'original_sequences'"),
        (TREE, f"FaceSwap/{FAKE}", "'FaceSwap' is called after the method.*to 'manipulated_sequences/METHOD/'"),
        (TREE, "FaceSwap/a.mp4", "'FaceSwap' is called after the method FaceSwap.*to 'manipulated_sequences/METHOD/'"),
        (TREE, f"fake/FS/{FAKE}", "'fake' is called after the class fake.*to 'manipulated_sequences/METHOD/'"),
        (TREE, f"more/{FAKE}", "'more' holds fakes called as those of.*to 'manipulated_sequences/METHOD/'"),
        (TREE[:1], f"FaceSwap/{FAKE}", "'FaceSwap' is called after.*to 'manipulated_sequences/METHOD/'"),
        (CLASSES, "synthetic/0.mp4", "'synthetic' is called after the class fake.*to 'fake/METHOD/'"),
        (CLASSES, f"FaceSwap/{FAKE}", "'FaceSwap' is called after the method FaceSwap.*to 'fake/METHOD/'"),
        (FLAT, "fake/0.mp4", "'fake' is called after the class fake.*rename it or join the two"),
        (FLAT, f"StyleGAN/{FAKE}", "'StyleGAN' holds fakes called as those of.*rename it or join the two"),
        (TREE, f"actors/{ACTORS_REAL}", "originals of DeepFakeDetection.*'original_sequences/actors/'"),
        ((*FLAT, f"DFD/{ACTORS_FAKE}"), f"actors/{ACTORS_REAL}", "DeepFakeDetection.* original_sequences/.youtube"),
        ((*FLAT, f"DFD/{ACTORS_FAKE}"), f"DFD_original/{ACTORS_REAL}", "DeepFakeDetection.* original_sequences/"),
    ],
)  # fmt: skip
def test_a_folder_that_may_hold_more_of_the_set_is_refused_with_what_to_do(
    tmp_path: Path, read: tuple[str, ...], beside: str, message: str
) -> None:
    src = lay(tmp_path / "src", *read, beside)
    with pytest.raises(UsageError, match=message):
        list_source(src)
    with pytest.raises(UsageError, match=f"would be left out.*or take it out; {NO_FFPP}"):
        list_source(src)
    assert len(list_source(src, "folder").entries) == len(read) + 1
    part = read[0].partition("/")[0]
    assert {entry.video_id for entry in list_source(src / part).entries} == {read[0]}, "beside a part none is left out"


@pytest.mark.parametrize(
    "beside",
    [f"masks/{FAKE}", f"Deepfakes_masks/{FAKE}", f"original masks/{FAKE}", "original_faces/033/1.png",
     "Deepfakes_crops/033_097/1.png", "frames/033/1.png", "real/readme.txt", "csv/list.csv", "Deepfakes_mask/1.png"],
)  # fmt: skip
@pytest.mark.parametrize("read", [FLAT, TREE])
def test_derived_folders_and_ones_without_media_are_counted_and_no_more(
    tmp_path: Path, read: tuple[str, ...], beside: str
) -> None:
    listing = list_source(lay(tmp_path / "src", *read, beside))
    assert {entry.video_id for entry in listing.entries} == set(read)
    assert sum(listing.ignored.values()) == 1
    assert not [text for text in listing_warnings(listing) if beside.partition("/")[0] in text]


@pytest.mark.parametrize("folder", ["StyleGAN", "fake_images"])
@pytest.mark.parametrize("read", [FLAT, TREE])
def test_a_folder_of_other_media_beside_the_set_is_a_warning_with_its_name_and_number_of_files(
    tmp_path: Path, read: tuple[str, ...], folder: str
) -> None:
    listing = list_source(lay(tmp_path / "src", *read, f"{folder}/a.png", f"{folder}/b.png"))
    assert {entry.video_id for entry in listing.entries} == set(read)
    assert any(f"no ffpp set are not read: {folder!r} (2 files); read them" in text for text in listing.warnings)


def test_originals_of_actors_where_a_copy_has_none_are_reported_with_a_place_where_they_are_read(
    tmp_path: Path,
) -> None:
    src = lay(tmp_path / "src", f"original/{ACTORS_REAL}", f"DeepFakeDetection/{ACTORS_FAKE}")
    (warning,) = (text for text in list_source(src).warnings if "so that originals" in text)
    assert "move them to original_sequences/[youtube or actors]/[c23]/[videos]/ and manipulated_sequences" in warning
    moves = {"original": "original_sequences/actors", "DeepFakeDetection": "manipulated_sequences/DFD"}
    for copied, published in moves.items():
        (src / published).parent.mkdir()
        (src / copied).rename(src / published)
    fake, real = list_source(src).entries
    assert (fake.source_id, list_source(src).warnings) == (real.video_id, ())


def test_own_classes_that_abbreviate_methods_are_no_fakes_of_the_set_unless_the_user_says_so(tmp_path: Path) -> None:
    src = lay(tmp_path / "src", "FS/101_202.mp4", "NT/101_202.mp4")
    with pytest.raises(UsageError, match=f"FS FaceSwap, NT NeuralTextures.*add 'original', or call .*full.*{NO_FFPP}"):
        list_source(src)
    assert {entry.label for entry in list_source(src, "folder").entries} == {-1}
    for short, full in (("FS", "FaceSwap"), ("NT", "NeuralTextures")):
        (src / short).rename(src / full)
    listing = list_source(src)
    assert {entry.label for entry in listing.entries} == {1}
    assert any("no input is real" in text and "--layout folder" in text for text in listing_warnings(listing))


@pytest.mark.parametrize("methods", [("Face2Face",), ("Face2Face", "FaceSwap"), ("Deepfakes",)])
def test_folders_that_an_archive_doubled_are_to_be_moved_up_rather_than_read_one_by_one(
    tmp_path: Path, methods: tuple[str, ...]
) -> None:
    src = lay(tmp_path / "src", "original/original/033.mp4", *(f"{name}/{name}/{FAKE}" for name in methods))
    with pytest.raises(UsageError, match=rf"'{methods[0]}'.* holds one folder of its own name.*move what .*up into"):
        list_source(src)
    for name in ("original", *methods):
        (src / name).rename(src / "outer")
        (src / "outer" / name).rename(src / name)
        (src / "outer").rmdir()
    assert {entry.label for entry in list_source(src).entries} == {0, 1}
