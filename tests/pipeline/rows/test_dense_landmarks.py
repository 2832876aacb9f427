"""What `--landmarks mesh` adds to the rows, and which faces a minimum score drops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from assets_mesh import CACHE, mesh_landmarker
from click.testing import CliRunner
from facefeed.data.portraits import load_portrait
from facefeed.pipeline.cli import main
from facefeed.pipeline.dataset.index import Index
from facefeed.pipeline.dataset.schema import DENSE_COLUMNS
from facefeed.pipeline.errors import RefusedError, UsageError
from facefeed.pipeline.faces import FaceFilter, Faces
from facefeed.pipeline.faces.detectors.fixed import FixedBoxDetector
from facefeed.pipeline.faces.landmarks import FaceShape
from facefeed.pipeline.faces.landmarks.template import TemplateLandmarker
from facefeed.pipeline.planning.options import JobSpec, Options
from facefeed.pipeline.planning.validation import prepare_job
from facefeed.pipeline.precompute import precompute
from facefeed.pipeline.rows.face_search import FaceSearch
from facefeed.pipeline.rows.row_builder import RowBuilder
from facefeed.pipeline.sources import Entry
from facefeed.pipeline.video import Frame
from numpy.typing import NDArray

FACE = (0.36, 0.13, 0.53, 0.37)
"""The astronaut's face in her portrait, as shares of it; the other one is of the flag behind her."""
FLAG = (0.05, 0.1, 0.22, 0.3)
Rgb = NDArray[np.uint8]


@dataclass(frozen=True)
class Counting:
    """A dense landmarker of a user's own: three points a face, scores by the order of faces, `more` shapes too many."""

    more: int = 0
    fingerprint = "counting"
    is_dense = True

    def locate(self, frames: Sequence[Rgb], faces: Sequence[Faces]) -> list[list[FaceShape]]:
        shapes = TemplateLandmarker().locate(frames, faces)
        return [
            [
                replace(shape, method="counting", score=number / 2, dense=np.full((3, 3), 2.0, np.float32))
                for number, shape in enumerate([*in_frame, *in_frame[: self.more]])
            ]
            for in_frame in shapes
        ]


def job_of(landmarker: Any, boxes: Sequence[tuple[float, float, float, float]] = (FACE,), **options: Any) -> JobSpec:
    keep = options.pop("keep", FaceFilter())
    return JobSpec(
        root=Path(), out=Path(), options=Options(keep=keep, **options), detector=FixedBoxDetector(boxes),
        landmarker=landmarker, labels=("real", "fake"), config_hash="",
    )  # fmt: skip


@pytest.fixture(scope="module")
def portrait() -> Rgb:
    return np.ascontiguousarray(load_portrait("astronaut").image[..., ::-1])


def rows_of(job: JobSpec, rgb: Rgb) -> list[dict[str, Any]]:
    builder = RowBuilder(job)
    rows = pa.Table.from_batches(builder.batches(Entry(video_id="a.mp4"), "train", iter([Frame(0, 0.0, rgb)])))
    builder.close()
    assert rows.schema.equals(builder.schema)
    return rows.to_pylist()


def test_a_row_has_points_in_its_crop_and_a_pose(portrait: Rgb) -> None:
    (row,) = rows_of(job_of(mesh_landmarker(), size_px=64, align=True), portrait)
    points, dense = np.array(row["landmarks_68"]), np.array(row["landmarks_dense"])
    assert (points.shape, dense.shape, len(row["landmarks_depth"])) == ((68, 2), (468, 2), 468)
    assert row["landmark_score"] > 0.99
    assert row["hull_method"] == "mesh"
    assert len(row["hull"]) > 20
    assert dense.min() > 5, "the crop's own px, not the frame's"
    assert dense.max() < 59
    np.testing.assert_allclose(points[36:48].mean(axis=0)[1], points[:, 1].min() + 7, atol=4)
    assert set(row["regions"]) == {"left_eye", "right_eye", "nose", "mouth", "face", "left_brow", "right_brow"}
    assert np.abs(row["pose"]).max() < 20, "she looks straight ahead"
    assert 0.1 < row["mouth_open"] < 0.5, "and laughs"
    assert (dense * 64 % 1 == 0).all()


def test_a_face_that_the_mesh_does_not_fit_says_so(portrait: Rgb) -> None:
    true, false = rows_of(job_of(mesh_landmarker(), [FACE, FLAG]), portrait)
    assert (true["hull_method"], false["hull_method"]) == ("mesh", "template5")
    assert true["landmark_score"] > 0.9 > 0.5 > false["landmark_score"]
    assert all(false[name] is None for name in DENSE_COLUMNS if name != "landmark_score")
    assert set(false["regions"]) == set(true["regions"])


def test_a_minimum_score_drops_false_faces_before_the_best_are_chosen(portrait: Rgb) -> None:
    keep = FaceFilter(max_faces=1)
    (first,) = rows_of(job_of(mesh_landmarker(), [FLAG, FACE], keep=keep), portrait)
    (best,) = rows_of(job_of(mesh_landmarker(), [FLAG, FACE], keep=keep, min_landmark_score=0.5), portrait)
    assert (first["hull_method"], best["hull_method"]) == ("template5", "mesh")
    job = job_of(mesh_landmarker(), [FLAG, FACE], min_landmark_score=0.5)
    search = FaceSearch(job, job.detector, job.options.keep)
    assert [len(faces) for faces, _ in search.faces([portrait, np.zeros_like(portrait)])] == [1, 0]


def test_a_landmarker_of_ones_own_gives_the_points_that_it_has(portrait: Rgb) -> None:
    first, second = rows_of(job_of(Counting(), [FACE, FLAG]), portrait)
    assert [row["landmark_score"] for row in (first, second)] == [0.0, 0.5]
    assert len(first["landmarks_dense"]) == 3
    assert first["landmarks_68"] is first["pose"] is first["mouth_open"] is None
    with pytest.raises(UsageError, match="Counting gave 4 shapes for 2 faces of 1 frames: must give one for each"):
        rows_of(job_of(Counting(more=2), [FACE, FLAG]), portrait)


def test_without_a_dense_landmarker_there_are_no_columns_for_it(portrait: Rgb) -> None:
    (row,) = rows_of(job_of(TemplateLandmarker()), portrait)
    assert not {*DENSE_COLUMNS} & {*row}
    assert set(row["regions"]) == {"left_eye", "right_eye", "nose", "mouth", "face"}


def test_the_config_of_a_dataset_without_them_is_what_it_was_before() -> None:
    options, labels = Options(), ("real", "fake")
    config = options.to_config(FixedBoxDetector(), labels)
    assert config["hull"] == "template5"
    assert not {"dense_landmarks", "min_landmark_score"} & {*config}
    dense = options.to_config(FixedBoxDetector(), labels, landmarker=Counting())
    assert (dense["hull"], dense["dense_landmarks"]) == ("counting", True)
    assert replace(options, min_landmark_score=0.5).to_config(FixedBoxDetector(), labels)["min_landmark_score"] == 0.5


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "src/real").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "src/real/a.png"), load_portrait("astronaut").image)
    return tmp_path / "src"


def test_a_dataset_with_the_mesh_verifies_and_its_index_has_the_68_points(
    source: Path, tmp_path: Path, cluster_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh_landmarker()
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
    out, arguments = tmp_path / "out", ["--landmarks", "mesh", "--min-landmark-score", "0.5", "--json"]
    run = CliRunner().invoke(main, ["precompute", str(source), str(out), "--scheduler", cluster_address, *arguments])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout.splitlines()[-1])["rows"] == 1
    assert CliRunner().invoke(main, ["verify", str(out)]).exit_code == 0
    (row,) = ds.dataset(out / "faces").to_table().to_pylist()
    index = Index(out)
    assert index.points("landmarks_68", 0).tolist() == row["landmarks_68"]
    assert index.regions(0).keys() == row["regions"].keys()
    assert not {"landmarks_dense", "landmarks_depth"} & {*index.schema.names}
    with pytest.raises(RefusedError, match="hull"):
        prepare_job(source, out)


def test_a_minimum_score_without_scores_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="template5 gives no scores"):
        precompute(source, tmp_path / "out", options=Options(min_landmark_score=0.5))
    with pytest.raises(UsageError, match=r"min_landmark_score=1.5: must lie in 0\.\.1"):
        Options(min_landmark_score=1.5)
