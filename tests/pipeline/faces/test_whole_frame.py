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
