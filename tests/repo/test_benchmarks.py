"""Whether the benchmarks still run: nothing else calls what they import and write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from assets_paths import ROOT
from assets_rows import make_small
from benchmarks import gpu
from benchmarks.peers import faces
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.dataset.out import OutPaths

IMPORT_ALL = """
import importlib, sys
sys.path.insert(0, "tests/benchmarks")
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


@pytest.mark.processes
def test_every_benchmark_finds_what_it_imports() -> None:
    names = sorted(path.stem for path in (ROOT / "tests/benchmarks").glob("*.py"))
    completed = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *names], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert len(names) > 30
    assert completed.returncode == 0, completed.stderr[-2000:]


def test_the_faces_that_loaders_are_compared_on_are_a_dataset_that_loads(tmp_path: Path) -> None:
    table = pq.read_table(next(OutPaths(make_small(tmp_path / "out")).faces.rglob("*.parquet")))
    written = faces.write(table, 20, tmp_path / "written")
    loader = FaceDataLoader(tmp_path / "written/facefeed", 8, image_size=16, num_workers=0)
    assert written["images"] == sum(len(labels) for _, labels in loader) == 20


@pytest.mark.parametrize(
    ("lane", "expected"),
    [
        ("print('a table'); print('{\"batches\": 2}')", {"result": {"batches": 2}}),
        ("print('{\"batches\":'); print('2}')", {"error": '{"batches":\n2}\n'}),
        ("import sys; sys.exit('no such model')", {"error": "no such model\n"}),
    ],
    ids=["last-line", "several-lines", "fails"],
)
def test_the_result_of_a_lane_is_its_last_line_else_the_end_of_its_log_is_the_error(
    tmp_path: Path, lane: str, expected: dict[str, object]
) -> None:
    outcome = gpu.measured("lane", 60, ("-c", lane), tmp_path)
    assert {name: outcome[name] for name in ("result", "error") if name in outcome} == expected
    assert json.loads((tmp_path / "lane.json").read_text()) == outcome
