"""What a user notices of a dataset that an older facefeed made: it is read and checked, and never extended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from assets_dataset import LABELS, OPTIONS, make_dataset
from assets_rows import make_small
from facefeed.loaders import FaceDataLoader, FaceDataset
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.dataset.schema import SCHEMA_VERSION, face_schema
from facefeed.pipeline.errors import CorruptDataError, RefusedError, UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.verify.check import rebuild_index_file, verify


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of schema 2, which has no column `fake_segments`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("facefeed.pipeline.rows.row_builder.face_schema", lambda labels, **_: face_schema(labels, 2))
        patch.setattr("facefeed.pipeline.planning.options.SCHEMA_VERSION", 2)
        return make_small(tmp_path_factory.mktemp("older") / "out")


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


def test_rows_of_two_schemas_are_never_in_one_dataset(older: Path, tmp_path: Path) -> None:
    (tmp_path / "src/real").mkdir(parents=True)
    (tmp_path / "src/real/a.png").touch()
    with pytest.raises(RefusedError, match=r"was made with other settings .*schema: 2 there, 3 now"):
        precompute(tmp_path / "src", older, options=OPTIONS, detector=FixedBoxDetector())


def test_a_newer_schema_is_refused_with_those_that_can_be_read(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        newer = SCHEMA_VERSION + 1
        patch.setattr("facefeed.pipeline.rows.row_builder.face_schema", lambda labels, **_: face_schema(labels, newer))
        patch.setattr("facefeed.pipeline.planning.options.SCHEMA_VERSION", newer)
        with pytest.raises(CorruptDataError, match=f"facefeed.schema is '{newer}'; this facefeed reads 2 and 3"):
            make_dataset(tmp_path / "out")


def test_a_new_dataset_has_the_column_of_segments(tmp_path: Path) -> None:
    out = make_small(tmp_path / "out")
    row = pq.read_table(next((out / "faces").rglob("*.parquet")), partitioning=None).slice(0, 1).to_pylist()[0]
    assert row["fake_segments"] is None
    assert face_schema(LABELS).field("fake_segments").nullable
