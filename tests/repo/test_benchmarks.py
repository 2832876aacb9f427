"""Whether the benchmarks still run: nothing else calls what they import and write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from assets_paths import ROOT
from assets_rows import make_small
from benchmarks.peers import faces
from facefeed.loaders import FaceDataLoader
from facefeed.pipeline.dataset.manifest import OutPaths

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
