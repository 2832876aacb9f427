"""Peak memory of the process, its children and GPUs, and size of optimizer state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

_peak_children_bytes = 0


def peak_memory() -> dict[str, int | None]:
    """Returns peak memory so far, in bytes: `allocated_bytes` and `reserved_bytes` on CUDA, and `host_bytes`.

    So far is since the process began, or since `facefeed.train.run.runner.train` last began a fit in it.

    allocated: by tensors; reserved: by torch's caching allocator, which must fit on the GPU. Both are maxima over
    devices, None without CUDA. host: peak RSS of this process, plus the largest sum over living children at any call:
    call it while workers are alive, such as at an epoch's end. Children that are other ranks, and their workers, do not
    count. An upper bound, since pages shared between processes count for each, and peaks need not coincide.
    """
    global _peak_children_bytes  # noqa: PLW0603 (a process has one peak)
    children_bytes = sum(_peak_rss_bytes(child.pid) for child in _children())
    _peak_children_bytes = max(_peak_children_bytes, children_bytes)
    return {**_peak_device_memory(), "host_bytes": _peak_rss_bytes(os.getpid()) + _peak_children_bytes}


def reset_peak_memory() -> None:
    """Lets `peak_memory` count anew, at the start of a training: on CUDA from what is allocated, and its children.

    The peak of the process itself in host memory stays: the system keeps it as long as the process lives.
    """
    global _peak_children_bytes  # noqa: PLW0603
    _peak_children_bytes = 0
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for number in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(number)


def optimizer_state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Returns the size of an optimizer's state in bytes; 0 before its first step."""
    bytes_by_storage: dict[int, int] = {}
    for state in optimizer.state.values():
        for tensor in _plain_tensors(list(state.values())):
            storage = tensor.untyped_storage()
            bytes_by_storage[storage.data_ptr()] = storage.nbytes()  # quantization tables of 8-bit states are shared
    return sum(bytes_by_storage.values())


def _plain_tensors(values: list[Any]) -> Iterator[torch.Tensor]:
    """Yields the tensors in some values; tensor subclasses, such as torchao's, are replaced by their inner tensors."""
    for value in values:
        if hasattr(value, "__tensor_flatten__"):
            names, _ = value.__tensor_flatten__()
            yield from _plain_tensors([getattr(value, name) for name in names])
        elif isinstance(value, torch.Tensor):
            yield value


def _peak_device_memory() -> dict[str, int | None]:
    if not torch.cuda.is_available():
        return {"allocated_bytes": None, "reserved_bytes": None}
    devices = range(torch.cuda.device_count())
    return {
        "allocated_bytes": max(torch.cuda.max_memory_allocated(number) for number in devices),
        "reserved_bytes": max(torch.cuda.max_memory_reserved(number) for number in devices),
    }


def _children() -> list[psutil.Process]:
    """Returns the living children and theirs, but for the further ranks that Lightning starts from the first."""
    try:
        children = psutil.Process().children(recursive=True)
    except psutil.Error:
        return []
    rank = os.environ.get("LOCAL_RANK", "0")
    return [child for child in children if _local_rank(child, default=rank) == rank]


def _local_rank(process: psutil.Process, *, default: str) -> str:
    """Returns the rank on this node that a process was started as, or a worker of; `default` where it has none."""
    try:
        return str(process.environ().get("LOCAL_RANK", default))
    except psutil.Error:
        return default


def _peak_rss_bytes(pid: int) -> int:
    """Returns the peak RSS of a living process; 0 if it has ended, or the system does not report it.

    getrusage would include what the parent had when it forked.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
