"""What is left of a loader when it is gone, however it went: no process, no memory, no open file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import assets_leaks
import psutil
import pytest
from assets_dataset import make_dataset
from assets_leaks import EPOCHS
from assets_loaders import DEADLINE_SECONDS, FIELDS, is_sending, shared_names, start_training, take_steps, wait_until
from assets_paths import python_path

LARGE = {"prefetch_factor": 8, "fields": [*FIELDS, "video_id", "hull", "regions", "landmarks"]}
"""The columns of these batches fill the pipe that they come through, so that a worker waits in the middle of one."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("leaks") / "out"
    make_dataset(out)
    return out


def threads_of(process: psutil.Process) -> list[str]:
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{process.pid}/task").iterdir()]


@pytest.fixture
def training(request: pytest.FixtureRequest, dataset: Path, tmp_path: Path) -> Iterator[psutil.Popen]:
    process = start_training(dataset, tmp_path, num_workers=2, **request.param)
    try:
        take_steps(process, 2)  # the second batch comes from a worker
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.communicate()


# ---- after a kill


def kill_and_list_leftovers(training: psutil.Popen, *others: psutil.Process) -> tuple[list[psutil.Process], set[Path]]:
    """Processes and names of shared memory that are left some time after the training process was killed."""
    tree = training.children(recursive=True)
    names = set().union(*(shared_names(process) for process in (training, *tree)))
    assert names
    for process in (training, *others):
        process.kill()
    training.wait()
    _, alive = psutil.wait_procs(tree, timeout=DEADLINE_SECONDS)
    return alive, {name for name in names if name.exists()}


@pytest.mark.processes
@pytest.mark.parametrize(
    "training",
    [
        LARGE,
        pytest.param({}, marks=pytest.mark.chaos),
        pytest.param({"multiprocessing_context": "spawn"}, marks=pytest.mark.chaos),
        pytest.param({"multiprocessing_context": "spawn", **LARGE}, marks=pytest.mark.chaos),
    ],
    ids=["forkserver, full pipe", "forkserver", "spawn", "spawn, full pipe"],
    indirect=True,
)
def test_when_training_is_killed_in_mid_epoch_no_process_and_no_shared_memory_is_left(
    training: psutil.Popen, request: pytest.FixtureRequest
) -> None:
    tree = training.children(recursive=True)
    if "forkserver" in request.node.callspec.id:
        forks = [process for process in tree if process.children()]
        assert [len(threads_of(process)) for process in forks] == [1]
    if "full pipe" in request.node.callspec.id:
        wait_until(lambda: any(is_sending(process.pid) for process in tree), "a full pipe")
    assert kill_and_list_leftovers(training) == ([], set())


@pytest.mark.chaos
@pytest.mark.parametrize("training", [{}], ids=[""], indirect=True)
def test_when_all_is_killed_at_once_nothing_is_left_but_empty_semaphores(training: psutil.Popen) -> None:
    alive, names = kill_and_list_leftovers(training, *training.children(recursive=True))
    sizes = [name.stat().st_size for name in names]
    for name in names:
        name.unlink()
    assert alive == []
    assert all(name.name.startswith("sem.") for name in names)
    assert sum(sizes) < 1024


# ---- nothing forks that has threads


@pytest.mark.processes
def test_what_the_fork_server_imports_starts_no_thread() -> None:
    code = "import facefeed.loaders.workers.preload, albumentations, os, sys; print(len(os.listdir('/proc/self/task')))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "1\n"


# ---- epoch by epoch


@pytest.fixture(scope="module")
def usages(dataset: Path) -> dict[str, dict[str, Any]]:
    """What is held early and late in each scenario of `assets_leaks`."""
    process = subprocess.run(
        [sys.executable, assets_leaks.__file__, str(dataset)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": python_path()},
    )  # fmt: skip
    usages: dict[str, dict[str, Any]] = json.loads(process.stdout)
    return usages


@pytest.mark.processes
@pytest.mark.parametrize("options", EPOCHS)
def test_after_ten_epochs_no_more_is_held_than_after_two(usages: dict[str, dict[str, Any]], options: str) -> None:
    assert not usages[options]["leaks"], usages[options]


@pytest.mark.processes
def test_loaders_that_are_released_leave_nothing_open(usages: dict[str, dict[str, Any]]) -> None:
    assert not usages["released"]["leaks"], usages["released"]


@pytest.mark.processes
def test_a_loader_without_workers_starts_no_process_and_no_thread(usages: dict[str, dict[str, Any]]) -> None:
    assert not usages["without workers"]["leaks"], usages["without workers"]
