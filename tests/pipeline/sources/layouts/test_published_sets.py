"""What a user notices of sets as they are shared: each file with its label, split, original, people and method."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from assets_layouts import Footage, lay_ffpp
from assets_published import (
    CELEBDF_PP,
    DEEPERFORENSICS,
    FAKEAVCELEB,
    FFIW,
    FFPP_KAGGLE,
    PUBLISHED_SETS,
    UADFV,
    Columns,
    PublishedSet,
)
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import Entry, Listing, detect_layout, list_source, listing_warnings
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits

DFDC_PREVIEW = PUBLISHED_SETS["DFDC's preview"]

sets = pytest.mark.parametrize("published", PUBLISHED_SETS.values(), ids=list(PUBLISHED_SETS))


def columns_of(listing: Listing) -> dict[str, Columns]:
    return {
        entry.video_id: Columns(
            label=entry.label, split=entry.split, source_id=entry.source_id, identity=entry.identity,
            related=entry.related_identities,
            method=entry.method, compression=entry.compression, fake_segments=entry.fake_segments,
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
@pytest.mark.parametrize("form", ["frames/{}", "Faces/{}", "{}/crops"])
def test_extracted_frames_instead_of_videos_have_the_columns_of_their_video(
    tmp_path: Path, footage: Footage, published: PublishedSet, form: str
) -> None:
    if form == "{}/crops" and (published.layout == "avdeepfake1m" or published.folder == "DFDC"):
        pytest.skip("videos called real or fake, or directly in SRC")
    src = published.lay(tmp_path, footage)

    def frames_of(name: str) -> str:
        folder, _, file = name.rpartition("/")
        return f"{folder.removesuffix('videos').rstrip('/')}/{form.format(Path(file).stem)}".lstrip("/")

    expected = {}
    for name, columns in published.files.items():
        frames = frames_of(name)
        (src / frames).mkdir(parents=True)
        (src / name).unlink()
        original = frames_of(columns.source_id) if columns.source_id else None
        if published.layout == "avdeepfake1m":  # a folder called real is that of a class
            original = columns.source_id
        by_frame = published.layout not in ("lavdf", "avdeepfake1m")  # whose lists name videos
        for number in range(2):
            (src / frames / f"{number:03}.png").touch()
            label = columns.label if columns.fake_segments is None else -1  # the frame's time is not known
            source_id = f"{original}/{number:03}.png" if original and by_frame else original
            expected[f"{frames}/{number:03}.png"] = (
                label, columns.split, columns.method, columns.identity, source_id
            )  # fmt: skip
    listing = list_source(src, published.layout)
    assert {
        entry.video_id: (entry.label, entry.split, entry.method, entry.identity, entry.source_id)
        for entry in listing.entries
    } == expected
    ratio = SplitRatio(train=40, val=30, test=30)
    splits = assign_splits(listing.entries, ratio=ratio, seed=0, allow_leaks=True).split_of
    for clip in {name.rpartition("/")[0] for name in expected}:
        assert len({split for name, split in splits.items() if name.startswith(f"{clip}/")}) == 1


@pytest.mark.parametrize(
    ("published", "folder", "misspelt"),
    [(FFPP_KAGGLE, "NeuralTextures", "NeuralTexture"), (FFPP_KAGGLE, "original", "orginal"),
     (DFDC_PREVIEW, "original_videos", "orginal_videos"), (DFDC_PREVIEW, "method_A", "methd_A"),
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


@pytest.mark.parametrize(
    ("foreign", "label"),
    [("fake/holiday.mp4", 1), ("fake/anna/0001.png", 1), ("real/holiday.mp4", 0), ("teaser.mp4", None),
     ("other/0000_fake.mp4", None)],
)  # fmt: skip
def test_a_foreign_file_beside_those_of_uadfv_is_reported_and_hides_no_original(
    tmp_path: Path, footage: Footage, foreign: str, label: int | None
) -> None:
    src = UADFV.lay(tmp_path, footage)
    footage.lay(src, fake=[foreign])
    for name in ("fake/README.md", "files.csv"):
        (src / name).touch()
    listing = list_source(src)
    columns = columns_of(listing)
    assert (listing.layout, {name: columns[name] for name in UADFV.files}) == ("uadfv", UADFV.files)
    if label is None:
        assert listing.ignored["media beside the folders"] == 1
    else:
        assert columns[foreign] == Columns(label=label)
        assert f"1 input is not called as those of uadfv ('{foreign}')" in "".join(listing_warnings(listing))


def test_many_foreign_fakes_hide_no_original_of_uadfv(tmp_path: Path, footage: Footage) -> None:
    src = UADFV.lay(tmp_path, footage)
    for number in range(60):
        (src / f"fake/0 {number}.mp4").touch()
    assert by_name(list_source(src))["fake/0000_fake.mp4"].source_id == "real/0000.mp4"


@pytest.mark.parametrize(("published", "folders"), [(UADFV, ("real", "fake")), (FFIW, ("source", "target"))])
def test_folders_of_classes_in_another_case_lose_no_original_and_no_split(
    tmp_path: Path, footage: Footage, published: PublishedSet, folders: tuple[str, str]
) -> None:
    src = published.lay(tmp_path, footage)
    for folder in folders:
        (src / folder).rename(src / folder.title())
    entries = list_source(src).entries
    assert {(entry.video_id, entry.source_id, entry.split) for entry in entries} == {
        (name.capitalize(), columns.source_id and columns.source_id.capitalize(), columns.split)
        for name, columns in published.files.items()
    }


def test_folders_called_source_and_target_without_splits_are_no_ffiw(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path, real=["source/a.mp4"], fake=["target/a.mp4"])
    assert list_source(tmp_path).layout == "folder"


def test_a_copy_of_part_of_a_set_in_it_is_not_searched_again(tmp_path: Path, footage: Footage) -> None:
    src = FFPP_KAGGLE.lay(tmp_path / "outer", footage)
    shutil.copytree(src, src / "backup" / "set")
    with pytest.raises(UsageError, match=r"holds a ffpp set in 'FaceForensics\+\+_C23': name that folder"):
        list_source(tmp_path / "outer")


def test_folders_of_dfdcs_preview_in_another_case_have_the_labels_of_its_table(
    tmp_path: Path, footage: Footage
) -> None:
    src = DFDC_PREVIEW.lay(tmp_path, footage)
    spelt = {"original_videos": "Original_Videos", "method_A": "method_a", "method_B": "Method-B"}
    for folder, name in spelt.items():
        (src / folder).rename(src / name)
    listing = list_source(src)
    names = {name: f"{spelt[name.partition('/')[0]]}/{name.partition('/')[2]}" for name in DFDC_PREVIEW.files}
    assert columns_of(listing) == {names[name]: columns for name, columns in DFDC_PREVIEW.files.items()}
    assert tuple(listing.missing) == DFDC_PREVIEW.missing


def test_dfdcs_preview_of_which_all_folders_are_misspelt_is_refused_with_the_name_that_is_meant(
    tmp_path: Path, footage: Footage
) -> None:
    src = DFDC_PREVIEW.lay(tmp_path, footage)
    for folder, name in {"original_videos": "orignal_videos", "method_A": "metod_A", "method_B": "metod_B"}.items():
        (src / folder).rename(src / name)
    with pytest.raises(UsageError, match="has a folder 'metod_A', did you mean 'method_A'"):
        list_source(src)


def by_name(listing: Listing) -> dict[str, Entry]:
    return {entry.video_id: entry for entry in listing.entries}


@pytest.mark.parametrize("kept", [("RealVideo-RealAudio", "FakeVideo-RealAudio"), ("FakeVideo-FakeAudio",)])
def test_some_folders_of_fakeavceleb_are_read_without_the_others(
    tmp_path: Path, footage: Footage, kept: tuple[str, ...]
) -> None:
    src = FAKEAVCELEB.lay(tmp_path, footage)
    for folder in {name.split("/")[0] for name in FAKEAVCELEB.files} - {*kept}:
        shutil.rmtree(src / folder)
    listing = list_source(src)
    assert columns_of(listing) == {
        name: columns for name, columns in FAKEAVCELEB.files.items() if name.split("/")[0] in kept
    }


def test_folders_of_fakeavceleb_in_another_case_have_the_methods_of_the_table(tmp_path: Path, footage: Footage) -> None:
    src = FAKEAVCELEB.lay(tmp_path, footage)
    (src / "FakeVideo-RealAudio").rename(src / "fakevideo_realaudio")
    entry = next(entry for name, entry in by_name(list_source(src)).items() if name.startswith("fakevideo_realaudio"))
    assert (entry.label, entry.method) == (1, "faceswap")


def test_frames_of_an_original_and_of_its_fakes_are_one_recording(tmp_path: Path, footage: Footage) -> None:
    src = tmp_path / "FakeAVCeleb"
    person = "African/men/id00076"
    for clip in (f"RealVideo-RealAudio/{person}/00109", f"FakeVideo-RealAudio/{person}/00109_id00166_wFV"):
        footage.lay(src, real=[f"{clip}/001.jpg"])
    assert {entry.footage for entry in list_source(src).entries} == {"fakeavceleb/id00076/00109"}


@pytest.mark.parametrize(
    ("published", "folder"),
    [(FFPP_KAGGLE, "Deepfakes"), (CELEBDF_PP, "Celeb-synthesis"), (FAKEAVCELEB, "FakeVideo-FakeAudio"),
     (DEEPERFORENSICS, "source_videos"), (UADFV, "real")],
)  # fmt: skip
def test_a_linked_folder_outside_is_refused_with_the_folder_to_allow(
    tmp_path: Path, footage: Footage, published: PublishedSet, folder: str
) -> None:
    src = published.lay(tmp_path, footage)
    shutil.move(src / folder, tmp_path / "elsewhere")
    (src / folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=f"--allow-root {tmp_path}/elsewhere"):
        list_source(src)
    listing = list_source(src, allowed=[tmp_path / "elsewhere"])
    assert {entry.label for entry in listing.entries} == {0, 1}


@pytest.mark.parametrize(
    ("folder", "misspelt", "says"),
    [("original_sequences", "orignal_sequences", "did you mean 'original_sequences'"),
     ("original_sequences/youtube", "original_sequences/youtub", "did you mean 'youtube'"),
     ("manipulated_sequences/NeuralTextures", "manipulated_sequences/NeuralTexture", "did you mean 'NeuralTextures'")],
)  # fmt: skip
def test_a_folder_of_the_published_ffpp_that_is_misspelt_is_refused(
    tmp_path: Path, footage: Footage, folder: str, misspelt: str, says: str
) -> None:
    src = lay_ffpp(tmp_path / "ffpp", footage)
    (src / folder).rename(src / misspelt)
    with pytest.raises(UsageError, match=says):
        list_source(src)


@pytest.mark.parametrize(
    ("folder", "spelt"),
    [("original_sequences/youtube", "Youtube"), ("original_sequences/actors", "Actors"),
     ("original_sequences/youtube/c23", "C23"), ("original_sequences/youtube/raw/videos", "Videos"),
     ("manipulated_sequences/Deepfakes/masks", "Masks"), ("original_sequences", "Original-Sequences"),
     ("manipulated_sequences", "Manipulated_Sequences")],
)  # fmt: skip
def test_folders_of_the_published_ffpp_in_another_case_lose_no_original_and_no_mask(
    tmp_path: Path, footage: Footage, folder: str, spelt: str
) -> None:
    src = lay_ffpp(tmp_path / "ffpp", footage)
    respelt = f"{folder.rpartition('/')[0]}/{spelt}".lstrip("/")

    def renamed(path: str | None) -> str | None:
        return path and path.replace(f"{folder}/", f"{respelt}/")

    before = list_source(src)
    (src / folder).rename(src / respelt)
    for below in (".", respelt.split("/")[0]):
        after = by_name(list_source(src / below))
        expected = [
            replace(entry, video_id=f"{renamed(entry.video_id)}", source_id=renamed(entry.source_id),
                    mask_id=renamed(entry.mask_id))
            for entry in before.entries
        ]  # fmt: skip
        assert after == {entry.video_id: entry for entry in expected if below == "." or entry.video_id in after}
    assert list_source(src).missing == []


def test_folders_within_a_flat_ffpp_may_be_in_any_case(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, real=["original/c23/videos/033.mp4"], fake=["Deepfakes/C23/Videos/033_097.mp4"])
    fake, real = list_source(src).entries
    assert (fake.source_id, fake.compression, real.compression) == (real.video_id, "c23", "c23")


def test_methods_and_compressions_of_the_published_ffpp_may_be_in_any_case(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, fake=["manipulated_sequences/deepfakes/C23/videos/033_097.mp4"])
    (entry,) = list_source(src).entries
    assert (entry.method, entry.compression, entry.identity) == ("Deepfakes", "c23", "youtube/097")


def test_a_celeb_df_whose_list_and_video_folders_are_in_another_case_keeps_its_test_set(
    tmp_path: Path, footage: Footage
) -> None:
    src = footage.lay(tmp_path, real=["Celeb-real/Videos/id0_0000.mp4", "Celeb-real/Videos/id1_0000.mp4"])
    (src / "list_of_testing_videos.txt").write_text("1 Celeb-real/id0_0000.mp4\n")
    assert [entry.split for entry in list_source(src).entries] == ["test", "train"]


@pytest.mark.parametrize(
    ("name", "meant"), [("list", "lists"), ("lists/split", "splits"), ("lists/splits/tests.txt", "test")]
)
def test_a_list_of_deeperforensics_whose_name_is_nearly_right_is_refused(
    tmp_path: Path, footage: Footage, name: str, meant: str
) -> None:
    src = DEEPERFORENSICS.lay(tmp_path, footage)
    right = {"list": "lists", "lists/split": "lists/splits"}.get(name, "lists/splits/test.txt")
    (src / right).rename(src / name)
    with pytest.raises(UsageError, match=rf"has '{Path(name).name}', did you mean '{meant}"):
        list_source(src)


def test_lists_of_deeperforensics_that_are_not_there_are_named(tmp_path: Path, footage: Footage) -> None:
    src = DEEPERFORENSICS.lay(tmp_path, footage)
    (src / "lists/splits/test.txt").unlink()
    assert list_source(src).missing_split_lists == ("val.txt", "test.txt")


@pytest.mark.parametrize("beside", [True, False])
def test_dfdcs_test_set_with_table_and_metadata_has_each_video_once(
    tmp_path: Path, footage: Footage, beside: bool
) -> None:
    src = footage.lay(tmp_path, real=["a.mp4" if beside else "videos/a.mp4"])
    (src / "metadata.json").write_text('{"a.mp4": {"is_fake": 1, "augmentations": {}}}')
    for table in ("filename,label\na.mp4,1\n", None):
        if table:
            (src / "labels.csv").write_text(table)
        else:
            (src / "labels.csv").unlink()
        listing = list_source(src)
        assert ([entry.label for entry in listing.entries], listing.missing) == ([1], [])


@pytest.mark.parametrize(
    ("name", "text"),
    [("labels.csv", "filename,label\nreal/a.mp4,1\nfake/b.mp4,0\n"), ("labels.csv", "filename,label\na.mp4,REAL\n"),
     ("metadata.json", "{}"), ("metadata.json", '{"info": {"v": 1}}'), ("metadata.json", '[{"file": "a.mp4"}]')],
)  # fmt: skip
def test_a_table_or_metadata_of_ones_own_does_not_make_folders_of_classes_a_dfdc(
    tmp_path: Path, footage: Footage, name: str, text: str
) -> None:
    src = footage.lay(tmp_path, real=["real/a.mp4"], fake=["fake/b.mp4"])
    (src / name).write_text(text)
    listing = list_source(src)
    assert (listing.layout, [entry.label for entry in listing.entries]) == ("folder", [1, 0])


def test_images_with_a_table_of_ones_own_beside_them_have_no_labels_of_dfdc(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("filename,label\n0001.jpg,1\n0002.jpg,0\n")  # 1 may be real
    for name in ("0001.jpg", "0002.jpg"):
        (tmp_path / name).touch()
    listing = list_source(tmp_path)
    assert (listing.layout, [entry.label for entry in listing.entries]) == ("folder", [-1, -1])
    assert any("2 of 2 inputs have no label" in text for text in listing_warnings(listing))


def test_frames_of_dfdcs_clips_have_the_labels_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("filename,label\naaa.mp4,1\nbbb.mp4,0\n")
    for name in ("frames/aaa/0.png", "frames/aaa/1.png", "frames/bbb/0.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listing = list_source(tmp_path)
    assert (listing.layout, [entry.label for entry in listing.entries]) == ("dfdc", [1, 1, 0])


def test_other_files_beside_the_videos_do_not_hide_a_set(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, real=["original/033.mp4"], fake=["Deepfakes/033_097.mp4"])
    for number in range(200):
        (src / f"Deepfakes/log_{number}.txt").touch()
    assert list_source(src).layout == "ffpp"


def test_where_a_class_of_a_set_is_absent_a_warning_says_what_was_left_out(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, real=["own/anna.mp4", "own/ben.mp4"], fake=["Deepfakes/033_097.mp4"])
    warnings = "\n".join(listing_warnings(list_source(src)))
    assert "no input is real (layout ffpp, found: folders called Deepfakes" in warnings
    assert "left out: 2 in own/" in warnings


def test_pairs_of_other_names_in_source_and_target_are_no_ffiw(tmp_path: Path, footage: Footage) -> None:
    src = footage.lay(tmp_path, real=["source/train/a.mp4"], fake=["target/train/b.mp4"])
    assert list_source(src).layout == "folder"


def test_a_folder_that_may_not_be_listed_is_no_set_and_no_crash(
    tmp_path: Path, footage: Footage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = {
        published.lay(tmp_path / str(number), footage): published.layout
        for number, published in enumerate(PUBLISHED_SETS.values())
    }

    def refuse(folder: Path) -> None:
        raise PermissionError(folder)

    monkeypatch.setattr("facefeed.pipeline.sources.media.media_files._children", refuse)
    for src, layout in sets.items():
        assert detect_layout(src) in (layout, "folder")


@pytest.mark.parametrize(
    ("change", "message"),
    [({"modify_video": "False"}, r"must have file \(str\), modify_video \(bool\)"),
     ({"fake_periods": None}, r"fake_periods \(list\)"), ({"file": "train/000001.mp4"}, "names a video twice")],
)  # fmt: skip
def test_a_record_of_lavdf_that_says_nothing_certain_is_refused(
    tmp_path: Path, footage: Footage, change: dict[str, object], message: str
) -> None:
    src = PUBLISHED_SETS["LAV-DF"].lay(tmp_path, footage)
    records = json.loads((src / "metadata.json").read_text())
    records[1] |= change
    (src / "metadata.json").write_text(json.dumps(records))
    with pytest.raises(UsageError, match=message):
        list_source(src)


def test_of_one_split_of_lavdf_on_disk_splits_are_drawn(tmp_path: Path, footage: Footage) -> None:
    src = PUBLISHED_SETS["LAV-DF"].lay(tmp_path, footage)
    (src / "train").rename(src / "other")
    shutil.rmtree(src / "dev")
    listing = list_source(src)
    assert {entry.split for entry in listing.entries} == {None}
    assert any("have the split test, and none another" in text for text in listing_warnings(listing))
    shutil.rmtree(src / "test")
    (src / "other").rename(src / "train")
    listing = list_source(src)
    assert {entry.split for entry in listing.entries} == {None}
    assert not any("have the split" in text for text in listing_warnings(listing)), "no test videos are lost"


@pytest.mark.parametrize("name", ["LAV-DF", "AV-Deepfake1M"])
def test_all_versions_of_a_recording_are_in_one_split_also_when_the_original_is_not_there(
    tmp_path: Path, footage: Footage, name: str
) -> None:
    if name == "LAV-DF":
        versions = [f"train/00000{number}.mp4" for number in range(1, 5)]
        records = [
            {"file": path, "n_fakes": 1, "fake_periods": [[0, 1]], "original": "train/000009.mp4", "split": "train",
             "modify_video": number < 2, "modify_audio": number > 0}
            for number, path in enumerate(versions)
        ]  # fmt: skip
        table = "metadata.json"
    else:
        kinds = ("visual_modified", "both_modified", "audio_modified")
        versions = [f"train/clip/00001/{kind}.mp4" for kind in kinds]
        records = [
            {"file": f"clip/00001/{kind}.mp4", "original": "clip/00001/real.mp4", "split": "train", "modify_type": kind,
             "fake_segments": [[0, 1]], "visual_fake_segments": [[0, 1]] if kind != "audio_modified" else []}
            for kind in kinds
        ]  # fmt: skip
        table = "train_metadata.json"
    src = footage.lay(tmp_path / "src", real=[*versions, "train/other.mp4"])
    (src / table).write_text(json.dumps(records))
    entries = list_source(src).entries
    for seed in range(10):
        drawn = assign_splits(entries, ratio=SplitRatio(train=34, val=33, test=33), seed=seed).split_of
        assert len({drawn[path] for path in versions}) == 1


def test_paths_that_windows_wrote_are_found(tmp_path: Path, footage: Footage) -> None:
    published = PUBLISHED_SETS["LAV-DF"]
    src = published.lay(tmp_path, footage)
    records = json.loads((src / "metadata.json").read_text())
    for record in records:
        record["file"] = ".\\" + record["file"].replace("/", "\\")
    (src / "metadata.json").write_text(json.dumps(records))
    assert columns_of(list_source(src)) == published.files


@pytest.mark.parametrize(("name", "table"), [("LAV-DF", "metadata.json"), ("AV-Deepfake1M", "val_metadata.json")])
def test_metadata_whose_paths_start_elsewhere_is_refused_with_both_spellings(
    tmp_path: Path, footage: Footage, name: str, table: str
) -> None:
    src = PUBLISHED_SETS[name].lay(tmp_path, footage)
    records = json.loads((src / table).read_text())
    for record in records:
        record["file"] = f"data/{record['file']}"
    (src / table).write_text(json.dumps(records))
    with pytest.raises(UsageError, match=rf"{table}: names none of the \d files \(its first: '.*data/.*', on disk: '"):
        list_source(src)
