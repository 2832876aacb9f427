"""What is left of a loader when it is gone, however it went: no process, no memory, no open file."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from assets_dataset import make_dataset
from assets_loaders import (
    DEADLINE_SECONDS,
    FIELDS,
    Noise,
    is_sending,
    loader,
    shared_names,
    start_training,
    take_steps,
    wait_until,
)
from assets_paths import python_path
from facefeed.loaders import FaceDataLoader

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
        take_steps(process, 1)
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


def test_what_the_fork_server_imports_starts_no_thread() -> None:
    code = "import facefeed.loaders.workers.preload, albumentations, os, sys; print(len(os.listdir('/proc/self/task')))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "1\n"


# ---- epoch by epoch


@dataclass(frozen=True)
class Held:
    """What this process and its workers hold."""

    descriptors: int
    of_workers: tuple[int, ...]
    processes: int
    threads: int
    shared: int

    @classmethod
    def by(cls, batches: FaceDataLoader | None = None) -> Held:
        gc.collect()
        process = psutil.Process()
        workers = [] if batches is None or batches._iterator is None else batches._iterator._workers
        return cls(
            descriptors=process.num_fds(),
            of_workers=tuple(psutil.Process(worker.pid).num_fds() for worker in workers),
            processes=len(process.children(recursive=True)),
            threads=process.num_threads(),
            shared=len(shared_names(process)),
        )

    def exceeds(self, other: Held) -> bool:
        own, earlier = (
            (usage.descriptors, *usage.of_workers, usage.processes, usage.threads, usage.shared)
            for usage in (self, other)
        )
        return any(held > held_before for held, held_before in zip(own, earlier, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"persistent_workers": True},
        {"persistent_workers": False},
        {"persistent_workers": True, "shuffle": "window", "window_images": 128},
        {"persistent_workers": True, "image_size": None},
    ],
    ids=["persistent", "new", "window", "outside the ring"],
)
def test_after_ten_epochs_no_more_is_held_than_after_two(dataset: Path, options: dict[str, Any]) -> None:
    batches = loader(dataset, num_workers=2, transform=Noise(), **options)
    for _ in range(2):
        list(batches)
    early = Held.by(batches)
    for epoch in range(8):
        for step, batch in enumerate(batches):  # noqa: B007 (held, and released below)
            if epoch % 2 and step == 6:
                break
        del batch
    list(batches)
    wait_until(lambda: not Held.by(batches).exceeds(early), "as much as after two epochs")


def test_loaders_that_are_let_go_leave_nothing_open(dataset: Path) -> None:
    def iterate(steps: int) -> None:
        iterator = iter(loader(dataset, num_workers=1))
        for _ in range(steps):
            next(iterator)

    iterate(1)
    early = Held.by()
    for steps in (0, 1, 5, 11):
        iterate(steps)
    wait_until(lambda: not Held.by().exceeds(early), "as much as after one loader")


def test_a_loader_without_workers_starts_no_process_and_no_thread(dataset: Path) -> None:
    # In a process of its own: here, threads that other tests left open and close things of theirs at any moment.
    code = """
import sys
from pathlib import Path
from assets_loaders import loader
from test_leaks import Held
dataset = Path(sys.argv[1])
list(loader(dataset, num_workers=0))  # the first has torch and pyarrow start threads of theirs
early = Held.by()
for _ in range(3):
    list(loader(dataset, num_workers=0))
late = Held.by()
print(late.exceeds(early), early, late)
"""
    process = subprocess.run(
        [sys.executable, "-c", code, str(dataset)],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": python_path(__file__)},
    )  # fmt: skip
    assert process.stdout.startswith("False "), process.stdout
