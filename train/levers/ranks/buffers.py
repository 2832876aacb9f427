"""Buffers of a module, such as BatchNorm's running statistics, on several ranks."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn


@torch.no_grad()
def broadcast_buffers(module: nn.Module) -> None:
    """Makes all ranks' buffers those of rank 0, in place, by one transfer a dtype. A collective call."""
    by_dtype: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for buffer in module.buffers():
        by_dtype[buffer.dtype].append(buffer.detach())
    for buffers in by_dtype.values():
        flat = torch.cat([buffer.reshape(-1) for buffer in buffers])
        torch.distributed.broadcast(flat, 0)
        values = torch.split(flat, [buffer.numel() for buffer in buffers])
        for buffer, value in zip(buffers, values, strict=True):
            buffer.copy_(value.view_as(buffer))
