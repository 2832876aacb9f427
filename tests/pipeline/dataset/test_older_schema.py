"""What a user notices of a dataset that an older facefeed made: it is read, checked, and continued as it is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import assets_dataset
import pyarrow.parquet as pq
import pytest
from assets_dataset import LABELS, OPTIONS
from assets_rows import make_of_schema, make_small
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.schema import SCHEMA_VERSION, face_schema
from facefeed.pipeline.errors import CorruptDataError, RefusedError, UsageError
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.verify.check import verify
from facefeed.pipeline.verify.rebuild import rebuild_index_file


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of schema 2, which has no column `fake_segments`."""
    return make_of_schema(2, tmp_path_factory.mktemp("older") / "out")


def test_its_faces_are_loaded(older: Path) -> None:
    faces = FaceDataset(older, split=None)
    assert Manifest.read(older).schema == 2
    assert len(faces) == 122
    assert "fake_segments" not in faces.info(0)
    assert sum(len(labels) for _, labels in FaceDataLoader(older, split=None, image_size=32, num_workers=0)) == 122
    with pytest.raises(UsageError, match="'fake_segments' is no column"):
        FaceDataLoader(older, fields=("image", "fake_segments"), num_workers=0)


def test_it_is_sound_and_its_index_can_be_rebuilt(older: Path, tmp_path: Path) -> None:
    assert not verify(older).findings
    out = shutil.copytree(older, tmp_path / "out")
    (out / "index.arrow").unlink()
    assert verify(out).findings
    assert rebuild_index_file(out)
    assert not verify(out).findings
    assert Index(out).schema.equals(Index(older).schema)


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """Two photos; prepared, not read."""
    for name in ("real/a.png", "fake/b.png"):
        (tmp_path / "src" / name).parent.mkdir(parents=True)
        (tmp_path / "src" / name).write_bytes(b"x")
    return tmp_path / "src"


def test_it_is_continued_with_its_own_schema(src: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"options": OPTIONS, "detector": assets_dataset._NoiseDetector()}
    job, _, config = prepare_job(src, make_of_schema(2, tmp_path / "out"), **given)
    assert (job.schema, config["schema"]) == (2, 2)
    assert prepare_job(src, tmp_path / "new", **given)[0].schema == SCHEMA_VERSION


def test_it_is_refused_for_what_its_schema_has_no_column_for(src: Path, older: Path) -> None:
    (src / "fake/b.png").rename(src / "fake/b.mp4")
    (src / "list.csv").write_text('path,label,fake_segments\nreal/a.png,real,\nfake/b.mp4,fake,"[[0, 1]]"\n')
    with pytest.raises(RefusedError, match=r"schema: 2 there, 3 now.*a column fake_segments, which these"):
        prepare_job(src / "list.csv", older, options=OPTIONS, detector=assets_dataset._NoiseDetector())


def test_a_newer_schema_is_refused_with_those_that_can_be_read(tmp_path: Path) -> None:
    newer = SCHEMA_VERSION + 1
    with pytest.raises(CorruptDataError, match=f"facefeed.schema is '{newer}'; this facefeed reads 2 and 3"):
        make_of_schema(newer, tmp_path / "out")


def test_a_new_dataset_has_the_column_of_segments(tmp_path: Path) -> None:
    out = make_small(tmp_path / "out")
    row = pq.read_table(next((out / "faces").rglob("*.parquet")), partitioning=None).slice(0, 1).to_pylist()[0]
    assert row["fake_segments"] is None
    assert face_schema(LABELS).field("fake_segments").nullable
