"""Fixtures of the tests of the pipeline: decoders that runs share, an OUT in a store, and parts of a job."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from assets_in_process import new_folder, shared_decoders
from assets_out_in_store import StoredOut, for_one_test, server_with_bucket
from assets_parts import VIDEOS, MakeSource, Run, rows
from assets_stores import MisbehavingServer
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import Summary, precompute

_WITH_DECODERS_OF_THEIR_OWN = {"test_cluster", "test_decode_pool", "test_prefetch"}
"""Modules that look at when decoder processes start and end."""


@pytest.fixture(scope="module", autouse=True)
def _shared_decoders(request: pytest.FixtureRequest) -> Iterator[None]:
    """A decoder process takes as long to start as all the rest of a small run, and most runs are small."""
    with ExitStack() as stack:
        if request.path.stem not in _WITH_DECODERS_OF_THEIR_OWN:
            stack.enter_context(shared_decoders())
        yield


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = new_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server() -> Iterator[MisbehavingServer]:
    """An S3 server that the tests of a module share."""
    with server_with_bucket() as server:
        yield server


@pytest.fixture
def store(server: MisbehavingServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredOut]:
    """An OUT in that server, empty so far."""
    with for_one_test(StoredOut(server, monkeypatch)) as store:
        yield store


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
