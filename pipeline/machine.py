"""What this process may use of its machine: cores and memory, as its container allows them. Standard library alone."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def usable_cores(root: Path = ROOT) -> int:
    """Cores that this process may keep busy, at least 1: its affinity or, where that is tighter, a group's quota.

    `root`: where /proc and /sys are looked for.
    """
    quotas = [quota for folder in _groups(root, "cpu") if (quota := _quota(folder)) is not None]
    return max(1, min([len(os.sched_getaffinity(0)), *(math.floor(quota) for quota in quotas)]))


def memory_bytes(root: Path = ROOT) -> int:
    """Memory that this process may use: the machine's, or less where a control group's limit is tighter."""
    limits = [limit for folder in _groups(root, "memory") if (limit := _limit(folder)) is not None]
    return min([_memory_of_machine(root), *limits])


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups that this process is in, version 2 and 1, and of all above them: each is a limit.

    In a container the names may be those of the host, of which only the last one is there, as the mount itself.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
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
        yield from (one for one in (folder, *folder.parents) if one.is_relative_to(mount))


def _quota(folder: Path) -> float | None:
    """Cores, of `cpu.max` (version 2) or `cpu.cfs_quota_us` (version 1)."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    number, of = _number(quota), _number(period)
    return number / of if number and of else None


def _limit(folder: Path) -> int | None:
    """Bytes, of `memory.max` (version 2) or `memory.limit_in_bytes` (version 1, which says "none" by a huge number)."""
    return _number(_text(folder / "memory.max")) or _number(_text(folder / "memory.limit_in_bytes"))


def _number(text: str) -> int | None:
    """None for "max" and -1, which stand for no limit."""
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _memory_of_machine(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
