"""What `--detector whole-frame` makes of media that is cropped to a face already."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from facefeed.pipeline.cli import main


@pytest.mark.parametrize(("margin", "side"), [([], 120), (["--margin", "0.5"], 240)])
def test_each_image_is_one_face_with_nothing_added_unless_asked_for(
    tmp_path: Path, cluster_address: str, margin: list[str], side: int
) -> None:
    (tmp_path / "src/real").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "src/real/a.png"), np.full((120, 90, 3), 200, np.uint8))
    arguments = ["precompute", str(tmp_path / "src"), str(tmp_path / "out"), "--scheduler", cluster_address, "--json"]
    result = CliRunner().invoke(main, [*arguments, "--detector", "whole-frame", *margin])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["inputs"]["ok"] == 1
    (row,) = ds.dataset(tmp_path / "out/faces").to_table().to_pylist()
    assert row["box_xyxy"] == [0, 0, 90, 120]
    assert (row["width"], row["height"]) == (side, side)
    image = cv2.imdecode(np.frombuffer(row["image"], np.uint8), cv2.IMREAD_GRAYSCALE)
    assert image[side // 2, side // 2] == pytest.approx(200, abs=3)
    assert image[side // 2, 2] == pytest.approx(0, abs=3), "beside a frame that is no square it is black"


def test_no_frame_is_too_small_to_be_a_face(tmp_path: Path, cluster_address: str) -> None:
    (tmp_path / "src/real").mkdir(parents=True)
    for name, (height, width) in {"a": (32, 32), "b": (39, 60), "c": (1, 1)}.items():
        cv2.imwrite(str(tmp_path / f"src/real/{name}.png"), np.full((height, width, 3), 200, np.uint8))
    arguments = ["precompute", str(tmp_path / "src"), str(tmp_path / "out"), "--scheduler", cluster_address, "--json"]
    for given in (["--min-face", "50"], ["--min-face", "10", "--min-score", "0.5"]):
        result = CliRunner().invoke(main, [*arguments, "--detector", "whole-frame", *given])
        assert result.exit_code == 0, f"the same dataset, whichever is given: {result.output}"
    rows = ds.dataset(tmp_path / "out/faces").to_table().to_pylist()
    assert {tuple(row["box_xyxy"]) for row in rows} == {(0, 0, 32, 32), (0, 0, 60, 39), (0, 0, 1, 1)}


def test_a_dataset_of_an_earlier_version_which_recorded_the_smallest_face_is_continued(
    tmp_path: Path, cluster_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src/real").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "src/real/a.png"), np.full((64, 64, 3), 200, np.uint8))
    arguments = ["precompute", str(tmp_path / "src"), str(tmp_path / "out"), "--scheduler", cluster_address, "--json"]
    with monkeypatch.context() as patch:
        patch.setattr("facefeed.pipeline.planning.validation.whole_frame_filter", lambda keep: keep)
        CliRunner().invoke(main, [*arguments, "--detector", "whole-frame"])
    cv2.imwrite(str(tmp_path / "src/real/b.png"), np.full((64, 64, 3), 100, np.uint8))
    result = CliRunner().invoke(main, [*arguments, "--detector", "whole-frame"])
    assert result.exit_code == 0, result.output
    assert len(ds.dataset(tmp_path / "out/faces").to_table()) == 2
