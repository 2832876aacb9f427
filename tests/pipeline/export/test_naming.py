"""Names of videos in an export: one for each video, on any file system, and never outside of the folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from assets_dataset import ELSEWHERE, Clip, make_dataset
from assets_export import exported, files_below, listed
from assets_random import examples
from facefeed.pipeline.export.naming import safe_name, unique_names
from hypothesis import example, given
from hypothesis import strategies as st

ODD = (
    "real/a.b.mp4", "real/a_b.mp4", "fake/a.b.mp4", "real/A.B.mp4", "real/clip.mp4", "other/clip.mkv", "other/clip.mp4",
    "real/...mp4", "real/ .mp4", "real/'quote\" $(x).mp4", "real/new\nline.mp4", "real/größe.mp4", "real/映像.mp4",
    "real/-rf.mp4", "real/" + "long" * 50 + "1.mp4", "real/" + "long" * 50 + "2.mp4", "real/<script>.mp4", "real/~.mp4",
    f"{ELSEWHERE}/clip.mp4", f"{ELSEWHERE}/etc/passwd",
)  # fmt: skip


@pytest.mark.parametrize("form", ["folders", "webdataset", "hf", "deepfakebench"])
def test_videos_of_odd_names_are_all_exported_below_the_folder(tmp_path: Path, form: str) -> None:
    make_dataset(tmp_path / "out", (("train", tuple(Clip(name, 2) for name in ODD)),))
    figures = exported(tmp_path / "out", tmp_path / "dest", form)
    assert figures["rows"] == 2 * len(ODD)
    assert {path.split("/")[0] for path in files_below(tmp_path)} == {"out", "dest"}
    for path in listed(tmp_path / "dest"):
        assert re.fullmatch(r"[A-Za-z0-9_+~./-]+", path)
        assert not any(part.startswith((".", "-")) for part in path.split("/"))
    if form == "folders":
        assert figures["files"] == 2 * len(ODD) + 1


def test_paths_from_outside_of_the_source_name_no_path_outside_of_the_export() -> None:
    ids = ["/data/films/clip.mp4", "/data/more/clip.mp4", "../../etc/passwd", "/etc/passwd", "..", "/", "a/../b.mp4"]
    names = unique_names(ids, [0] * len(ids))
    assert names[:2] == ["data_films_clip", "data_more_clip"]
    assert len(set(names)) == len(ids)
    assert not any("/" in name or name.startswith(".") for name in names)


def test_a_video_is_called_by_its_stem_where_that_is_unique_in_its_group() -> None:
    ids = ["real/a.mp4", "fake/a.mp4", "fake/b.mp4"]
    assert unique_names(ids, ["real", "fake", "fake"]) == ["a", "a", "b"]
    assert unique_names(ids, [0, 0, 0]) == ["real_a", "fake_a", "b"]
    # The longer name of one must not be the name of another.
    assert len(set(unique_names(["x/a.mp4", "y/a.mp4", "x_a.mp4"], [0, 0, 0]))) == 3


texts = st.lists(st.text(st.characters(codec="utf-8"), min_size=1), unique=True, max_size=30)


@examples(300)
@given(texts)
def test_any_two_videos_have_two_names_also_where_case_does_not_count(video_ids: list[str]) -> None:
    names = unique_names(video_ids, [0] * len(video_ids))
    assert len({name.lower() for name in names}) == len(video_ids)
    assert all(re.fullmatch(r"[A-Za-z0-9_+~-]{1,100}", name) for name in names)
    shuffled = list(reversed(video_ids))
    assert dict(zip(shuffled, unique_names(shuffled, [0] * len(shuffled)), strict=True)) == dict(
        zip(video_ids, names, strict=True)
    )


@example("-:0")
@example("_-_-0_-_")
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_a_safe_name_stays_as_it_is(text: str) -> None:
    assert safe_name(safe_name(text)) == safe_name(text)
