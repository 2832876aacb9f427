"""What a user notices of copies of FaceForensics++ whose folders are called or lie otherwise: the same columns."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from assets_layouts import Footage, lay_ffpp
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import Entry, list_source

FAKE = "033_097.mp4"
ACTORS_FAKE = "01_02__kitchen_pan__YVGY8LOK.mp4"
FULL_NAME = {
    "DF": "Deepfakes", "F2F": "Face2Face", "FS": "FaceSwap", "NT": "NeuralTextures", "FSh": "FaceShifter",
    "FSH": "FaceShifter", "FH": "FaceShifter", "DFD": "DeepFakeDetection", "FF-DF": "Deepfakes",
    "FF-F2F": "Face2Face", "FF-FS": "FaceSwap", "FF-NT": "NeuralTextures", "FF-FH": "FaceShifter",
}  # fmt: skip


def columns(entry: Entry) -> tuple[object, ...]:
    return entry.label, entry.method, entry.identity, entry.related_identities, entry.compression, entry.source_id


def fake_of(src: Path) -> Entry:
    (entry,) = (entry for entry in list_source(src).entries if entry.label == 1)
    return entry


# --- abbreviations of methods


@pytest.mark.parametrize("short", FULL_NAME)
@pytest.mark.parametrize(
    ("real", "fakes"),
    [("c23/original", "c23/{}"), ("original_sequences/youtube/c23/videos", "manipulated_sequences/{}/c23/videos")],
)
def test_a_method_may_be_called_by_its_abbreviation(
    tmp_path: Path, footage: Footage, short: str, real: str, fakes: str
) -> None:
    name = ACTORS_FAKE if short == "DFD" else FAKE
    src, full = tmp_path / "short", tmp_path / "full"
    for root, method in ((src, short), (full, FULL_NAME[short])):
        footage.lay(root, real=[f"{real}/033.mp4"], fake=[f"{fakes.format(method)}/{name}"])
    top = "c23" if real.startswith("c23") else "."
    found = fake_of(src / top)
    assert (found.dataset, found.method) == ("ffpp", FULL_NAME[short])
    assert columns(found) == columns(fake_of(full / top))


@pytest.mark.parametrize("folder", ["", "manipulated_sequences/"])
@pytest.mark.parametrize("short", ["DF", "FF-DF"])
def test_a_method_in_two_folders_is_refused(tmp_path: Path, footage: Footage, folder: str, short: str) -> None:
    inner = "/c23/videos" if folder else ""
    names = sorted((short, "Deepfakes"))
    src = footage.lay(tmp_path, fake=[f"{folder}{name}{inner}/{FAKE}" for name in names])
    both = " and ".join(map(repr, names))
    with pytest.raises(UsageError, match=f"{both} are both folders of Deepfakes.*take one of them"):
        list_source(src)


@pytest.mark.parametrize("folder", ["Deepfakes (1)", "second/videos", "FSGAN"])
def test_fakes_in_a_folder_of_no_method_are_refused_rather_than_left_out(
    tmp_path: Path, footage: Footage, folder: str
) -> None:
    src = footage.lay(tmp_path, real=["original/033.mp4"], fake=[f"Deepfakes/{FAKE}", f"{folder}/097_033.mp4"])
    named = re.escape(repr(folder.partition("/")[0]))
    with pytest.raises(
        UsageError, match=f"{named} holds fakes called as those of FaceForensics.*rename it.*take it out"
    ):
        list_source(src)


@pytest.mark.parametrize("folder", ["Deepfakes (1)", "NeuralTexture"])
def test_a_folder_of_fakes_that_alone_is_nearly_called_after_its_method_is_refused_too(
    tmp_path: Path, footage: Footage, folder: str
) -> None:
    """Read as a plain folder, its fakes would have no label."""
    src = footage.lay(tmp_path, real=["original/033.mp4"], fake=[f"{folder}/{FAKE}"])
    with pytest.raises(UsageError, match=f"has a folder {re.escape(repr(folder))}, did you mean"):
        list_source(src)


@pytest.mark.parametrize("folder", ["masks", "faces", "more"])
def test_other_folders_beside_the_methods_are_counted_as_before(tmp_path: Path, footage: Footage, folder: str) -> None:
    name = "holiday.mp4" if folder == "more" else FAKE
    src = footage.lay(tmp_path, fake=[f"Deepfakes/{FAKE}", f"{folder}/{Path(name).stem}/0.mp4"])
    assert fake_of(src).video_id == f"Deepfakes/{FAKE}"
    assert list_source(src).ignored == {f"in {folder}/": 1}


# --- without the level `youtube`


def test_without_the_level_youtube_originals_and_fakes_say_the_same(tmp_path: Path, footage: Footage) -> None:
    published = lay_ffpp(tmp_path / "published", footage)
    copy = lay_ffpp(tmp_path / "copy", footage)
    shutil.rmtree(copy / "original_sequences/actors")
    shutil.rmtree(published / "original_sequences/actors")
    for grade in ("c23", "raw"):
        (copy / "original_sequences/youtube" / grade).rename(copy / "original_sequences" / grade)
    (copy / "original_sequences/youtube").rmdir()

    def moved(path: str | None) -> str | None:
        return path and path.replace("original_sequences/youtube/", "original_sequences/")

    for part in (".", "original_sequences", "manipulated_sequences/Deepfakes"):
        found, expected = list_source(copy / part), list_source(published / part)
        assert {entry.video_id: (entry.split, *columns(entry)) for entry in found.entries} == {
            moved(entry.video_id): (entry.split, *columns(entry)[:-1], moved(entry.source_id))
            for entry in expected.entries
        }
        assert found.missing == [moved(path) for path in expected.missing]
        assert found.ignored == expected.ignored
