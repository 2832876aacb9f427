"""What a user notices who names a folder one level beside a published set: its name, and no wrong labels."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from assets_layouts import Footage, lay_celebdf, lay_dfdc, lay_ffpp
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import list_source
from facefeed.pipeline.sources.media import media_files

LAY = {"ffpp": lay_ffpp, "celebdf": lay_celebdf, "dfdc": lay_dfdc}


@pytest.mark.parametrize("layout", LAY)
def test_for_the_folder_above_a_set_the_right_folder_is_named(tmp_path: Path, footage: Footage, layout: str) -> None:
    LAY[layout](tmp_path / "set", footage)
    footage.lay(tmp_path, real=["fake/holiday.mp4"])
    pattern = rf"holds a {layout} set in 'set': name that folder, or read it as it lies with --layout folder"
    with pytest.raises(UsageError, match=pattern) as caught:
        list_source(tmp_path)
    assert f"SRC={str(tmp_path)!r}" in str(caught.value)
    assert list_source(tmp_path / "set").layout == layout


def test_for_the_folder_above_several_sets_all_of_them_are_named(tmp_path: Path, footage: Footage) -> None:
    for layout, lay in LAY.items():
        lay(tmp_path / layout, footage)
    (tmp_path / "second").symlink_to(tmp_path / "ffpp")
    pattern = (
        r"holds a celebdf set in 'celebdf' and a dfdc set in 'dfdc' and a ffpp set in 'ffpp' and 1 more: name one of "
        "these folders"
    )
    with pytest.raises(UsageError, match=pattern):
        list_source(tmp_path)


@pytest.mark.parametrize("inner", ["Celeb-synthesis", "Celeb-real", "YouTube-real", "Celeb-synthesis/videos"])
def test_for_one_folder_of_celeb_df_the_folder_above_is_named(
    tmp_path: Path, footage: Footage, monkeypatch: pytest.MonkeyPatch, inner: str
) -> None:
    footage.lay(tmp_path / "Celeb-DF" / inner, fake=["id0_id1_0000.mp4"])
    pattern = (
        rf"is one folder of a celebdf set.*: name '{tmp_path}/Celeb-DF', or read it as it lies with --layout folder"
    )
    with pytest.raises(UsageError, match=pattern):
        list_source(tmp_path / "Celeb-DF" / inner)
    monkeypatch.chdir(tmp_path / "Celeb-DF" / inner)
    with pytest.raises(UsageError, match=pattern):
        list_source(Path())


def test_asked_for_a_plain_folder_it_is_read_as_one(tmp_path: Path, footage: Footage) -> None:
    lay_celebdf(tmp_path / "set", footage)
    for src in (tmp_path, tmp_path / "set/Celeb-synthesis"):
        assert {entry.label for entry in list_source(src, "folder").entries} == {-1}


@pytest.mark.parametrize(("inner", "is_named"), [("a/b/set", True), ("a/b/c/set", False)])
def test_a_set_is_looked_for_three_levels_down(tmp_path: Path, footage: Footage, inner: str, is_named: bool) -> None:
    lay_celebdf(tmp_path / inner, footage)
    if is_named:
        with pytest.raises(UsageError, match=rf"holds a celebdf set in '{inner}': name that folder"):
            list_source(tmp_path)
    else:
        assert list_source(tmp_path).layout == "folder"


def test_sets_side_by_side_are_refused_and_each_can_be_read_by_its_layout(tmp_path: Path, footage: Footage) -> None:
    lay_ffpp(tmp_path, footage)
    lay_celebdf(tmp_path, footage)
    with pytest.raises(
        UsageError,
        match=r"several published sets side by side, ffpp and celebdf, .*: name it with --layout ffpp or --layout "
        r"celebdf, or move each set into a folder of its own",
    ):
        list_source(tmp_path)
    for layout in ("ffpp", "celebdf"):
        assert {entry.dataset for entry in list_source(tmp_path, layout).entries} == {layout}


@pytest.mark.parametrize("beside", ["Celeb-DF-v2", "more/Celeb-DF-v2"])
def test_a_set_in_a_folder_beside_the_one_that_is_read_is_a_warning(
    tmp_path: Path, footage: Footage, beside: str
) -> None:
    lay_ffpp(tmp_path, footage)
    alone = list_source(tmp_path)
    lay_celebdf(tmp_path / beside, footage)
    listing = list_source(tmp_path)
    assert listing.entries == alone.entries
    assert {*listing.warnings} - {*alone.warnings} == {
        f"'{beside}' holds a celebdf set, which is not read (layout ffpp): name that folder as the SRC of a run of "
        "its own"
    }
    assert list_source(tmp_path / "manipulated_sequences").warnings == (), "which does not hold it"


@pytest.mark.parametrize(
    ("real", "fake", "folder", "other"),
    [(["real/anna.mp4"], ["fake/Deepfakes/033_097.mp4"], "fake", "real"),
     (["data/0_real/anna.mp4"], ["data/1_fake/Celeb-synthesis/id0_id1_0000.mp4"], "data/1_fake", "data/0_real"),
     (["real_test/035.mp4", "real_train/033.mp4"], ["fake_train/F2F/033_097.mp4"], "fake_train", "real_test"),
     (["real/033.mp4"], ["fake/F2F/033_097.mp4", "manipulated/DF/033_097.mp4"], "fake", "real"),
     (["real/anna.mp4"], ["fake/F2F/033_097.mp4", "manipulated/DF/033_097.mp4"], "fake", "real")],
)  # fmt: skip
def test_of_a_set_in_the_folder_of_one_class_both_classes_are_read_by_what_the_message_names(
    tmp_path: Path, footage: Footage, real: list[str], fake: list[str], folder: str, other: str
) -> None:
    src = footage.lay(tmp_path, real=real, fake=fake)
    pattern = f"but '{folder}' and '{other}' are called after two classes: .* read both with --layout folder"
    with pytest.raises(UsageError, match=pattern) as caught:
        list_source(src)
    assert not re.search(r"name (that|one of)", str(caught.value)), "which would be a set of one class"
    assert {entry.label for entry in list_source(src, "folder").entries} == {0, 1}


def test_a_whole_set_in_a_folder_called_like_a_class_is_still_named(tmp_path: Path, footage: Footage) -> None:
    footage.lay(tmp_path / "Deepfake Dataset", real=["original/033.mp4"], fake=["F2F/033_097.mp4"])
    with pytest.raises(UsageError, match="holds a ffpp set in 'Deepfake Dataset': name that folder"):
        list_source(tmp_path)


def test_no_folder_is_listed_again_and_again_until_a_layout_is_chosen(
    tmp_path: Path, footage: Footage, monkeypatch: pytest.MonkeyPatch
) -> None:
    src = footage.lay(tmp_path, real=["real/anna.mp4", "real/more/ben.mp4"], fake=["fake/anna.mp4"])
    listed: Counter[str] = Counter()
    children = media_files._children
    monkeypatch.setattr(media_files, "_children", lambda path: listed.update([str(path).rstrip("/")]) or children(path))
    assert len(list_source(src).entries) == 3
    assert set(listed.values()) == {2}, "once to choose the layout, once to list the media"
    footage.lay(tmp_path, real=["real/clara.mp4"])
    assert len(list_source(src).entries) == 4
