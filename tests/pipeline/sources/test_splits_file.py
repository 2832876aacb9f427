"""What a user notices of splits from a file: DeepfakeBench's own are taken, its leaks are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from assets_layouts import Footage, lay_celebdf, lay_ffpp
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.sources.splits_file import with_splits_from

FRAMES = "D:\\sets\\FaceForensics++\\manipulated_sequences\\Deepfakes\\c23\\frames"


def write(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "splits.json"
    path.write_text(json.dumps(data))
    return path


def clip(path: str) -> dict[str, Any]:
    return {"label": "FF-DF", "frames": [f"{path}/{number:03}.png" for number in range(3)]}


def ffpp_json() -> dict[str, Any]:
    real = "/data/rgb/FaceForensics++/original_sequences/youtube/c23/frames"
    return {
        "FaceForensics++": {
            "FF-DF": {
                "train": {"c23": {"033_097": clip(f"{FRAMES}\\033_097")}},
                "val": {"c23": {"720_672": clip(f"{FRAMES}\\720_672")}},
                "test": {"c23": {"720_672": clip(f"{FRAMES}\\720_672")}},
            },
            "FF-real": {"train": {"c23": {"033": clip(f"{real}/033")}}},
        }
    }


def test_deepfakebenchs_json_gives_the_splits_of_its_clips_wherever_it_was_written(
    tmp_path: Path, footage: Footage
) -> None:
    listing = list_source(lay_ffpp(tmp_path / "ffpp", footage))
    given = with_splits_from(listing, write(tmp_path, ffpp_json()), allow_leaks=False)
    assert {entry.video_id: entry.split for entry in given.entries if entry.split} == {
        f"{folder}/{name}.mp4": split
        for grade in ("c23", "raw")  # of one film all are in one split
        for folder, name, split in (
            (f"manipulated_sequences/Deepfakes/{grade}/videos", "033_097", "train"),
            (f"manipulated_sequences/Deepfakes/{grade}/videos", "720_672", "test"),
            (f"original_sequences/youtube/{grade}/videos", "033", "train"),
        )
    }


def test_a_clip_in_train_and_test_is_named_and_is_test_where_leaks_are_allowed(
    tmp_path: Path, footage: Footage
) -> None:
    listing = list_source(lay_celebdf(tmp_path / "Celeb-DF-v2", footage, test=None))
    folder = "./datasets/Celeb-DF-v2/Celeb-real/frames/id0_0000"
    path = write(
        tmp_path, {"Celeb-DF-v2": {"real": {split: {"id0_0000": clip(folder)} for split in ("train", "val", "test")}}}
    )
    with pytest.raises(RefusedError, match=r"1 clips are in train and in val or test: 'datasets/.*/id0_0000'"):
        with_splits_from(listing, path, allow_leaks=False)
    given = with_splits_from(listing, path, allow_leaks=True)
    assert {entry.video_id: entry.split for entry in given.entries if entry.split} == {
        "Celeb-real/id0_0000.mp4": "test"
    }


def test_lists_of_paths_by_split_are_taken_too(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path / "src", real=["real/a.mp4", "real/b.mp4"], fake=["fake/a.mp4"])
    path = write(tmp_path, {"train": ["real/a.mp4", "fake/a.mp4"], "test": ["b.mp4"]})
    given = with_splits_from(list_source(src), path, allow_leaks=False)
    assert {entry.video_id: entry.split for entry in given.entries} == {
        "real/a.mp4": "train", "fake/a.mp4": "train", "real/b.mp4": "test",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "message"),
    [({"real": ["a.mp4"]}, "has no clips below train, val, test"), ([], "has no clips below"),
     ({"train": ["elsewhere/z.mp4"]}, r"names none of the 1 inputs \(its first: 'elsewhere/z.mp4'")],
)  # fmt: skip
def test_a_file_without_splits_of_the_inputs_is_refused(
    tmp_path: Path, footage: Footage, data: Any, message: str
) -> None:
    listing = list_source(footage.lay(tmp_path / "src", real=["real/a.mp4"]))
    with pytest.raises(UsageError, match=message):
        with_splits_from(listing, write(tmp_path, data), allow_leaks=False)


def test_a_name_that_may_be_two_clips_of_different_splits_is_refused(tmp_path: Path, footage: Footage) -> None:
    listing = list_source(footage.lay(tmp_path / "src", real=["a.mp4"]))
    path = write(tmp_path, {"train": ["one/a.mp4"], "test": ["other/a.mp4"]})
    with pytest.raises(UsageError, match=r"has several clips that 'a.mp4' may be, in different splits"):
        with_splits_from(listing, path, allow_leaks=False)


def test_the_copy_of_ffpp_on_kaggle_takes_the_splits_of_the_published_tree(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path / "ffpp_C23", real=["original/033.mp4"], fake=["Deepfakes/033_097.mp4"])
    given = with_splits_from(list_source(src), write(tmp_path, ffpp_json()), allow_leaks=False)
    assert [entry.split for entry in given.entries] == ["train", "train"]


METHODS = {"Deepfakes": "DF", "Face2Face": "F2F", "FaceSwap": "FS", "NeuralTextures": "NT"}


def whole_ffpp_json(original: str = "original_sequences/youtube", fakes: str = "manipulated_sequences/") -> Any:
    """Two pairs of people, one in train and one in test, with the four methods."""
    data: dict[str, Any] = {}
    for split, (one, other) in {"train": ("033", "097"), "test": ("720", "672")}.items():
        names = {original: (one, other)} | {f"{fakes}{name}": (f"{one}_{other}", f"{other}_{one}") for name in METHODS}
        for folder, stems in names.items():
            clips = {stem: clip(f"./datasets/rgb/FaceForensics++/{folder}/c23/frames/{stem}") for stem in stems}
            data.setdefault(folder, {})[split] = {"c23": clips}
    return {"FaceForensics++": data}


@pytest.mark.parametrize(
    ("original", "fakes"),
    [
        ("original", "{short}"),
        ("real", "fake/{method}"),
        ("real", "{short}"),
        ("original_sequences/youtube/c23/videos", "manipulated_sequences/{short}/c23/videos"),
        ("original", "FF-{short}"),
    ],
)
@pytest.mark.parametrize("is_of_a_copy", [False, True])
def test_copies_of_ffpp_take_the_published_splits_whatever_their_folders_are_called(
    tmp_path: Path, footage: Footage, original: str, fakes: str, is_of_a_copy: bool
) -> None:
    folders = [fakes.format(method=method, short=short) for method, short in METHODS.items()]
    src = footage.lay(
        tmp_path / "copy",
        real=[f"{original}/{name}.mp4" for name in ("033", "097", "720", "672")],
        fake=[f"{folder}/{name}.mp4" for folder in folders for name in ("033_097", "097_033", "720_672", "672_720")],
    )
    data = whole_ffpp_json("real", "") if is_of_a_copy else whole_ffpp_json()
    given = with_splits_from(list_source(src), write(tmp_path, data), allow_leaks=False)
    splits = {entry.video_id: entry.split for entry in given.entries}
    assert len(splits) == 20
    assert splits == {name: "train" if "033" in name.rpartition("/")[2] or "097" in name else "test" for name in splits}
    assert given.warnings == list_source(src).warnings


def test_of_two_clips_with_the_method_and_name_of_an_input_none_is_taken(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path / "copy", real=["real/033.mp4", "real/097.mp4"], fake=["fake/Deepfakes/033_097.mp4"])
    data = {"train": ["one/original/033", "other/genuine/033", "original/097", "x/DF/033_097"]}
    given = with_splits_from(list_source(src), write(tmp_path, data), allow_leaks=False)
    assert {entry.video_id: entry.split for entry in given.entries} == {
        "real/033.mp4": None, "real/097.mp4": "train", "fake/Deepfakes/033_097.mp4": "train",
    }  # fmt: skip


def test_a_copy_of_ffpp_takes_no_splits_of_another_set_with_like_names(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path / "copy", real=["real/033.mp4"], fake=["fake/Deepfakes/033_097.mp4"])
    path = write(tmp_path, {"train": ["speakers/033", "SimSwap/033_097"]})
    with pytest.raises(UsageError, match="names none of the 2 inputs"):
        with_splits_from(list_source(src), path, allow_leaks=False)


def test_names_with_dots_are_names(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path / "src", real=["real/v1.1.mp4", "real/v1.2.mp4", "real/v1.3.mp4"])
    path = write(tmp_path, {"train": ["real/v1.1.mp4"], "test": ["real/v1.2.mp4"]})
    given = with_splits_from(list_source(src), path, allow_leaks=False)
    assert [entry.split for entry in given.entries] == ["train", "test", None]


@pytest.mark.parametrize(
    "data",
    [{"train": ["real/a.mp4"], "tset": ["real/b.mp4"]},
     {"set": {"FF-real": {"train": {"a": clip("real/a")}, "trian": {"b": clip("real/b")}}}}],
)  # fmt: skip
def test_an_input_below_a_misspelt_split_is_not_drawn_in_silence(tmp_path: Path, footage: Footage, data: Any) -> None:
    listing = list_source(footage.lay(tmp_path / "src", real=["real/a.mp4", "real/b.mp4"]))
    with pytest.raises(UsageError, match=r"has 'real/b(.mp4)?' below '.*(tset|trian)', where nothing is called train"):
        with_splits_from(listing, write(tmp_path, data), allow_leaks=False)


def test_other_lists_of_the_file_do_not_matter(tmp_path: Path, footage: Footage) -> None:
    listing = list_source(footage.lay(tmp_path / "src", real=["real/a.mp4"]))
    path = write(tmp_path, {"classes": ["real", "fake"], "train": ["real/a.mp4"]})
    given = with_splits_from(listing, path, allow_leaks=False)
    assert ([entry.split for entry in given.entries], given.warnings) == (["train"], ())


def test_inputs_and_clips_without_a_counterpart_are_counted(tmp_path: Path, footage: Footage) -> None:
    listing = list_source(footage.lay(tmp_path / "src", real=["real/a.mp4", "real/b.mp4"]))
    path = write(tmp_path, {"train": ["real/a.mp4", "real/z.mp4"], "val": ["real/y.mp4"]})
    first, second = with_splits_from(listing, path, allow_leaks=False).warnings
    assert first.endswith("names 1 of 2 clips of SRC; the splits of the others are drawn (the first: 'real/b.mp4')")
    assert second.endswith("2 of its 3 clips are not in SRC (the first: 'real/z.mp4')")


def put(root: Path, *names: str) -> Path:
    """Writes empty files; returns their root."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def splits(src: Path, file: Path) -> dict[str, str | None]:
    given = with_splits_from(list_source(src), file, allow_leaks=False)
    return {entry.video_id: entry.split for entry in given.entries}


def test_frames_of_one_clip_count_once(tmp_path: Path) -> None:
    put(tmp_path / "src", "real/a/001.png", "real/a/002.png", "real/b/001.png", "real/b/002.png")
    given = with_splits_from(list_source(tmp_path / "src"), write(tmp_path, {"train": ["real/a"]}), allow_leaks=False)
    assert [entry.split for entry in given.entries] == ["train", "train", None, None]
    assert "names 1 of 2 clips" in given.warnings[0]


@pytest.mark.parametrize("above", ["", "set/", "set/images/"])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_an_image_in_the_folder_of_a_class_has_a_split_of_its_own(tmp_path: Path, above: str, is_mixed: bool) -> None:
    names = [f"{above}{name}" for name in ("real/anna.png", "real/ben.png", "fake/cleo.png")]
    names += [f"{above}real/dora.mp4"] * is_mixed
    path = write(tmp_path, {"train": [names[0], *names[2:]], "test": [names[1]]})
    assert splits(put(tmp_path / "src", *names), path) == {name: "test" if "ben" in name else "train" for name in names}


@pytest.mark.parametrize("folder", ["real/c7", "real/c7/frames", "set/real/frames/c7"])
@pytest.mark.parametrize(
    "as_json",
    [
        pytest.param(lambda folder: {"set": {"real": {"train": {"c7": clip(f"D:\\x\\{folder}")}}}}, id="deepfakebench"),
        pytest.param(lambda folder: {"train": [folder]}, id="folder"),
        pytest.param(lambda folder: {"train": [f"{folder}/"]}, id="folder with a slash"),
        pytest.param(lambda folder: {"train": [f"{folder}/1.png", f"{folder}/2.png"]}, id="frames"),
    ],
)
def test_a_clip_of_frames_has_the_split_of_its_folder_or_of_the_frames_that_the_file_names(
    tmp_path: Path, folder: str, as_json: Callable[[str], Any]
) -> None:
    src = put(tmp_path / "src", f"{folder}/1.png", f"{folder}/2.png", f"{folder.replace('c7', 'c8')}/1.png")
    given = splits(src, write(tmp_path, as_json(folder)))
    assert given == {name: "train" if "c7" in name else None for name in given}
    assert len(given) == 3


def test_frames_that_the_file_names_give_the_split_of_a_video_too(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path / "src", real=["real/c7.mp4", "real/c8.mp4"])
    path = write(tmp_path, {"train": ["real/frames/c7/1.png"], "test": ["real/c8/frames/1.png"]})
    assert splits(src, path) == {"real/c7.mp4": "train", "real/c8.mp4": "test"}


def test_a_clip_whose_folder_reads_as_a_class_is_still_that_of_its_frames(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path / "src", fake=["fake/1_fake.mp4"], real=["real/1.mp4"])
    frames = {name: {"label": "x", "frames": [f"{name}/000.png"]} for name in ("fake/1_fake", "real/1")}
    data = {"set": {"train": {"fake/1_fake": frames["fake/1_fake"]}, "test": {"real/1": frames["real/1"]}}}
    assert splits(src, write(tmp_path, data)) == {"fake/1_fake.mp4": "train", "real/1.mp4": "test"}


@pytest.mark.parametrize("folder", ["", "people/"])
def test_images_that_a_table_keeps_apart_have_splits_of_their_own_wherever_they_lie(
    tmp_path: Path, folder: str
) -> None:
    src = put(tmp_path / "src", f"{folder}anna.png", f"{folder}ben.png")
    rows = [f"{folder}anna.png,real,anna", f"{folder}ben.png,real,ben"]
    (src / "list.csv").write_text("\n".join(["path,label,footage", *rows]) + "\n")
    path = write(tmp_path, {"train": ["people/anna.png"], "test": ["people/ben.png"]})
    assert splits(src / "list.csv", path) == {f"{folder}anna.png": "train", f"{folder}ben.png": "test"}


@pytest.mark.parametrize(
    ("names", "data"),
    [
        (("real/0001.mp4", "extra/real/0001.mp4"), {"train": ["extra/real/0001.mp4"]}),
        (("real/0001.mp4", "extra/real/0001.mp4"), {"train": ["real/0001.mp4"], "test": ["extra/real/0001.mp4"]}),
        (("0001.mp4", "b/0001.mp4"), {"train": ["0001.mp4"], "test": ["b/0001.mp4"]}),
        (("youtube/real/1.mp4", "tiktok/real/1.mp4"), {"train": ["youtube/real/1.mp4"], "test": ["tiktok/real/1.mp4"]}),
        (("youtube/real/1.mp4", "actors/real/1.mp4"), {"val": ["youtube/real/1.mp4"], "test": ["actors/real/1.mp4"]}),
        (("real/raw/1.mp4", "real/1.mp4"), {"val": ["real/raw/1.mp4"], "test": ["real/1.mp4"]}),
        (("real/faces/a.jpg", "real/photos/a.jpg"), {"val": ["real/faces/a.jpg"], "test": ["real/photos/a.jpg"]}),
        (("real/1.png", "real/1.jpg"), {"val": ["real/1.png"], "test": ["real/1.jpg"]}),
        (("1.png", "real/c7/1.png"), {"train": ["1.png"], "test": ["real/c7/1.png"]}),
        (("real/1_12/a.mp4", "real/11_2/a.mp4"), {"train": ["real/1_12/a.mp4"], "test": ["real/11_2/a.mp4"]}),
        (("real/a.mp4",), {"train": ["extra/real/a.mp4"], "test": ["real/a.mp4"]}),
    ],
)  # fmt: skip
def test_an_input_that_the_file_names_by_its_path_has_the_split_of_that_path_and_no_other(
    tmp_path: Path, names: tuple[str, ...], data: dict[str, list[str]]
) -> None:
    given = {name: split for split, paths in data.items() for name in paths}
    expected = {name: given.get(name) for name in names}
    src = put(tmp_path / "src", *names)
    assert splits(src, write(tmp_path, data)) == expected
    absolute = {split: [f"{src}/{name}" for name in paths] for split, paths in data.items()}
    assert splits(src, write(tmp_path, absolute)) == expected


@pytest.mark.parametrize("above", ["D:\\sets\\mine\\", "/data/mine/"])
def test_of_two_inputs_that_a_path_of_another_machine_ends_alike_it_is_the_one_that_it_agrees_with_further(
    tmp_path: Path, above: str
) -> None:
    src = put(tmp_path / "src", "real/1.mp4", "extra/real/1.mp4", "real/c23/2.mp4", "real/c40/2.mp4")
    frames = {split: {name: clip(f"{above}{name}") for name in (f"{folder}real/1", f"real/{grade}/frames/2")}
              for split, folder, grade in (("train", "", "c23"), ("test", "extra/", "c40"))}  # fmt: skip
    assert splits(src, write(tmp_path, frames)) == {
        "real/1.mp4": "train", "real/c23/2.mp4": "train", "extra/real/1.mp4": "test", "real/c40/2.mp4": "test",
    }  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({"train": ["/d/real/1"]}, id="one clip"),
        pytest.param({"train": ["/d/real/1.mov"], "test": ["/d/real/1.mkv"]}, id="different splits"),
    ],
)
def test_inputs_that_the_file_does_not_tell_apart_are_both_named(tmp_path: Path, data: dict[str, list[str]]) -> None:
    listing = list_source(put(tmp_path / "src", "real/1.mp4", "real/1.avi"))
    with pytest.raises(UsageError, match=r"'/d/real/1.*' may be each of the inputs 'real/1.avi', 'real/1.mp4'"):
        with_splits_from(listing, write(tmp_path, data), allow_leaks=False)


def test_a_clip_in_train_and_test_is_no_leak_where_it_is_no_input(tmp_path: Path) -> None:
    data = {"train": ["real/a.mp4", "x/z.mp4"], "test": ["x/z.mp4"]}
    assert splits(put(tmp_path / "src", "real/a.mp4"), write(tmp_path, data)) == {"real/a.mp4": "train"}


def test_a_version_that_the_file_does_not_name_has_the_split_of_the_one_that_it_does(
    tmp_path: Path, footage: Footage
) -> None:
    src = lay_ffpp(tmp_path / "ffpp", footage)
    name = "original_sequences/youtube/c23/videos/033.mp4"
    given = {name: split for name, split in splits(src, write(tmp_path, {"test": [name]})).items() if split}
    assert given == {name: "test", name.replace("c23", "raw"): "test"}


@pytest.mark.parametrize("path", ["/d/x/real/c23/071", "/d/x/real/071", "real/c23/071.mp4"])
@pytest.mark.parametrize("raw", ["real/raw/071.mp4", "real/Raw/videos/071.avi", "real/c0/071.mp4"])
def test_another_compression_follows_in_a_source_without_footage_too(tmp_path: Path, raw: str, path: str) -> None:
    src = put(tmp_path / "src", "real/c23/071.mp4", raw)
    assert splits(src, write(tmp_path, {"test": [path]})) == {"real/c23/071.mp4": "test", raw: "test"}


def test_a_compression_that_the_file_names_by_its_path_keeps_its_split(tmp_path: Path) -> None:
    names = ("real/c23/071.mp4", "real/raw/071.mp4")
    data = {"val": [names[0]], "test": [names[1]]}
    assert splits(put(tmp_path / "src", *names), write(tmp_path, data)) == {names[0]: "val", names[1]: "test"}


def test_an_input_whose_closest_clip_is_another_ones_has_the_split_of_the_next(tmp_path: Path) -> None:
    src = put(tmp_path / "src", "real/7.mp4", "extra/real/7.mp4")
    path = write(tmp_path, {"train": ["/data/extra/real/7"], "test": ["7.mp4"]})
    assert splits(src, path) == {"real/7.mp4": "test", "extra/real/7.mp4": "train"}


@pytest.mark.parametrize(
    ("name", "path", "other"),
    [
        pytest.param("real/c7/1.png", "real/c7", "real/c7/frames", id="frames"),
        pytest.param("real/a.mp4", "real/a.mp4", "real/a", id="without suffix"),
    ],
)
def test_a_clip_in_train_and_test_under_two_spellings_is_a_leak(
    tmp_path: Path, name: str, path: str, other: str
) -> None:
    listing = list_source(put(tmp_path / "src", name, "real/z.mp4"))
    file = write(tmp_path, {"train": [path, "real/z.mp4"], "test": [other]})
    with pytest.raises(RefusedError, match=rf"1 clips are in train and in val or test: '{path}'"):
        with_splits_from(listing, file, allow_leaks=False)
    given = with_splits_from(listing, file, allow_leaks=True)
    assert {entry.video_id: entry.split for entry in given.entries} == {name: "test", "real/z.mp4": "train"}
    assert given.warnings == listing.warnings
