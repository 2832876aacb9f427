"""bitsandbytes' 8-bit Adam and AdamW, which leave weights in the channels_last layout in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from bitsandbytes import optim


class _KeepsLayout:
    """Mixin for bitsandbytes' optimizers, which would make every weight contiguous in its first step."""

    def init_state(self, group: Any, p: torch.Tensor, gindex: int, pindex: int) -> None:
        """Makes state in the order of the weight's memory."""
        with _in_order_of_memory(p):
            super().init_state(group, p, gindex, pindex)  # type: ignore[misc]

    def update_step(self, group: Any, p: torch.Tensor, gindex: int, pindex: int) -> None:
        """Updates a weight in the order of its memory."""
        with _in_order_of_memory(p):
            super().update_step(group, p, gindex, pindex)  # type: ignore[misc]


@contextmanager
def _in_order_of_memory(weight: torch.Tensor) -> Iterator[None]:
    """Presents a weight (O, I, H, W) in channels_last, and its gradient, as contiguous (O, H, W, I)."""
    data, grad = weight.data, weight.grad
    if data.ndim != 4 or data.is_contiguous() or not data.is_contiguous(memory_format=torch.channels_last):
        yield
        return
    assert grad is not None
    weight.grad, weight.data = None, data.permute(0, 2, 3, 1)
    weight.grad = grad.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
    try:
        yield
    finally:
        weight.grad, weight.data = None, data
        weight.grad = grad


class Adam8bit(_KeepsLayout, optim.Adam8bit):  # type: ignore[misc]  # bitsandbytes is not followed
    """See `_KeepsLayout`."""


class AdamW8bit(_KeepsLayout, optim.AdamW8bit):  # type: ignore[misc]
    """See `_KeepsLayout`."""
