"""The form of DeepfakeBench: paths and JSONs as its loader wants them, crops as its preprocessing makes them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import assets_dataset
import cv2
import numpy as np
import pytest
import yaml
from assets_dataset import ROWS, Clip, make_dataset
from assets_export import TWO_FACES, exported, files_below, named, run_export
from assets_rows import stored_pixels, stored_rows
from facefeed.loaders import FaceDataset
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.export.forms.benchmark_sets import DATASETS, Place, Video, places_of
from facefeed.pipeline.export.forms.dataset_json import FRAMES, frame_path
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.video import Frame
from numpy.typing import NDArray
from PIL import Image
from skimage.transform import SimilarityTransform

ARCFACE_112 = [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
SIDE = 256


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deepfakebench") / "out"
    make_dataset(path)
    return path


def dataset_json(dest: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((dest / f"preprocessing/dataset_json/{name}.json").read_text())
    assert content.keys() == {name}
    classes: dict[str, Any] = content[name]
    return classes


def frames_of(classes: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Class, split, video and path of each frame, of a dataset without grades of compression."""
    for label, splits in classes.items():
        assert splits.keys() == {"train", "val", "test"}
        for split, videos in splits.items():
            for video, entry in videos.items():
                assert entry["label"] == label
                yield from ((label, split, video, path) for path in entry["frames"])


def as_the_loader_reads(dest: Path, path: str) -> tuple[Any, Any, Any]:
    """Image, landmarks and mask (None: absent) of a path in the JSON, from the folder that training starts in."""
    assert path[0] == "."  # the loader puts a folder and a backslash before all others
    mask = dest / path.replace("frames", "masks")
    landmarks = dest / path.replace("frames", "landmarks").replace(".png", ".npy")
    return (
        cv2.imread(str(dest / path)),
        np.load(landmarks),
        cv2.imread(str(mask), cv2.IMREAD_UNCHANGED) if mask.is_file() else None,
    )


def test_frames_of_a_folder_of_images_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets_dataset, "Frame", lambda index, *given: Frame(index, *given, 30 * index + 7))
    make_dataset(tmp_path / "out", (("train", (Clip("real/anna.mp4", 3), Clip("fake/anna-swap.mp4", 3))),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    paths = [path for *_, path in frames_of(dataset_json(tmp_path / "dest", "noise"))]
    assert sorted(Path(path).name for path in paths) == [
        "007.png",
        "007.png",
        "037.png",
        "037.png",
        "067.png",
        "067.png",
    ]
    assert all(image is not None for image, *_ in (as_the_loader_reads(tmp_path / "dest", path) for path in paths))


def test_every_frame_of_the_json_is_there_with_landmarks_and_the_masks_of_fakes(out: Path, tmp_path: Path) -> None:
    exported(out, tmp_path, "deepfakebench")
    stored = {(Path(row["video_id"]).stem, row["frame_index"]): row for row in stored_rows(out)}
    counts = dict.fromkeys(ROWS, 0)
    for label, split, video, path in frames_of(dataset_json(tmp_path, "noise")):
        folder, kind, name, file = path.rsplit("/", 3)
        assert (folder, kind, name) == (f"./datasets/rgb/noise/{label}", "frames", video)
        row = stored[video, int(file.removesuffix(".png"))]  # the loader takes the number for an int, too
        assert label == ("noise_Real", "noise_Fake")[row["label"]]
        image, landmarks, mask = as_the_loader_reads(tmp_path, path)
        assert image.shape == (SIDE, SIDE, 3)
        assert (landmarks.shape, landmarks.dtype) == ((5, 2), np.float32)
        assert (mask is not None) == (row["mask"] is not None)
        if mask is not None:
            assert mask.shape == (SIDE, SIDE)
            assert set(np.unique(mask)) <= {0, 255}
        counts[split] += 1
    assert counts == ROWS


def test_a_frame_is_warped_as_deepfakebench_warps_it(out: Path, tmp_path: Path) -> None:
    exported(out, tmp_path, "deepfakebench", "--split", "test")
    row = next(row for row in stored_rows(out) if row["video_id"] == "fake/emil-talk.mp4" and row["frame_index"] == 3)
    matrix, landmarks = reference_warp(np.array(row["landmarks"]))
    image, exported_landmarks, mask = as_the_loader_reads(
        tmp_path, "./datasets/rgb/noise/noise_Fake/frames/emil-talk/003.png"
    )
    assert np.abs(image.astype(int) - warped(row)).max() <= 2
    np.testing.assert_allclose(exported_landmarks, landmarks, atol=0.01)
    with Image.open(io.BytesIO(row["mask"])) as stored_mask:
        levels = np.asarray(stored_mask.convert("L"))
    _, expected_mask = cv2.threshold(cv2.warpAffine(levels, matrix, (SIDE, SIDE)), 1, 255, cv2.THRESH_BINARY)
    assert (mask != expected_mask).mean() < 0.002


def warped(row: dict[str, Any]) -> NDArray[np.uint8]:
    """The frame's image, BGR, as preprocessing/preprocess.py makes it of the stored crop."""
    pixels: NDArray[np.uint8] = stored_pixels(row)[:, :, ::-1]
    expected: NDArray[np.uint8] = cv2.warpAffine(pixels, reference_warp(np.array(row["landmarks"]))[0], (SIDE, SIDE))
    return expected


def reference_warp(landmarks: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrix of preprocessing/preprocess.py at scale 1.3, by scikit-image, and where it puts the landmarks."""
    margin = 0.3 * SIDE / 2
    template = (np.array(ARCFACE_112) * SIDE / 112 + margin) * SIDE / (SIDE + 2 * margin)
    points = landmarks - 0.5  # from the corner of the first pixel to its centre
    fit = SimilarityTransform.from_estimate(points, template)
    return fit.params[:2], fit(points)


def test_of_several_faces_the_largest_is_kept_and_the_others_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets_dataset, "_MIDDLE", FixedBoxDetector(TWO_FACES))
    make_dataset(tmp_path / "out", (("train", (Clip("real/a.mp4", 3), named("other/b.mp4", 2, label=-1))),))
    figures = exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    assert (figures["rows"], figures["skipped"]) == (3, {"smaller_face": 3, "unlabelled": 4})
    folder = "./datasets/rgb/noise/noise_Real/frames/a"
    assert files_below(tmp_path / "dest" / folder) == {"000.png", "001.png", "002.png"}
    for row in stored_rows(tmp_path / "out"):
        if row["video_id"] == "real/a.mp4":
            left, _, right, _ = row["box_xyxy"]
            image, _, _ = as_the_loader_reads(tmp_path / "dest", f"{folder}/{row['frame_index']:03d}.png")
            difference = np.abs(image.astype(int) - warped(row)).max()
            assert difference <= 2 if right - left > 25 else difference > 20


def test_a_dataset_without_labels_gives_an_export_without_frames(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", (named("other/b.mp4", 2, label=-1),)),))
    figures = exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    assert (figures["rows"], figures["skipped"]) == (0, {"unlabelled": 2})
    assert files_below(tmp_path / "dest") == {"deepfakebench.yaml", "export.json", "SHA256SUMS"}


def test_a_video_that_is_fake_in_part_stands_in_both_classes_under_two_names(tmp_path: Path) -> None:
    partly = {"label": 1, "fake_segments": ((0.0, 0.07),), "outside_label": 0}
    make_dataset(tmp_path / "out", (("train", (named("part/a.mp4", 5, **partly), Clip("real/b.mp4", 2))),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    frames = [
        path.removeprefix("./datasets/rgb/noise/") for *_, path in frames_of(dataset_json(tmp_path / "dest", "noise"))
    ]
    assert sorted(frames) == [
        *(f"noise_Fake/frames/a_fake/{number:03d}.png" for number in (0, 1)),
        *(f"noise_Real/frames/a_real/{number:03d}.png" for number in (2, 3, 4)),
        *(f"noise_Real/frames/b/{number:03d}.png" for number in (0, 1)),
    ]
    assert files_below(tmp_path / "dest/datasets/rgb/noise") >= set(frames)


def test_its_two_names_are_not_those_of_another_video(tmp_path: Path) -> None:
    partly = {"label": 1, "fake_segments": ((0.0, 0.07),), "outside_label": 0}
    make_dataset(
        tmp_path / "out", (("train", (named("part/a.mp4", 5, **partly), named("part/a_fake.mp4", 3, label=1))),)
    )
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    frames = [path for *_, path in frames_of(dataset_json(tmp_path / "dest", "noise"))]
    assert len(frames) == len(set(frames)) == 8


def one_line(text: str) -> str:
    """Text without the line breaks of the terminal."""
    return " ".join(text.split())


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """Three faces whose stored crops have no margin."""
    make_dataset(tmp_path / "out", (("train", (Clip("real/a.mp4", 3),)),), margin=0.0)
    return tmp_path / "out"


def test_too_narrow_crops_are_refused_as_the_loader_refuses_them_and_nothing_is_written(
    narrow: Path, tmp_path: Path
) -> None:
    result = run_export(narrow, tmp_path / "dest", "deepfakebench")
    assert result.exit_code == 2
    refusal = one_line(result.stderr)
    assert "--as deepfakebench: 3 of 3 faces need more than is stored around them; run `facefeed precompute`" in refusal
    with pytest.raises(UsageError) as error:
        FaceDataset(narrow, crop="deepfakebench")
    common = (
        str(error.value).removeprefix("crop='deepfakebench'").removesuffix("give a crop with a smaller margin, or none")
    )
    assert common in refusal
    assert not (tmp_path / "dest").exists()


def test_few_frames_that_need_more_than_is_stored_are_counted(
    narrow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facefeed.pipeline.dataset.crops.coverage.ALLOWED_FRACTION", 1.0)
    result = run_export(narrow, tmp_path / "dest", "deepfakebench", "--json")
    figures = json.loads(result.stdout.splitlines()[-1])
    assert (figures["rows"], figures["notes"]) == (3, {"beyond_stored_crop": 3})
    assert "3 of 3 faces need more than is stored around them: what is missing is black" in " ".join(
        result.stderr.split()
    )


def ffpp(name: str, label: int, method: str | None = None, compression: str | None = "c23") -> Any:
    return named(name, 2, dataset="ffpp", label=label, method=method, compression=compression, source_id=None)


def test_faceforensics_has_deepfakebenchs_folders_and_jsons(tmp_path: Path) -> None:
    actors_fake = "manipulated_sequences/DeepFakeDetection/c23/videos/01_02__kitchen_pan__YVGY8LOK.mp4"
    clips = (
        ffpp("original_sequences/youtube/c23/videos/033.mp4", 0),
        ffpp("manipulated_sequences/Deepfakes/c23/videos/033_097.mp4", 1, "Deepfakes"),
        ffpp("manipulated_sequences/Face2Face/c23/videos/033_097.mp4", 1, "Face2Face"),
        ffpp("manipulated_sequences/FaceShifter/c23/videos/033_097.mp4", 1, "FaceShifter"),
        ffpp("original_sequences/actors/c23/videos/01__kitchen_pan.mp4", 0),
        ffpp(actors_fake, 1, "DeepFakeDetection"),
    )
    test = (ffpp("manipulated_sequences/Deepfakes/c40/videos/000_003.mp4", 1, "Deepfakes", "c40"),)
    make_dataset(tmp_path / "out", (("train", clips), ("test", test)))
    dest = tmp_path / "dest"
    exported(tmp_path / "out", dest, "deepfakebench")
    names = {path.stem for path in (dest / "preprocessing/dataset_json").iterdir()}
    assert names == {"FaceForensics++", "FF-DF", "FF-F2F", "FaceShifter", "DeepFakeDetection"}
    every = dataset_json(dest, "FaceForensics++")
    assert every.keys() == {"FF-real", "FF-DF", "FF-F2F"}
    for splits in every.values():  # the loader looks up every split, and in it the grade
        assert [*splits] == ["train", "val", "test"]
        assert all([*grades] == ["c23", "c40"] for grades in splits.values())
    assert every["FF-DF"]["train"]["c23"]["033_097"] == {
        "label": "FF-DF",
        "frames": [
            f"./datasets/rgb/FaceForensics++/manipulated_sequences/Deepfakes/c23/frames/033_097/{number:03d}.png"
            for number in range(2)
        ],
        "masks": [],
    }
    assert [*every["FF-DF"]["test"]["c40"]] == ["000_003"]
    assert dataset_json(dest, "FF-DF") == {label: every[label] for label in ("FF-real", "FF-DF")}
    assert [*dataset_json(dest, "FaceShifter")] == ["FF-real", "FF-FH"]
    actors = dataset_json(dest, "DeepFakeDetection")
    assert [*actors["DFD_real"]["train"]["c23"]] == ["01__kitchen_pan"]
    assert [*actors["DFD_fake"]["train"]["c23"]] == ["01_02__kitchen_pan__YVGY8LOK"]
    settings = yaml.safe_load((dest / "deepfakebench.yaml").read_text())
    assert settings["label_dict"] == {
        "DFD_fake": 1, "DFD_real": 0, "FF-DF": 1, "FF-F2F": 1, "FF-FH": 1, "FF-real": 0
    }  # fmt: skip
    assert settings["lmdb"] is False


@pytest.mark.parametrize(
    ("grades", "expected"), [((None, None), "unknown"), (("c40", None), "c40"), (("c23", "c40"), "c23")]
)
def test_the_settings_name_a_grade_that_the_jsons_have(
    tmp_path: Path, grades: tuple[str | None, str | None], expected: str
) -> None:
    clips = (ffpp("original/033.mp4", 0, None, grades[0]), ffpp("Deepfakes/033_097.mp4", 1, "Deepfakes", grades[1]))
    phone = named("real/anna.mp4", 2, dataset="noise", label=0, compression="a phone", source_id=None)
    make_dataset(tmp_path / "out", (("train", (*clips, phone)),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    settings = yaml.safe_load((tmp_path / "dest/deepfakebench.yaml").read_text())
    assert settings["compression"] == expected
    for splits in dataset_json(tmp_path / "dest", "FaceForensics++").values():
        assert all(expected in by_grade for by_grade in splits.values())


@pytest.mark.parametrize(
    ("grade", "name"),
    [("../" * 9 + "escaped", "escaped"), ("/escaped", "escaped"), ("raw frames", "raw_Frames"), ("raw", "raw")],
)
def test_a_grade_that_a_table_gives_is_a_name_that_neither_leads_out_of_dest_nor_confuses_the_loader(
    tmp_path: Path, grade: str, name: str
) -> None:
    clips = (ffpp("a/000.mp4", 0, None, grade), ffpp("a/000_003.mp4", 1, "Deepfakes", grade))
    make_dataset(tmp_path / "out", (("train", clips),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    for splits in dataset_json(tmp_path / "dest", "FF-DF").values():
        assert [*splits["train"]] == [name]
        for entry in splits["train"][name].values():
            for path in entry["frames"]:
                assert f"/{name}/frames/" in path
                image, landmarks, _ = as_the_loader_reads(tmp_path / "dest", path)
                assert (image.shape, landmarks.shape) == ((SIDE, SIDE, 3), (5, 2))
    assert yaml.safe_load((tmp_path / "dest/deepfakebench.yaml").read_text())["compression"] == name
    assert {path.split("/")[0] for path in files_below(tmp_path)} == {"out", "dest"}


def test_a_path_that_leads_out_of_dest_is_refused() -> None:
    place = Place("FF-real", 0, "../../escaped", "", "ffpp")
    with pytest.raises(ValueError, match="escaped"):
        frame_path(place, "033", FRAMES, 0)


def test_the_settings_name_no_grade_where_no_set_has_a_level_for_it(tmp_path: Path) -> None:
    phone = named("real/anna.mp4", 2, dataset="noise", label=0, compression="c23", source_id=None)
    make_dataset(tmp_path / "out", (("train", (phone,)),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    assert "compression" not in yaml.safe_load((tmp_path / "dest/deepfakebench.yaml").read_text())


@pytest.mark.parametrize(
    ("dataset", "label", "method", "video_id", "expected"),
    [
        ("celebdf", 0, None, "Celeb-real/id0_0000.mp4", ("CelebDFv2_real", "Celeb-DF-v2/Celeb-real")),
        ("celebdf", 0, None, "Youtube-real/videos/00170.mp4", ("CelebDFv2_real", "Celeb-DF-v2/YouTube-real")),
        ("celebdf", 1, None, "Celeb-synthesis/id0_id1_0000.mp4", ("CelebDFv2_fake", "Celeb-DF-v2/Celeb-synthesis")),
        ("celebdf", 1, "SimSwap", "Celeb-synthesis/FaceSwap/SimSwap/a.mp4", ("celebdf_Fake", "celebdf/celebdf_Fake")),
        ("dfdc", 1, None, "dfdc_train_part_0/a.mp4", ("DFDC_Fake", "DFDC/train")),
        ("dfdcp", 0, None, "original_videos/643669/A.mp4", ("DFDCP_Real", "DFDCP/original_videos")),
        ("dfdcp", 1, "method_B", "method_B/1/a.mp4", ("DFDCP_FakeB", "DFDCP/method_B")),
        ("deeperforensics", 1, "reenact", "m/a.mp4", ("DF_fake", "DeeperForensics-1.0/manipulated_videos/reenact")),
        ("deeperforensics", 0, None, "source_videos/M004/a.mp4", ("DF_real", "DeeperForensics-1.0/source_videos")),
        ("uadfv", 1, None, "fake/0000_fake.mp4", ("UADFV_Fake", "UADFV/fake")),
        ("ffpp", 1, "MyMethod", "manipulated_sequences/MyMethod/c23/videos/a.mp4", ("ffpp_Fake", "ffpp/ffpp_Fake")),
        (None, 0, None, "real/a.mp4", ("facefeed_Real", "facefeed/facefeed_Real")),
        ("DFDC", 0, None, "real/a.mp4", ("DFDC__Real", "DFDC_/DFDC__Real")),
        ("../my set", 1, None, "fake/a.mp4", ("my_set_Fake", "my_set/my_set_Fake")),
    ],
)  # fmt: skip
def test_a_published_set_has_its_own_labels_and_any_other_set_labels_of_its_name(
    dataset: str | None, label: int, method: str | None, video_id: str, expected: tuple[str, str]
) -> None:
    place = only_place(Video(video_id, "train", CLASSES[label], dataset, method))
    assert (place.label, place.folder, place.number) == (*expected, label)
    known = {name for labels in DATASETS.values() for name in labels}
    assert (place.label in known) == (place.folder.split("/")[0] in DATASETS or "FaceForensics++" in place.folder)


def test_fakes_of_methods_that_deepfakebench_does_not_know_stand_in_one_json_with_the_reals_of_their_set(
    tmp_path: Path,
) -> None:
    clips = (
        *(ffpp(f"original_sequences/youtube/{grade}/videos/033.mp4", 0, None, grade) for grade in ("c23", "c40")),
        ffpp("manipulated_sequences/MyMethod/c23/videos/033_097.mp4", 1, "MyMethod"),
        named("Celeb-real/id0_0000.mp4", 2, dataset="celebdf", label=0, source_id=None),
        named("YouTube-real/00170.mp4", 2, dataset="celebdf", label=0, source_id=None),
        named("Celeb-synthesis/FaceSwap/GHOST/id0_id1_0000.mp4", 2, dataset="celebdf", label=1, method="GHOST",
              source_id=None),
    )  # fmt: skip
    make_dataset(tmp_path / "out", (("train", clips),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    jsons = {path.stem: dataset_json(tmp_path / "dest", path.stem) for path in (tmp_path / "dest").rglob("*.json")
             if path.parent.name == "dataset_json"}  # fmt: skip
    assert {name: [*labels] for name, labels in jsons.items()} == {
        "ffpp": ["FF-real", "ffpp_Fake"], "celebdf": ["CelebDFv2_real", "celebdf_Fake"]
    }  # fmt: skip
    frames = [frame for name in jsons for frame in frames_of(jsons[name])]
    assert len(frames) == len({path for *_, path in frames}) == 2 * len(clips)
    assert all(as_the_loader_reads(tmp_path / "dest", path)[0] is not None for *_, path in frames)


def test_the_dataset_to_train_on_has_fakes_also_where_some_originals_have_none(tmp_path: Path) -> None:
    fake = ffpp("manipulated_sequences/FaceShifter/c23/videos/033_097.mp4", 1, "FaceShifter")
    make_dataset(tmp_path / "out", (("train", (ffpp("original_sequences/youtube/c23/videos/033.mp4", 0), fake)),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    settings = yaml.safe_load((tmp_path / "dest/deepfakebench.yaml").read_text())
    assert settings["train_dataset"] == settings["test_dataset"] == ["FaceShifter"]


def test_videos_of_one_name_in_several_folders_of_a_class_are_all_in_the_json(tmp_path: Path) -> None:
    """DeeperForensics has each fake at several levels of distortion, in folders beside each other."""
    folders = ("source_videos/M101", "manipulated_videos/end_to_end", "manipulated_videos/end_to_end_level_1")
    clips = [
        named(f"{folder}/000_M101.mp4", 2, dataset="deeperforensics", label=int(number > 0), source_id=None,
              method=Path(folder).name if number else None)
        for number, folder in enumerate(folders)
    ]  # fmt: skip
    make_dataset(tmp_path / "out", (("train", tuple(clips)),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    frames = [*frames_of(dataset_json(tmp_path / "dest", "DeeperForensics-1.0"))]
    assert len(frames) == len({path for *_, path in frames}) == 6
    assert all(as_the_loader_reads(tmp_path / "dest", path)[0] is not None for *_, path in frames)


CLASSES = ("real", "fake", "screen replay")


def only_place(video: Video) -> Place:
    (place,) = places_of([video], CLASSES)
    return place


@pytest.mark.parametrize("labels", [("真", "假"), ("bona fide", "bona_fide"), ("a", "A")])
def test_classes_whose_names_are_alike_without_special_characters_stay_apart(labels: tuple[str, str]) -> None:
    places = places_of([Video("a.mp4", "train", label, "set", None) for label in labels], labels)
    assert len({place.label.casefold() for place in places}) == len({place.folder.casefold() for place in places}) == 2


def test_sets_whose_names_are_alike_without_special_characters_stay_apart() -> None:
    places = places_of([Video("a.mp4", "train", "fake", name, None) for name in ("my set", "my_set")], CLASSES)
    assert len({place.label for place in places}) == len({place.own_set for place in places}) == 2


def test_labels_of_a_set_and_its_class_stay_apart_where_they_read_alike_together() -> None:
    """DeepfakeBench maps a label to one number, whatever its dataset."""
    sets_and_classes = (("my", "set_paint"), ("my_set", "paint"))
    videos = [Video("a.mp4", "train", label, name, None) for name, label in sets_and_classes]
    places = places_of(videos, [label for _, label in sets_and_classes])
    assert len({place.label for place in places}) == len({place.folder for place in places}) == 2
    assert [place.own_set for place in places] == ["my", "my_set"]


def test_classes_beyond_real_and_fake_keep_their_number() -> None:
    place = only_place(Video("a.mp4", "train", "screen replay", None, None))
    assert (place.label, place.number) == ("facefeed_screen_replay", 2)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (("fake", "live"), [0, 1]),
        (("fake", "genuine", "original"), [0, 1, 2]),
        (("replay", "real", "fake"), [2, 0, 1]),
        (("swap", "Real"), [1, 0]),
    ],
)
def test_no_two_classes_have_one_number_and_real_is_0_where_it_is_known(
    classes: tuple[str, ...], expected: list[int]
) -> None:
    for dataset in (None, "dfdc"):
        videos = [Video(f"{name}.mp4", "train", name, dataset, None) for name in classes]
        assert [place.number for place in places_of(videos, classes)] == expected


def test_no_name_of_a_video_or_a_set_has_what_the_loader_replaces(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out", (("train", (named("real/my_frames.mp4", 2, dataset="frames_2"),)),))
    exported(tmp_path / "out", tmp_path / "dest", "deepfakebench")
    paths = [path for *_, path in frames_of(dataset_json(tmp_path / "dest", "Frames_2"))]
    assert [path.count("frames") for path in paths] == [1, 1]
    assert all(as_the_loader_reads(tmp_path / "dest", path)[1].shape == (5, 2) for path in paths)
