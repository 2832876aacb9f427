"""What a user notices who names a folder one level beside a published set: its name, and no wrong labels."""

from __future__ import annotations

from pathlib import Path

import pytest
from assets_layouts import Footage, lay_celebdf, lay_dfdc, lay_ffpp
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.sources import list_source

LAY = {"ffpp": lay_ffpp, "celebdf": lay_celebdf, "dfdc": lay_dfdc}


@pytest.mark.parametrize("layout", LAY)
def test_the_folder_above_a_set_is_told_which_folder_is_meant(tmp_path: Path, footage: Footage, layout: str) -> None:
    LAY[layout](tmp_path / "set", footage)
    footage.lay(tmp_path, real=["fake/holiday.mp4"])
    says = rf"holds a {layout} set in 'set': name that folder, or read it as it lies with --layout folder"
    with pytest.raises(UsageError, match=says) as caught:
        list_source(tmp_path)
    assert f"SRC={str(tmp_path)!r}" in str(caught.value)
    assert list_source(tmp_path / "set").layout == layout


def test_the_folder_above_several_sets_is_told_all_of_them(tmp_path: Path, footage: Footage) -> None:
    for layout, lay in LAY.items():
        lay(tmp_path / layout, footage)
    (tmp_path / "second").symlink_to(tmp_path / "ffpp")
    says = (
        r"holds a celebdf set in 'celebdf' and a dfdc set in 'dfdc' and a ffpp set in 'ffpp' and 1 more: name one of "
        "these folders"
    )
    with pytest.raises(UsageError, match=says):
        list_source(tmp_path)


@pytest.mark.parametrize("inner", ["Celeb-synthesis", "Celeb-real", "YouTube-real", "Celeb-synthesis/videos"])
def test_one_folder_of_celeb_df_is_told_the_folder_above(
    tmp_path: Path, footage: Footage, monkeypatch: pytest.MonkeyPatch, inner: str
) -> None:
    footage.lay(tmp_path / "Celeb-DF" / inner, fake=["id0_id1_0000.mp4"])
    says = rf"is one folder of a celebdf set.*: name '{tmp_path}/Celeb-DF', or read it as it lies with --layout folder"
    with pytest.raises(UsageError, match=says):
        list_source(tmp_path / "Celeb-DF" / inner)
    monkeypatch.chdir(tmp_path / "Celeb-DF" / inner)
    with pytest.raises(UsageError, match=says):
        list_source(Path())


def test_asked_for_a_plain_folder_it_is_read_as_one(tmp_path: Path, footage: Footage) -> None:
    lay_celebdf(tmp_path / "set", footage)
    for src in (tmp_path, tmp_path / "set/Celeb-synthesis"):
        assert {entry.label for entry in list_source(src, "folder").entries} == {-1}


def test_a_set_two_levels_down_is_not_looked_for(tmp_path: Path, footage: Footage) -> None:
    lay_celebdf(tmp_path / "downloads/set", footage)
    assert list_source(tmp_path).layout == "folder"
