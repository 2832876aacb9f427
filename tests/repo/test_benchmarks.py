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
from assets_video import numbered, write_video
from benchmarks import gpu, gpu_page
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


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        (
            "bench_driver.py", "--videos", "200", "--units", "5", "--repeats", "1", "--workers", "2", "--unit-seconds",
            "0.05",
        ),
        ("bench_slot.py", "--videos", "VIDEOS", "--repeats", "1", "--serial"),
    ],
    ids=["driver", "slot"],
)  # fmt: skip
def test_benchmarks_that_take_parts_out_of_the_product_still_run(arguments: tuple[str, ...], tmp_path: Path) -> None:
    for kind in ("real", "fake"):
        (tmp_path / kind).mkdir()
        write_video(tmp_path / kind / "0.mp4", [numbered(frame, 160, 96) for frame in range(12)])
    script, *options = [str(tmp_path) if argument == "VIDEOS" else argument for argument in arguments]
    command = [sys.executable, str(ROOT / "tests/benchmarks" / script), *options]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr[-2000:]
    assert json.loads(completed.stdout)["benchmark"] == script.removeprefix("bench_").removesuffix(".py")


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


RUNG = {
    "name": "bf16", "outcome": "ran", "samples_per_second": {"median": 2000.4}, "speed_up": {"median": 1.5},
    "memory": {"allocated_bytes": 3_000_000_000}, "energy_joules_per_1000_samples": {"median": 12},
    "validation_loss": None,
}  # fmt: skip
REFUSED = {"name": "fp16", "outcome": "refused", "reason": "a CPU has no scaled fp16"}
JOB = {"seconds": 20, "summary": {"frames_per_second": 129.4}}
TRAININGS = {
    "resnet10t": {"seconds": 30, "result": {
        "images_per_second": 3188, "stall": 0.076, "val": {"val/auc": 0.95}, "test": {},
    }},
    "resnet50": {"seconds": 4, "result": {"exit": 1, "error": "starting\nout of memory"}},
}  # fmt: skip


def test_the_page_of_a_gpu_has_the_tables_of_its_lanes_and_names_what_failed_or_is_missing(tmp_path: Path) -> None:
    machine = {
        "gpu": "H200", "gpu_memory_bytes": 141e9, "cores": 16, "memory_bytes": 128e9, "python": "3.12", "torch": "2.11",
        "cuda": "13.0",
    }  # fmt: skip
    lanes = {
        "engine": {"exit": 1, "seconds": 12.3, "machine": machine, "error": "Traceback\nRuntimeError: no kernel `x`"},
        "job": {"exit": 0, "machine": machine, "result": {"jobs": {"mtcnn": JOB}, "training": TRAININGS}},
        "ladder": {"exit": 1, "machine": machine, "result": {"rungs": [RUNG, REFUSED]}},
    }  # fmt: skip
    for name, outcome in lanes.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(outcome))
    assert gpu.lanes(tmp_path, tmp_path, tmp_path, small=True).keys() == gpu_page.SECTIONS.keys()
    page = gpu_page.write_page(tmp_path, gpu_page.SECTIONS).read_text()
    sections = dict(part.split("\n\n", 1) for part in page.split("\n## ")[1:])
    assert page.startswith("# Measured on a GPU\n\nOne H200 (141 GB): 16 cores, 128 GB of memory, Python 3.12, ")
    assert sections["Detection"].strip() == "Failed after 12 s: `RuntimeError: no kernel 'x'`"
    assert sections["The profiler's own test"].strip() == "Not run."
    assert "| mtcnn | 129 | 20 |" in sections["Precompute and training"]
    assert "| resnet10t | 3,188 | 7.6 % | 0.950 | - | 30 |" in sections["Precompute and training"]
    assert "| resnet50 | `out of memory` | - | - | - | 4 |" in sections["Precompute and training"]
    assert "| bf16 | 2,000 | 1.50 | 3.00 GB | 12 J | - |" in sections["Ladder of levers"]
    assert "| fp16 | refused | a CPU has no scaled fp16 | - | - | - |" in sections["Ladder of levers"]
    assert sections["Ladder of levers"].strip().endswith("The lane ended with exit code 1.")
