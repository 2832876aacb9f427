"""What a user notices of DeepfakeBench's dataset JSON as a source: its clips with label, split, method, compression."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import detect_layout, list_source, listing_warnings

ROOT = "FaceForensics++"
REAL = f"{ROOT}/original_sequences/youtube/c23/frames"
FAKE = f"{ROOT}\\manipulated_sequences\\FSGAN\\c23\\frames"  # as it is written on Windows


def clip(label: str, folder: str, frames: int = 3) -> dict[str, Any]:
    separator = "\\" if "\\" in folder else "/"
    return {"label": label, "frames": [f"{folder}{separator}{number:03}.png" for number in range(frames)]}


def content() -> dict[str, Any]:
    fake = clip("FF-FSGAN", f"{FAKE}\\000_003")
    return {
        "FSGAN": {
            "FF-FSGAN": {"train": {"c23": {"001_002": clip("FF-FSGAN", f"{FAKE}\\001_002")}},
                         "val": {"c23": {"000_003": fake}}, "test": {"c23": {"000_003": fake}}},
            "FF-real": {"train": {"c23": {"001": clip("FF-real", f"{REAL}/001")}},
                        "test": {"c23": {"000": clip("FF-real", f"{REAL}/000")}}},
        }
    }  # fmt: skip


def lay(frames_root: Path, path: Path, data: dict[str, Any] | None = None) -> Path:
    """Writes the JSON to `path` and the frames that it names below `frames_root`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content() if data is None else data))
    for folder in (f"{FAKE}\\001_002", f"{FAKE}\\000_003", f"{REAL}/001", f"{REAL}/000"):
        for name in clip("x", folder)["frames"]:
            frame = frames_root / name.replace("\\", "/")
            frame.parent.mkdir(parents=True, exist_ok=True)
            frame.write_bytes(b"x")
    return path


def columns(path: Path) -> dict[str, tuple[int, str | None, str | None, str | None, int]]:
    return {
        entry.video_id.rpartition("/")[2]: (
            entry.label, entry.split, entry.method, entry.compression, entry.num_images
        )
        for entry in list_source(path).entries
    }  # fmt: skip


@pytest.mark.parametrize(
    ("frames_root", "file"),
    [("bench/datasets/rgb", "bench/preprocessing/dataset_json/FSGAN.json"), ("rgb", "rgb/FSGAN.json"),
     ("rgb", "rgb/json/FSGAN.json")],
)  # fmt: skip
def test_its_clips_have_what_it_says_wherever_it_lies_beside_its_frames(
    tmp_path: Path, frames_root: str, file: str
) -> None:
    path = lay(tmp_path / frames_root, tmp_path / file)
    assert detect_layout(path) == "deepfakebench"
    assert columns(path) == {
        "001_002": (1, "train", "FF-FSGAN", "c23", 3),
        "000_003": (1, "test", "FF-FSGAN", "c23", 3),  # val, too
        "001": (0, "train", None, "c23", 3),
        "000": (0, "test", None, "c23", 3),
    }
    listing = list_source(path)
    assert (listing.root, listing.recognised_by) == (tmp_path / frames_root, "FSGAN.json")
    assert {entry.dataset for entry in listing.entries} == {"FSGAN"}


def test_a_clip_that_is_named_by_a_link_too_is_listed_once(tmp_path: Path) -> None:
    data = content()
    data["FSGAN"]["FF-real"]["val"] = {"c23": {"000": clip("FF-real", f"{REAL}/link")}}
    data["FSGAN"]["FF-real"]["test"]["c23"]["again"] = clip("FF-real", f"{REAL}/./000")
    path = lay(tmp_path, tmp_path / "FSGAN.json", data)
    (tmp_path / REAL / "link").symlink_to("000")
    assert columns(path).keys() == {"001_002", "000_003", "001", "000"}
    assert columns(path)["000"][:2] == (0, "test"), "as a clip in val and test is"
    assert list_source(path).ignored == {"links to files that are listed already": 1}
    data["FSGAN"]["FF-FSGAN"]["test"]["c23"]["link"] = clip("FF-FSGAN", f"{REAL}/link")
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match="as FF-FSGAN and FF-real; each clip may have one label"):
        list_source(path)


def test_a_clip_whose_frames_are_links_to_those_of_another_is_that_one(tmp_path: Path) -> None:
    data = content()
    data["FSGAN"]["FF-real"]["test"]["c23"]["links"] = clip("FF-real", f"{REAL}/links")
    path = lay(tmp_path, tmp_path / "FSGAN.json", data)
    (tmp_path / REAL / "links").mkdir()
    for frame in (tmp_path / REAL / "000").iterdir():
        (tmp_path / REAL / "links" / frame.name).symlink_to(frame)
    assert list_source(path).ignored == {"links to files that are listed already": 1}
    data["FSGAN"]["FF-FSGAN"]["test"]["c23"]["links"] = clip("FF-FSGAN", f"{REAL}/links")
    path.write_text(json.dumps(data))
    message = r"has '.*frames/000', '.*frames/links', which are one by links, as FF-FSGAN and"
    with pytest.raises(UsageError, match=message):
        list_source(path)


def test_a_clip_that_is_not_there_is_missing(tmp_path: Path) -> None:
    path = lay(tmp_path, tmp_path / "FSGAN.json")
    folder = tmp_path / REAL / "001"
    for frame in folder.iterdir():
        frame.unlink()
    folder.rmdir()
    assert list_source(path).missing == [f"{REAL}/001"]
    assert set(columns(path)) == {"001_002", "000_003", "000"}


def test_a_clip_in_train_and_test_or_in_two_classes_is_refused(tmp_path: Path) -> None:
    leaking = content()
    leaking["FSGAN"]["FF-real"]["test"]["c23"]["001"] = clip("FF-real", f"{REAL}/001")
    with pytest.raises(UsageError, match=rf"has '{REAL.replace('+', '.')}/001' in test and train"):
        list_source(lay(tmp_path, tmp_path / "a.json", leaking))
    contradicting = content()
    contradicting["FSGAN"]["FF-FSGAN"]["train"]["c23"]["001"] = clip("FF-FSGAN", f"{REAL}/001")
    with pytest.raises(UsageError, match="as FF-FSGAN and FF-real; each clip may have one label"):
        list_source(lay(tmp_path, tmp_path / "b.json", contradicting))
    of_two_methods = content()
    of_two_methods["FSGAN"]["FF-Other"] = {"train": {"c23": {"x": clip("FF-Other", f"{FAKE}\\001_002")}}}
    with pytest.raises(UsageError, match="as FF-FSGAN and FF-Other; each clip may have one label"):
        list_source(lay(tmp_path, tmp_path / "c.json", of_two_methods))


@pytest.mark.parametrize(
    ("data", "message"),
    [({}, "has no clips with frames; must be one of DeepfakeBench's dataset JSONs"), ([], "has no clips with frames"),
     ({"train": ["a/b.png"]}, "has no clips with frames"),
     ({"a": {"frames": ["a/0.png"], "label": "x"}}, "'a' is below no split")],
)  # fmt: skip
def test_another_json_is_refused(tmp_path: Path, data: Any, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(data))
    with pytest.raises(UsageError, match=message):
        list_source(path)


def test_without_any_frame_the_folder_to_copy_it_to_is_named(tmp_path: Path) -> None:
    path = lay(tmp_path / "elsewhere/rgb", tmp_path / "json/FSGAN.json")
    with pytest.raises(UsageError, match=r"none of its clips is below .*copy the JSON into the folder that its paths"):
        list_source(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda clips: clips.update(tset=clips.pop("test")), "'FSGAN/FF-real/tset/c23/000' is below no split"),
     (lambda clips: clips["test"]["c23"]["000"].update(label=0), "has the label 0; must be the name of a class"),
     (lambda clips: clips["test"]["c23"]["000"].update(label="RealTalk"), "label 'RealTalk' may be real or fake")],
)  # fmt: skip
def test_a_clip_that_would_be_left_out_or_mistaken_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    data = content()
    change(data["FSGAN"]["FF-real"])
    with pytest.raises(UsageError, match=message):
        list_source(lay(tmp_path, tmp_path / "FSGAN.json", data))


def test_a_clip_without_frames_is_missing(tmp_path: Path) -> None:
    data = content()
    data["FSGAN"]["FF-real"]["test"]["c23"]["009"] = {"label": "FF-real", "frames": []}
    assert list_source(lay(tmp_path, tmp_path / "FSGAN.json", data)).missing == ["FSGAN/FF-real/test/c23/009"]


@pytest.mark.parametrize(
    ("name", "label"),
    [("DFDC_Real", 0), ("Z-original", 0), ("whichisreal_Fake", 1), ("RealTalk_Fake", 1), ("whichfaceisreal_Real", 0)],
)
def test_the_last_word_for_real_or_fake_in_a_label_says_which_it_is(tmp_path: Path, name: str, label: int) -> None:
    data = content()
    data["FSGAN"]["FF-real"]["test"]["c23"]["000"]["label"] = name
    assert columns(lay(tmp_path, tmp_path / "FSGAN.json", data))["000"][0] == label


def test_a_json_of_test_clips_alone_warns_that_their_splits_are_drawn(tmp_path: Path) -> None:
    data = content()
    for clips in data["FSGAN"].values():
        for split in ("train", "val"):
            clips.pop(split, None)
    listing = list_source(lay(tmp_path, tmp_path / "FSGAN.json", data))
    assert {entry.split for entry in listing.entries} == {None}
    assert any("media files have the split test, and none" in text for text in listing_warnings(listing))
