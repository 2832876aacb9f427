"""How much memory a process and its children took at most, and how much of it an optimizer keeps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import torch

_most_of_children_bytes = 0


def peak_memory() -> dict[str, int | None]:
    """The most so far, in bytes: `allocated_bytes` and `reserved_bytes` on CUDA, over its devices, and `host_bytes`.

    allocated: what tensors took; reserved: what torch's allocator held for them, which is what must fit on the card;
    both None without CUDA. host: of this process since it began, plus the most that its living children took together
    at any call: call it also while workers live, such as at an epoch's end. An upper bound, since pages that children
    share with their parent count for each, and peaks need not have come at once.
    """
    global _most_of_children_bytes  # noqa: PLW0603 (a process has one peak)
    alive = sum(_most_bytes(child.pid) for child in _children())
    _most_of_children_bytes = max(_most_of_children_bytes, alive)
    return {**_on_devices(), "host_bytes": _most_bytes(os.getpid()) + _most_of_children_bytes}


def optimizer_state_bytes(optimizer: torch.optim.Optimizer) -> int:
    """What an optimizer keeps beside weights and gradients, in bytes; nothing before its first step."""
    held: dict[int, int] = {}
    for state in optimizer.state.values():
        for tensor in _plain(list(state.values())):
            storage = tensor.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()  # tables of 8-bit values are shared
    return sum(held.values())


def _plain(values: list[Any]) -> Iterator[torch.Tensor]:
    """The tensors in some values, those inside torchao's in their place."""
    for value in values:
        if hasattr(value, "__tensor_flatten__"):
            names, _ = value.__tensor_flatten__()
            yield from _plain([getattr(value, name) for name in names])
        elif isinstance(value, torch.Tensor):
            yield value


def _on_devices() -> dict[str, int | None]:
    if not torch.cuda.is_available():
        return {"allocated_bytes": None, "reserved_bytes": None}
    devices = range(torch.cuda.device_count())
    return {
        "allocated_bytes": max(torch.cuda.max_memory_allocated(number) for number in devices),
        "reserved_bytes": max(torch.cuda.max_memory_reserved(number) for number in devices),
    }


def _children() -> list[psutil.Process]:
    try:
        return list(psutil.Process().children(recursive=True))
    except psutil.Error:
        return []


def _most_bytes(pid: int) -> int:
    """The most that a living process had in memory; 0 where it is gone, or the system does not tell.

    Not by getrusage, which counts for a process what its parent had when it forked.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
