"""A source that says of most inputs neither real nor fake is refused, unless that is what the user wants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from facefeed.pipeline.errors import RefusedError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import precompute

MakeSource = Callable[..., Path]


def test_where_most_inputs_have_no_label_nothing_is_written_and_the_ways_out_are_named(
    make_source: MakeSource, tmp_path: Path
) -> None:
    source = make_source("real/a.mp4", "holiday/b.mp4", "c.mp4")
    with pytest.raises(RefusedError, match=r"2 of 3 inputs have no label .*path,label.*--allow-unlabelled"):
        precompute(source, tmp_path / "out", detector=FixedBoxDetector())
    assert not (tmp_path / "out").exists()


def test_half_of_the_inputs_may_be_without(make_source: MakeSource, tmp_path: Path) -> None:
    source = make_source("real/a.mp4", "holiday/b.mp4")
    _, listing, _ = prepare_job(source, tmp_path / "out", detector=FixedBoxDetector())
    assert [entry.label for entry in listing.entries] == [-1, 0]


def test_a_dataset_that_was_begun_without_labels_is_continued_without_asking_again(
    make_source: MakeSource, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    source, out = make_source("a.mp4"), tmp_path / "out"
    settings = {"options": small_options, "detector": FixedBoxDetector(), "scheduler": cluster_address}
    precompute(source, out, allow_unlabelled=True, **settings)
    make_source("b.mp4")
    assert precompute(source, out, **settings).manifest.inputs["ok"] == 2
