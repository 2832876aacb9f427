"""What a user notices of real inputs that name an original, as where the sound alone was changed: no comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assets_rows import stored_rows
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dryrun.run import dry_run
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.inspect.figures.source_pairs import find_source_pairs
from facefeed.pipeline.planning import validation
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute

FACE = FixedBoxDetector([(0.2, 0.2, 0.7, 0.8)])


@pytest.fixture
def source(make_source: Any) -> Path:
    """An original, the same with another sound, and a fake of it."""
    table: Path = make_source("a.mp4", "a_voice.mp4", "a_fake.mp4") / "table.csv"
    table.write_text("path,label,split,source\na.mp4,real,train,\na_voice.mp4,real,train,a.mp4\n"
                     "a_fake.mp4,fake,train,a.mp4\n")  # fmt: skip
    return table


def make(source: Path, out: Path, options: Options, scheduler: str) -> Summary:
    return precompute(source, out, options=options, detector=FACE, scheduler=scheduler)


def masked(out: Path) -> set[str]:
    return {row["video_id"] for row in stored_rows(out) if row["mask"] is not None}


def test_a_real_input_is_not_compared_with_its_original(
    source: Path, tmp_path: Path, small_options: Options, cluster_address: str
) -> None:
    out = tmp_path / "out"
    forecast = dry_run(source, out, options=small_options, detector=FACE, scheduler=cluster_address)
    assert forecast.survey.fakes == 1
    summary = make(source, out, small_options, cluster_address)
    assert masked(out) == {"a_fake.mp4"}
    assert summary.manifest.faces_without_mask == 0
    assert {row["source_id"] for row in stored_rows(out)} == {None, "a.mp4"}, "which keeps it in one split with it"
    assert make(source, out, small_options, cluster_address).totals.inputs == 0


def test_a_dataset_whose_real_inputs_were_compared_goes_on_with_its_rows(
    source: Path, tmp_path: Path, small_options: Options, cluster_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as earlier:
        earlier.setattr(validation, "without_comparisons_of_real", lambda listing, _: listing)
        make(source, out, small_options, cluster_address)
    assert masked(out) == {"a_voice.mp4", "a_fake.mp4"}
    assert make(source, out, small_options, cluster_address).totals.inputs == 0
    pairs = find_source_pairs(Index(out), np.random.default_rng(0), 4)
    assert pairs.num_fakes == sum(row["label"] == 1 for row in stored_rows(out)), "inspect counts none of them as fake"
