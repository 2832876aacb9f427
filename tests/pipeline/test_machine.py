"""What a container leaves to its processes is what the defaults are made of, not what the host has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from facefeed.pipeline.execution import capacity
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


LARGE, SMALL = "81559, Default", "8188, Default"


@pytest.mark.parametrize(
    ("visible", "answer", "cores", "memory_gb", "workers"),
    [
        ("0", LARGE, 16, 64, 4),
        ("0,1", f"{LARGE}\n{LARGE}", 16, 64, 8),
        ("0,1", f"{LARGE}\n{SMALL}", 16, 64, 4),
        ("0", SMALL, 16, 64, 2),
        ("0", "2048, Default", 16, 64, 1),
        ("0", LARGE, 4, 64, 2),
        ("0", LARGE, 1, 64, 1),
        ("0,1", f"{LARGE}\n{LARGE}", 2, 64, 2),  # no GPU is left without
        ("0", LARGE, 16, 6, 3),
        ("0", "81559, Exclusive_Process", 16, 64, 1),
        ("MIG-1", LARGE, 16, 64, 1),
        ("0", "[N/A], Default", 16, 64, 1),
        ("0", None, 16, 64, 1),
    ],
)
def test_a_gpu_has_as_many_workers_as_its_memory_and_the_host_are_good_for(
    host: Path, monkeypatch: pytest.MonkeyPatch, visible: str, answer: str | None, cores: int, memory_gb: int,
    workers: int,
) -> None:  # fmt: skip
    tool = host / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    if answer is not None:
        tool.write_text(f"#!/bin/sh\nprintf '%s\\n' '{answer}'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    write(host, {
        "proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{cores}00000 100000",
        "sys/fs/cgroup/memory.max": str(memory_gb * GB),
    })  # fmt: skip
    capacity._max_workers_per_gpu.cache_clear()
    assert default_num_workers(host) == workers
    capacity._max_workers_per_gpu.cache_clear()


@pytest.mark.parametrize(("visible", "decoders"), [("0", 8), ("0,1", 8), ("0,1,2,3", 4), ("MIG-1,MIG-2,MIG-3", 5)])
def test_a_jobs_cores_are_shared_by_its_own_gpus(
    host: Path, monkeypatch: pytest.MonkeyPatch, visible: str, decoders: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    write(host, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "1600000 100000"})
    assert decoders_per_worker(None, host) == decoders
