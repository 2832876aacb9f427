"""What several ranks on one host notice of each other: they share its cores, whoever started them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from assets_ranks import in_ranks, ranks_here
from assets_rows import make_small
from facefeed.loaders import FaceDataLoader
from facefeed.loaders.workers.local_ranks import count_local_ranks
from facefeed.loaders.workers.processes import default_num_workers
from facefeed.pipeline.errors import UsageError
from facefeed.pipeline.machine import usable_cores

LAUNCHERS = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "WORLD_SIZE",
)


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> int:
    """A host of 64 cores, and a process that no launcher has started."""
    monkeypatch.setattr("facefeed.loaders.workers.processes.usable_cores", lambda: 64)
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    return 64


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "32"}, 8),  # torchrun
        ({"WORLD_SIZE": "8", "LOCAL_RANK": "3", "NODE_RANK": "0"}, 8),  # Lightning's own launcher
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "WORLD_SIZE": "16"}, 4),
        ({"SLURM_STEP_TASKS_PER_NODE": "8(x4)", "SLURM_NODEID": "3"}, 8),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "1"}, 2),
        ({"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_NODEID": "2"}, 1),
        ({"SLURM_STEP_TASKS_PER_NODE": "8", "SLURM_NODEID": "9"}, 1),
        ({"SLURM_TASKS_PER_NODE": "8", "SLURM_NTASKS_PER_NODE": "8"}, 1),  # a batch script itself, before any srun
        ({"LOCAL_WORLD_SIZE": "many"}, 1),
    ],
    ids=str,
)
def test_ranks_of_a_host_are_counted_as_their_launcher_says(environment: dict[str, str], ranks: int) -> None:
    assert count_local_ranks(environment) == ranks


def test_of_ranks_on_several_hosts_no_more_are_here_than_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert count_local_ranks({"WORLD_SIZE": "32"}) == 8
    assert count_local_ranks({"WORLD_SIZE": "4"}) == 4
    assert count_local_ranks({}) == 1


@pytest.mark.parametrize(("ranks", "workers"), [("1", 64), ("8", 8), ("5", 12), ("100", 1)])
def test_ranks_share_the_cores(cores: int, monkeypatch: pytest.MonkeyPatch, ranks: str, workers: int) -> None:
    monkeypatch.setenv("WORLD_SIZE", ranks)
    assert default_num_workers() == workers
    assert default_num_workers(local_ranks=int(ranks)) == workers


@pytest.mark.parametrize(
    ("cores_here", "tasks", "cores_per_task", "workers"),
    [
        (8, "4", "8", 8),  # bound to its own
        (8, "4", "7", 8),  # of a whole core more, with two threads each
        (32, "4", "8", 8),  # --cpu-bind=none: all that the step has
        (64, "4", "8", 16),  # nothing is bound or confined
        (32, "1", "32", 8),  # one task, which starts four ranks
        (8, "4", None, 2),  # not known
    ],
)
def test_a_slurm_task_does_not_share_cores_that_are_its_own(
    cores: int, monkeypatch: pytest.MonkeyPatch, cores_here: int, tasks: str, cores_per_task: str | None, workers: int
) -> None:
    monkeypatch.setattr("facefeed.loaders.workers.processes.usable_cores", lambda: cores_here)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", tasks)
    monkeypatch.setenv("SLURM_NODEID", "0")
    if cores_per_task is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", cores_per_task)
    else:
        monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    assert default_num_workers(local_ranks=4) == workers
    if tasks == "4":
        assert default_num_workers() == workers


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # as many as 64 cores would have
def test_a_loader_has_its_ranks_part_of_the_cores_and_what_is_asked_for_goes_first(
    cores: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = make_small(tmp_path / "out")
    assert FaceDataLoader(out).num_workers == 64
    assert FaceDataLoader(out, local_ranks=8).num_workers == 8
    assert FaceDataLoader(out, local_ranks=8, num_workers=3).num_workers == 3
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert FaceDataLoader(out).num_workers == 4
    assert FaceDataLoader(out, local_ranks=2).num_workers == 32
    with pytest.raises(UsageError, match="local_ranks=0: must be at least 1; try 8"):
        FaceDataLoader(out, local_ranks=0)


def test_a_loader_made_before_the_ranks_started_still_shares_the_cores(
    cores: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("facefeed.loaders.workers.processes.usable_cores", lambda: 2)
    loader = FaceDataLoader(make_small(tmp_path / "out"), image_size=8)
    assert loader.num_workers == 2
    monkeypatch.setenv("WORLD_SIZE", "8")
    next(iter(loader))
    assert loader.num_workers == 1


def test_a_process_group_says_it_where_no_launcher_does(tmp_path: Path) -> None:
    if torch.cuda.device_count() == 1:
        pytest.skip("with one GPU two ranks are taken for two hosts")
    assert in_ranks(2, ranks_here, tmp_path / "group") == [2, 2]


def test_a_process_alone_has_all_cores() -> None:
    assert default_num_workers(local_ranks=1) == usable_cores()
