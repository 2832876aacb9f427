"""Fixtures of the tests of `--part I/N`: a source of which each video makes a unit, and its `precompute`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assets_in_process import new_folder
from assets_parts import VIDEOS, MakeSource, Run, rows
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = new_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def src(folder: Path, make_source: MakeSource, one_unit_a_video: None) -> Path:
    return make_source(*VIDEOS, root=folder / "src")


@pytest.fixture
def one_unit_a_video(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("facefeed.pipeline.planning.plan._TARGET_UNIT_SECONDS", 0.0)


@pytest.fixture
def run(src: Path, folder: Path, small_options: Options) -> Run:
    """`precompute` into `folder/out`, or the part of it that is named."""

    def call(part: str | None = None, *, out: str = "out", **given: Any) -> Summary:
        given = {"options": small_options, "detector": FixedBoxDetector(), **given}
        return precompute(src, folder / out, part=part, **given)

    return call


@pytest.fixture
def whole(run: Run, folder: Path) -> pa.Table:
    """The rows of an undisturbed run of the whole job."""
    run(out="whole")
    return rows(folder / "whole")
