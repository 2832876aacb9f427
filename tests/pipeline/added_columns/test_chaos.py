"""`facefeed add` killed or interrupted at any moment: the next run ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from assets_columns import FILE
from assets_dataset import Clip, copy_dataset, make_dataset
from assets_paths import python_path
from facefeed.pipeline.added_columns.run import add_columns
from facefeed.pipeline.verify.check import verify

UNITS = 16
SLOW = f"{FILE}:Slow"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("chaos") / "out"
    make_dataset(out, tuple(("train", (Clip(f"real/{number}.mp4", 6),)) for number in range(UNITS)))
    return out


@pytest.fixture(scope="module")
def undisturbed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = copy_dataset(dataset, tmp_path_factory.mktemp("undisturbed") / "out")
    add_columns(out, SLOW, workers=1)
    return bytes_of(out)


def bytes_of(out: Path) -> dict[str, bytes]:
    files = [path for path in out.rglob("*") if path.is_file() and path.parent.name != "_tmp"]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files if path.name != "driver.lease"}


def start(out: Path, workers: int = 2) -> psutil.Popen:
    command = [
        sys.executable,
        "-m",
        "facefeed.pipeline",
        "add",
        str(out),
        SLOW,
        "--workers",
        str(workers),
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    return psutil.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_until(happened: Callable[[], Any], process: psutil.Popen) -> None:
    deadline = time.monotonic() + 60
    while not happened() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


def receipts(out: Path) -> int:
    return len(list((out / "columns/slow/_receipts").glob("*.json")))


def kill_when(out: Path, happened: Callable[[], Any], workers: int = 2) -> None:
    """Strikes the driver alone down once something has happened; its workers must end by themselves."""
    process = start(out, workers)
    wait_until(happened, process)
    workers_left = process.children(recursive=True) if process.is_running() else []
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(workers_left, timeout=30)
    assert alive == []


MOMENTS: tuple[Callable[[Path], Any], ...] = (
    lambda out: (out / "columns/slow/_set.json").exists(),
    lambda out: list((out / "_tmp").glob("*.inprogress")),
    lambda out: receipts(out) >= 3,
    lambda out: receipts(out) >= 9,
    lambda out: receipts(out) == UNITS or list((out / "_tmp").glob("index.*")) or (out / "index.next.arrow").exists(),
)


def finish_and_compare(out: Path, undisturbed: dict[str, bytes]) -> None:
    process = start(out)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    figures = json.loads(stdout)
    assert figures["units"] + figures["units_before"] == UNITS
    assert bytes_of(out) == undisturbed
    assert not list((out / "_tmp").iterdir())
    assert verify(out).findings == []


@pytest.mark.processes
def test_killed_once_the_next_run_ends_as_if_nothing_had_happened(
    dataset: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    kill_when(out, lambda: receipts(out) >= 2)
    assert 2 <= receipts(out) < UNITS
    finish_and_compare(out, undisturbed)


@pytest.mark.chaos
def test_killed_five_times_the_bytes_are_those_of_an_undisturbed_run(
    dataset: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    for number, moment in enumerate(MOMENTS):
        kill_when(out, lambda: moment(out), workers=1 + number % 2)  # noqa: B023
        # At any moment readers have the dataset; what is not complete is one finding with its command.
        assert [finding.location for finding in verify(out).findings] in ([], ["columns/slow"])
    finish_and_compare(out, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_in_order(dataset: Path, tmp_path: Path, number: signal.Signals) -> None:
    out = copy_dataset(dataset, tmp_path / "out")
    process = start(out)
    wait_until(lambda: receipts(out) >= 2, process)
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "interrupted; run the same command again to resume" in stderr
    assert "Traceback" not in stderr
    assert json.loads(stdout)["exit"] == 130
    assert not list((out / "_tmp").iterdir())
    assert 2 <= receipts(out) < UNITS


def test_an_interrupt_cannot_strike_in_the_midst_of_the_pools_locks(dataset: Path, tmp_path: Path) -> None:
    # Python raises it in the main thread, wherever that is: a lock that is left acquired there is never released.
    out = copy_dataset(dataset, tmp_path / "out")
    modules: set[str] = set()

    def trace(frame: FrameType, _event: str, _argument: Any) -> None:
        modules.add(frame.f_globals.get("__name__", ""))

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        add_columns(out, SLOW, workers=2)
    finally:
        sys.settrace(before)
    assert "facefeed.pipeline.added_columns.workers" in modules
    assert not [name for name in modules if name.startswith("concurrent.futures")]
