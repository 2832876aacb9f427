"""What a user notices of several compressions of one recording: no splits separate them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from facefeed.pipeline.sources import Listing, list_source
from facefeed.pipeline.splits.assignment import SplitRatio, assign_splits


def listed(root: Path, names: Sequence[str], table: str | None = None) -> Listing:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    if table is None:
        return list_source(root)
    (root / "table.csv").write_text(table)
    return list_source(root / "table.csv")


def split_of(listing: Listing) -> dict[str, str]:
    assigned = assign_splits(listing.entries, ratio=SplitRatio(train=40, val=30, test=30), seed=0)
    return dict(assigned.split_of)


FORMS = [("{}.mp4", "c23/{}.mp4"), ("raw/{}.avi", "c23/{}.mp4", "c40/videos/{}.mp4"), ("c23/{}/1.png", "c40/{}/1.png"),
         ("{}/C23.mp4", "{}/c40.mp4")]  # fmt: skip


@pytest.mark.parametrize("forms", FORMS)
def test_compressions_of_one_recording_are_in_one_split(tmp_path: Path, forms: tuple[str, ...]) -> None:
    clips = [f"{label}{number}" for label in ("a", "b") for number in range(8)]
    names = {clip: [f"real/{form.format(clip)}" for form in forms] for clip in clips}
    listing = listed(tmp_path, [name for of_clip in names.values() for name in of_clip])
    footage = {entry.video_id: entry.footage for entry in listing.entries}
    together = [{footage[name] for name in of_clip} for of_clip in names.values()]
    assert all(len(each) == 1 and None not in each for each in together)
    assert len(set.union(*together)) == len(clips)
    splits = split_of(listing)
    assert all(len({splits[name] for name in of_clip}) == 1 for of_clip in names.values())
    assert len({*splits.values()}) > 1


def test_a_fake_and_a_real_video_of_one_name_are_no_compressions_of_each_other(tmp_path: Path) -> None:
    listing = listed(tmp_path, ["c23/real/7.mp4", "c23/fake/7.mp4", "real/7.mp4", "real/8.mp4", "real/8.avi"])
    assert {entry.video_id: entry.footage for entry in listing.entries} == {
        "c23/real/7.mp4": "real/7", "real/7.mp4": "real/7", "c23/fake/7.mp4": None, "real/8.mp4": None,
        "real/8.avi": None,
    }  # fmt: skip


def test_a_table_that_names_recordings_is_believed(tmp_path: Path) -> None:
    names = ["c23/7.mp4", "c40/7.mp4"]
    rows = "".join(f"{name},real,{name}\n" for name in names)
    table = listed(tmp_path, names, f"path,label,footage\n{rows}")
    assert [entry.footage for entry in table.entries] == names
    without = listed(tmp_path, names, "path,label\n" + "".join(f"{name},real\n" for name in names))
    assert [entry.footage for entry in without.entries] == ["7", "7"]
