"""What a container leaves to its processes is what the defaults are made of, not what the host has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from facefeed.pipeline.execution.capacity import decoders_per_worker, default_num_workers
from facefeed.pipeline.machine import memory_bytes, usable_cores

GB = 1 << 30
CORES = 64


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root folder of a host with 64 cores and 256 GB, whose control groups are to be added."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(CORES)))
    monkeypatch.setattr(os, "cpu_count", lambda: CORES)
    write(tmp_path, {"proc/meminfo": f"MemTotal:       {256 * GB // 1024} kB\nMemFree: 1 kB"})
    return tmp_path


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def test_without_limits_the_machine_is_what_there_is(host: Path) -> None:
    assert (usable_cores(host), memory_bytes(host)) == (CORES, 256 * GB)
    write(host, {
        "proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/memory.max": "max", "sys/fs/cgroup/job/cpu.max": "max 100000",
    })  # fmt: skip
    assert (usable_cores(host), memory_bytes(host)) == (CORES, 256 * GB)


def test_the_tightest_of_a_group_and_those_above_it_counts(host: Path) -> None:
    write(host, {
        "proc/self/cgroup": "0::/slurm/job/step",
        "sys/fs/cgroup/slurm/memory.max": str(128 * GB), "sys/fs/cgroup/slurm/cpu.max": "350000 100000",
        "sys/fs/cgroup/slurm/job/memory.max": str(8 * GB), "sys/fs/cgroup/slurm/job/cpu.max": "max 100000",
        "sys/fs/cgroup/slurm/job/step/memory.max": "max", "sys/fs/cgroup/slurm/job/step/cpu.max": "1600000 100000",
    })  # fmt: skip
    assert (usable_cores(host), memory_bytes(host)) == (3, 8 * GB)


def test_in_a_container_the_limits_stand_at_the_mount_itself(host: Path) -> None:
    write(host, {
        "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": str(8 * GB), "sys/fs/cgroup/cpu.max": "50000 100000",
    })  # fmt: skip
    assert (usable_cores(host), memory_bytes(host)) == (1, 8 * GB)


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_version_1_and_mixed_groups_count_too(host: Path, mount: str) -> None:
    write(host, {
        "proc/self/cgroup": "5:memory:/docker/1b2c\n4:cpu,cpuacct:/docker/1b2c\n3:freezer:/\n0::/",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(4 * GB),
        f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us": "250000", f"sys/fs/cgroup/{mount}/cpu.cfs_period_us": "100000",
    })  # fmt: skip
    assert (usable_cores(host), memory_bytes(host)) == (2, 4 * GB)


def test_version_1_without_limits_is_no_limit(host: Path) -> None:
    write(host, {
        "proc/self/cgroup": "5:memory:/\n4:cpu:/", "sys/fs/cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096),
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    })  # fmt: skip
    assert (usable_cores(host), memory_bytes(host)) == (CORES, 256 * GB)


def test_slots_are_as_many_as_the_container_has_cores_and_memory_for(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert default_num_workers(host) == CORES
    write(host, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": str(8 * GB)})
    assert default_num_workers(host) == 4
    write(host, {"sys/fs/cgroup/cpu.max": "200000 100000"})
    assert default_num_workers(host) == 2


@pytest.mark.parametrize(
    ("visible", "cores", "memory_gb", "workers"),
    [
        ("0", 16, 64, 4),
        ("0,1", 16, 64, 8),
        ("0", 4, 64, 2),
        ("0", 1, 64, 1),
        ("0,1", 2, 64, 2),  # no GPU is left without
        ("0", 16, 6, 3),
    ],
)
def test_a_gpu_has_several_workers_since_python_in_one_is_slower_than_it(
    host: Path, monkeypatch: pytest.MonkeyPatch, visible: str, cores: int, memory_gb: int, workers: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    write(host, {
        "proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{cores}00000 100000",
        "sys/fs/cgroup/memory.max": str(memory_gb * GB),
    })  # fmt: skip
    assert default_num_workers(host) == workers


@pytest.mark.parametrize(("visible", "decoders"), [("0", 8), ("0,1", 8), ("0,1,2,3", 4), ("MIG-1,MIG-2,MIG-3", 5)])
def test_a_jobs_cores_are_shared_by_its_own_gpus(
    host: Path, monkeypatch: pytest.MonkeyPatch, visible: str, decoders: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    write(host, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "1600000 100000"})
    assert decoders_per_worker(None, host) == decoders
