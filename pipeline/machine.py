"""Cores and memory that this process may use, within the limits of its control groups, and whether there is a GPU.

Standard library only.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
_NVIDIA_DRIVER = "libcuda.so.1"
_AMD_DEVICE = "dev/kfd"


def usable_cores(root: Path = ROOT) -> int:
    """Number of cores that this process may use, at least 1: its CPU affinity, or a control group's quota if lower.

    `root`: the folder with `proc` and `sys`.
    """
    quotas = [quota for folder in _cgroup_folders(root, "cpu") if (quota := _cpu_quota(folder)) is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *(math.floor(quota) for quota in quotas)]))


def memory_bytes(root: Path = ROOT) -> int:
    """Bytes of memory that this process may use: the machine's, or a control group's limit if lower."""
    limits = [limit for folder in _cgroup_folders(root, "memory") if (limit := _memory_limit(folder)) is not None]
    return min([_physical_memory_bytes(root), *limits])


def has_gpu_driver() -> bool:
    """Whether the driver is there that torch needs for a GPU: to import torch takes a second, and 300 MB.

    Device files would not do: NVIDIA's driver creates them on first use, and in WSL there are none.
    """
    if (ROOT / _AMD_DEVICE).exists():
        return True
    try:
        ctypes.CDLL(_NVIDIA_DRIVER)
    except OSError:
        return False
    return True


def _cgroup_folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control groups (versions 1 and 2) and of all their parents: each may set a limit.

    In a container the names may be those of the host; only the mount itself then exists.
    """
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        if number == "0":
            mount = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controllers
            mount = mount if mount.is_dir() else root / "sys/fs/cgroup" / controller
        else:
            continue
        folder = mount / name.lstrip("/")
        yield from (parent for parent in (folder, *folder.parents) if parent.is_relative_to(mount))


def _cpu_quota(folder: Path) -> float | None:
    """Cores, from `cpu.max` (version 2) or `cpu.cfs_quota_us` (version 1); None without a limit."""
    quota, _, period = _read_text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read_text(folder / "cpu.cfs_quota_us"), _read_text(folder / "cpu.cfs_period_us")
    quota_us, period_us = _parse_limit(quota), _parse_limit(period)
    return quota_us / period_us if quota_us and period_us else None


def _memory_limit(folder: Path) -> int | None:
    """Bytes, from `memory.max` (version 2) or `memory.limit_in_bytes` (version 1: a huge number for no limit)."""
    return _parse_limit(_read_text(folder / "memory.max")) or _parse_limit(_read_text(folder / "memory.limit_in_bytes"))


def _parse_limit(text: str) -> int | None:
    """The number; None for "max" and -1, which stand for no limit."""
    return int(text) if text.isdigit() else None


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _physical_memory_bytes(root: Path) -> int:
    for line in _read_text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
