"""What a user notices of a set that mixes videos that are cropped already with others: column `whole_frame`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_rows import stored_rows
from facefeed.pipeline.baselines.onthefly import OnTheFlyFaces
from facefeed.pipeline.dataset.out import OutPaths
from facefeed.pipeline.dryrun.report import print_dry_run
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces import FaceFilter
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.inspect.inspection import inspect_dataset
from facefeed.pipeline.inspect.page import write_page
from facefeed.pipeline.planning.options import Options, hash_config
from facefeed.pipeline.planning.plan import Plan, Unit
from facefeed.pipeline.precompute import Summary, precompute
from facefeed.pipeline.sources import Entry, list_source

HEADER = "path,label,split,source,whole_frame"
LEFT_HALF = FixedBoxDetector([(0.0, 0.0, 0.5, 1.0)])
"""Finds a face in the left half of each frame."""


@pytest.fixture
def source(make_source: Any) -> Path:
    """Two families, of which the first is cropped already, and a fake that is cropped, of an original that is not."""
    folder: Path = make_source("a.mp4", "a_fake.mp4", "b.mp4", "b_fake.mp4", "b_crop.mp4")
    return write_rows(folder, "a.mp4,real,train,,true", "a_fake.mp4,fake,train,a.mp4,Yes", "b.mp4,real,train,,",
                      "b_fake.mp4,fake,train,b.mp4,0", "b_crop.mp4,fake,train,b.mp4,1")  # fmt: skip


def write_rows(folder: Path, *rows: str, header: str = HEADER) -> Path:
    table = folder / "table.csv"
    table.write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    return table


def make(table: Path, out: Path, options: Options, **more: Any) -> Summary:
    return precompute(table, out, options=options, detector=LEFT_HALF, **more)


@pytest.mark.parametrize("boxes", ["own", "source"])
def test_only_the_inputs_that_the_table_names_are_one_face_a_frame(
    source: Path, tmp_path: Path, small_options: Options, cluster_address: str, boxes: Any
) -> None:
    summary = make(source, tmp_path / "out", replace(small_options, boxes=boxes), scheduler=cluster_address)
    rows = {row["video_id"]: row for row in stored_rows(tmp_path / "out")}
    assert summary.manifest.rows == 25  # five frames of five videos
    for name in ("a.mp4", "a_fake.mp4", "b_crop.mp4"):
        row = rows[name]
        assert (row["box_xyxy"], row["crop_xyxy"]) == ([0, 0, 160, 120], [0, -20, 160, 140]), "no margin"
        assert (row["hull_method"], row["score"]) == ("whole_frame", 1)
    for name in ("b.mp4", "b_fake.mp4"):
        assert (rows[name]["box_xyxy"], rows[name]["hull_method"]) == ([0, 0, 80, 120], "template5")
    assert [name for name, row in sorted(rows.items()) if row["mask"] is not None] == ["a_fake.mp4", "b_fake.mp4"]
    assert rows["b_crop.mp4"]["source_id"] == "b.mp4", "which stays known, and keeps both in one split"
    assert summary.manifest.faces_without_mask == 0
    again = make(source, tmp_path / "out", replace(small_options, boxes=boxes), scheduler=cluster_address)
    assert again.totals.inputs == 0, "the plan has it, so nothing is new"


@pytest.mark.parametrize("boxes", ["own", "source"])
def test_no_such_input_is_too_small_to_be_a_face(
    source: Path, tmp_path: Path, small_options: Options, cluster_address: str, boxes: Any
) -> None:
    options = replace(small_options, boxes=boxes, keep=FaceFilter(min_face_px=300))
    make(source, tmp_path / "out", options, scheduler=cluster_address)
    assert {row["video_id"] for row in stored_rows(tmp_path / "out")} == {"a.mp4", "a_fake.mp4", "b_crop.mp4"}


def test_a_fake_that_is_not_compared_is_named_before_the_work_begins(source: Path, tmp_path: Path) -> None:
    listing = list_source(source)
    assert [entry.video_id for entry in listing.entries if not entry.compared] == ["b_crop.mp4"]
    assert any("1 fake cannot be compared with the original" in text for text in listing.warnings)
    alone = write_rows(source.parent, "b_crop.mp4,fake,,c.mp4,true")
    assert not list_source(alone).entries[0].compared, "of an original that no row lists nothing is known"


@pytest.mark.parametrize(
    ("rows", "position"),
    [(["a.mp4,real,,,true", "", "b.mp4,real,,,maybe"], "line 4"), (["a.mp4,real,,,2"], "line 2")],
)
def test_a_value_that_says_neither_is_refused_with_its_line(source: Path, rows: list[str], position: str) -> None:
    with pytest.raises(UsageError, match=f"{position}: whole_frame '(maybe|2)' of .*must be true or false"):
        list_source(write_rows(source.parent, *rows))


def test_a_parquet_table_has_it_as_booleans_or_text(source: Path) -> None:
    table = source.with_suffix(".parquet")
    pq.write_table(pa.table({"path": ["a.mp4", "b.mp4"], "label": ["real"] * 2, "whole_frame": [True, None]}), table)
    assert [entry.whole_frame for entry in list_source(table).entries] == [True, False]
    pq.write_table(pa.table({"path": ["a.mp4", "b.mp4"], "label": ["real"] * 2, "whole_frame": ["NO", "x"]}), table)
    with pytest.raises(UsageError, match="row 2: whole_frame 'x' of "):
        list_source(table)


def test_datasets_without_such_inputs_are_what_they_were(
    source: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    """Config, units and plans from before go on, and the inputs that become whole frames are made anew."""
    make_unit = {"config_hash": "c", "salt": "0"}
    assert Unit.make([Entry(video_id="a.mp4")], "train", **make_unit).unit_id == "0aeb939c4f9f0314950da13abf3a7425"
    before = write_rows(source.parent, "a.mp4,real,train", "b.mp4,real,train", header="path,label,split")
    first = make(before, tmp_path / "out", small_options, scheduler=cluster_address)
    (part,) = (json.loads(path.read_bytes()) for path in OutPaths(tmp_path / "out").plan.iterdir())
    assert not any("whole_frame" in entry for unit in part["units"] for entry in unit["inputs"])
    after = write_rows(source.parent, "a.mp4,real,train,,true", "b.mp4,real,train,,false")
    second = make(after, tmp_path / "out", small_options, scheduler=cluster_address)
    assert second.totals.inputs == 1
    plan = Plan.load(OutPaths(tmp_path / "out"))
    assert [hash_config(part.config) for part in plan.parts] == [hash_config(first.manifest.config)] * 2
    methods = {row["video_id"]: row["hull_method"] for row in stored_rows(tmp_path / "out")}
    assert methods == {"a.mp4": "whole_frame", "b.mp4": "template5"}


def test_a_dry_run_counts_them(
    source: Path, tmp_path: Path, small_options: Options, cluster_address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    result = dry_run(source, out, options=small_options, detector=LEFT_HALF, scheduler=cluster_address)
    assert (result.survey.whole_frames, result.survey.fakes) == (3, 2)
    print_dry_run(result, source, 0)
    assert "3 inputs cropped already" in capsys.readouterr().err


def test_inspect_counts_them_and_the_naive_dataset_crops_them_the_same_way(
    source: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    make(source, tmp_path / "out", small_options, scheduler=cluster_address)
    write_page(inspect_dataset(tmp_path / "out"), tmp_path / "page.html")
    assert "15 faces, each a whole frame" in (tmp_path / "page.html").read_text(encoding="utf-8")
    naive = OnTheFlyFaces(source, tmp_path / "out", split=None, image_size=64, detector=LEFT_HALF)
    shapes = {tuple(naive[position][0].shape) for position in range(len(naive))}
    assert shapes == {(3, 64, 64)}
