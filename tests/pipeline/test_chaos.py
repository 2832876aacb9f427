"""The driver and everything below it killed at random moments: the next run ends as an undisturbed one does."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.dataset as pads
import pytest
from assets_paths import python_path
from facefeed.data.sample import make_sample
from facefeed.pipeline.dataset.manifest import Manifest
from facefeed.pipeline.verify.check import verify

MakeSource = Callable[..., Path]

SLOW_DRIVER = """
from assets_faults import SlowDetector
from facefeed.pipeline import cli
from facefeed.pipeline.planning import validation
validation.make_detector = lambda name, keep: SlowDetector(0.05)
if __name__ == "__main__":
    cli.main()
"""
GENUINE_DRIVER = """
from facefeed.pipeline import cli
if __name__ == "__main__":
    cli.main()
"""


class Driver:
    """One command, to be run to its end or struck down on the way."""

    def __init__(self, script: Path, source: Path, out: Path, *options: str) -> None:
        arguments = ["precompute", str(source), str(out), "--workers", "2", "--max-failed", "5%", *options]
        self._command = [sys.executable, str(script), *arguments]
        self._environment = {**os.environ, "PYTHONPATH": python_path()}
        self.out = out

    def run(self) -> float:
        """Seconds that a run to the end took."""
        started = time.monotonic()
        result = subprocess.run(
            self._command, env=self._environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert result.returncode == 0, result.stderr
        return time.monotonic() - started

    def kill_when(self, due: Callable[[float], bool]) -> list[str]:
        """Strikes the whole tree down once `due(seconds since the start)`; returns what was left alive afterwards."""
        process = psutil.Popen(
            self._command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        started = time.monotonic()
        while process.poll() is None and not due(time.monotonic() - started):
            time.sleep(0.02)
        tree = [process, *(process.children(recursive=True) if process.is_running() else [])]
        for proc in tree:
            try:
                proc.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        _, alive = psutil.wait_procs(tree[1:], timeout=30)
        return [str(proc) for proc in alive]

    def rows(self) -> pa.Table:
        return pads.dataset(self.out / "faces").to_table().sort_by("face_id")

    def finished(self) -> dict[str, tuple[int, int]]:
        """Identity and time of every receipt, and of every file that one vouches for."""
        folder = self.out / "receipts"
        return {path.name: _stat(path) for path in folder.glob("*.json")} if folder.is_dir() else {}


def _stat(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


def strike_and_go_on(driver: Driver, due: Callable[[float], bool], expected: pa.Table) -> int:
    """Kills, runs again, compares every column; returns how many units had a receipt when the blow fell."""
    assert driver.kill_when(due) == []
    before = driver.finished()
    driver.run()
    assert before.items() <= driver.finished().items()
    assert driver.rows().equals(expected)
    assert verify(driver.out).findings == []
    return len(before)


@pytest.fixture
def undisturbed(tmp_path: Path, make_source: MakeSource) -> Iterator[tuple[Driver, float, Path, Path]]:
    source = make_source(*(f"real/{number}.mp4" for number in range(12)))
    script = tmp_path / "driver.py"
    script.write_text(SLOW_DRIVER)
    driver = Driver(script, source, tmp_path / "undisturbed", "--min-face", "16", "--every", "5")
    return driver, driver.run(), source, script


@pytest.mark.processes
def test_killed_in_the_middle_of_the_work_the_next_run_ends_as_if_nothing_had_happened(
    undisturbed: tuple[Driver, float, Path, Path], tmp_path: Path
) -> None:
    driver, _, source, script = undisturbed
    for number in (1, 2):
        killed = Driver(script, source, tmp_path / f"out{number}", "--min-face", "16", "--every", "5")
        finished = strike_and_go_on(killed, lambda _: len(killed.finished()) >= number, driver.rows())  # noqa: B023
        assert number <= finished < len(driver.finished())


@pytest.fixture(scope="module")
def sample_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Driver, float, Path, Path]:
    folder = tmp_path_factory.mktemp("sample")
    make_sample(folder / "videos")
    script = folder / "driver.py"
    script.write_text(GENUINE_DRIVER)
    driver = Driver(script, folder / "videos", folder / "undisturbed")
    return driver, driver.run(), folder / "videos", script


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(20))
def test_killed_at_random_on_the_sample_nothing_is_lost_doubled_or_redone(
    sample_run: tuple[Driver, float, Path, Path], tmp_path: Path, seed: int
) -> None:
    driver, whole, source, script = sample_run
    seconds = random.Random(seed).uniform(0, whole)
    killed = Driver(script, source, tmp_path / "out")
    finished = strike_and_go_on(killed, lambda passed: passed >= seconds, driver.rows())
    print(f"killed after {seconds:.1f} of {whole:.1f} s with {finished} units finished")
    assert Manifest.read(killed.out).rows == driver.rows().num_rows


@pytest.mark.chaos
def test_a_worker_killed_in_mid_unit_costs_nothing(
    sample_run: tuple[Driver, float, Path, Path], tmp_path: Path
) -> None:
    driver, _, source, script = sample_run
    killed = Driver(script, source, tmp_path / "out")
    process = psutil.Popen(killed._command, env=killed._environment, stderr=subprocess.PIPE, text=True)
    while not list(killed.out.glob("_tmp/*.inprogress")) and process.is_running():
        time.sleep(0.02)
    # The worker is the process that holds the attempt's file open.
    holders = [
        proc
        for proc in process.children(recursive=True)
        if any("inprogress" in file.path for file in proc.open_files())
    ]
    assert holders
    holders[0].kill()
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    assert '"event": "lost"' in stderr
    assert killed.rows().equals(driver.rows())
    assert verify(killed.out).findings == []


@pytest.mark.chaos
@pytest.mark.parametrize("victim", ["scheduler", "worker"])
def test_a_cluster_that_dies_stops_the_run_resumably(
    sample_run: tuple[Driver, float, Path, Path], tmp_path: Path, victim: str
) -> None:
    driver, _, source, script = sample_run
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    dask = [sys.executable, "-m", "dask"]
    parts = {
        "scheduler": psutil.Popen(
            [*dask, "scheduler", "--host", address, "--no-dashboard", "--dashboard-address", "127.0.0.1:0"],
            stderr=subprocess.DEVNULL,
        ),
        "worker": psutil.Popen([*dask, "worker", address, "--nthreads", "1"], stderr=subprocess.DEVNULL),
    }
    out = tmp_path / "out"
    command = [sys.executable, str(script), "precompute", str(source), str(out), "--scheduler", address]
    process = psutil.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(out.glob("receipts/*.json")) and process.is_running():
        time.sleep(0.05)
    for proc in [parts[victim], *parts[victim].children(recursive=True)]:
        proc.kill()
    _, stderr = process.communicate(timeout=300)
    for part in parts.values():
        for proc in [part, *part.children(recursive=True)] if part.is_running() else []:
            proc.kill()
        part.wait()
    assert process.returncode == 75, stderr
    assert "facefeed: the cluster " in stderr
    assert "Traceback" not in stderr
    resumed = Driver(script, source, out)
    resumed.run()
    assert resumed.rows().equals(driver.rows())
