"""Landmarks of the face mesh from stored crops, beside those that `precompute --landmarks mesh` gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from assets_dataset import DenseStandIn, make_dataset
from assets_mesh import CACHE, mesh_landmarker
from click.testing import CliRunner
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.added_columns.landmarks import LandmarkColumns
from facefeed.pipeline.added_columns.maker import StoredFaces
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.image_codec import decode_rgb_strictly
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.schema import WHOLE_FRAME_HULL
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker
from facefeed.pipeline.planning.options import Options
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.verify.check import verify

FACE, FLAG = (0.36, 0.13, 0.53, 0.37), (0.05, 0.1, 0.22, 0.3)
"""The astronaut's face in her portrait, as shares of it, and a part of the flag behind her."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Her portrait, turned by 25 degrees about her face: an aligned crop is turned too."""
    image = load_portrait("astronaut").image
    height, width = image.shape[:2]
    turn = cv2.getRotationMatrix2D((0.445 * width, 0.25 * height), 25, 1)
    (tmp_path / "src/real").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "src/real/a.png"), cv2.warpAffine(image, turn, (width, height)))
    return tmp_path / "src"


@pytest.mark.parametrize("align", [False, True])
def test_points_pose_and_hull_from_crops_are_those_of_precompute(
    source: Path, tmp_path: Path, cluster_address: str, monkeypatch: pytest.MonkeyPatch, align: bool
) -> None:
    mesh = mesh_landmarker()
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
    given: dict[str, Any] = {
        "options": replace(Options(), align=align), "detector": FixedBoxDetector((FACE, FLAG)),
        "scheduler": cluster_address,
    }  # fmt: skip
    precompute(source, tmp_path / "made", landmarker=mesh, **given)
    precompute(source, tmp_path / "added", **given)
    result = CliRunner().invoke(main, ["add", str(tmp_path / "added"), "landmarks", "--workers", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["rows"] == 2
    made, added = Index(tmp_path / "made"), Index(tmp_path / "added")
    face, flag = (0, 1) if made.text("hull_method", 0) == "mesh" else (1, 0)
    expected, points = made.points("landmarks_68", face), added.points("landmarks_68", face)
    eyes_px = np.linalg.norm(expected[45] - expected[36])
    assert np.linalg.norm(points - expected, axis=1).mean() < 0.03 * eyes_px
    poses = [index.vectors("pose", [face])[0] for index in (made, added)]
    np.testing.assert_allclose(poses[1], poses[0], atol=3)
    assert abs(poses[0][2]) > 15, "turned in the frame, also where the crop is upright"
    assert added.text("hull_method", face) == "mesh"
    assert added.number("landmark_score", flag) < 0.5
    assert len(added.points("landmarks_68", flag)) == 0
    assert set(added.regions(flag)) == set(made.regions(flag))
    assert verify(tmp_path / "added").findings == []


def test_what_was_cropped_already_says_so_still(tmp_path: Path) -> None:
    make_dataset(tmp_path / "out")
    table = pq.read_table(next((tmp_path / "out/faces/val").iterdir()), partitioning=None)
    images = [decode_rgb_strictly(data) for data in table["image"].to_pylist()]
    position = table.schema.get_field_index("hull_method")
    whole = table.set_column(position, table.schema.field(position), pa.array([WHOLE_FRAME_HULL] * len(table)))
    columns = LandmarkColumns(DenseStandIn()).compute(StoredFaces(images, whole.drop_columns(["image", "mask"])))
    assert set(columns["hull_method"]) == {WHOLE_FRAME_HULL}
    assert {points is None for points in columns["landmarks_68"]} == {True, False}


def test_a_landmarker_without_points_is_refused() -> None:
    with pytest.raises(UsageError, match="TemplateLandmarker: gives no dense points"):
        LandmarkColumns(TemplateLandmarker())


def test_without_the_weights_the_command_says_what_brings_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_dataset(tmp_path / "out")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["add", str(tmp_path / "out"), "landmarks"])
    assert result.exit_code == 2
    assert "facefeed models fetch face-mesh" in result.stderr
    assert not (tmp_path / "out/columns").exists()
