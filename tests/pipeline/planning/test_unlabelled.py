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


def test_the_images_of_clips_count_where_they_are_the_larger_share_without_a_label(tmp_path: Path) -> None:
    """Images of `original` and `Deepfakes` are inputs of their own; those of the other methods are joined to clips."""
    source, numbers = tmp_path / "src", range(12)
    folders = ("Deepfakes", "Face2Face", "FaceSwap", "NeuralTextures", "FaceShifter")
    for path in (
        *(source / f"original/{number:03}_0000.jpg" for number in numbers),
        *(source / f"{folder}/{number:03}_{number ^ 1:03}_0000.jpg" for folder in folders for number in numbers),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    message = r"4 of 28 inputs have no label, which hold 48 of 72 media files \(layout folder\): .*--allow-unlabelled"
    with pytest.raises(RefusedError, match=message):
        prepare_job(source, tmp_path / "out", detector=FixedBoxDetector())
    prepare_job(source, tmp_path / "out", detector=FixedBoxDetector(), allow_unlabelled=True)


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
