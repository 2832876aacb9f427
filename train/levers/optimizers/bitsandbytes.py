"""bitsandbytes' 8-bit Adam and AdamW, which leave weights in the channels_last layout in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from bitsandbytes import optim

_LAST = (0, 2, 3, 1)


class _KeepsLayout:
    """Mixin for bitsandbytes' optimizers, which would make every weight contiguous in its first step."""

    state: dict[torch.Tensor, dict[str, Any]]

    def init_state(self, group: Any, p: torch.Tensor, gindex: int, pindex: int) -> None:
        """Makes state in the order of the weight's memory."""
        with _in_order_of_memory(p):
            super().init_state(group, p, gindex, pindex)  # type: ignore[misc]

    def update_step(self, group: Any, p: torch.Tensor, gindex: int, pindex: int) -> None:
        """Updates a weight in the order of its memory; one whose state is of 0.2.0 in that of the state."""
        state = self.state[p]["state1"]
        has_same_order = state.is_contiguous() and state.shape == p.data.permute(_LAST).shape if p.ndim == 4 else False
        with _in_order_of_memory(p) if has_same_order else nullcontext():
            super().update_step(group, p, gindex, pindex)  # type: ignore[misc]


@contextmanager
def _in_order_of_memory(weight: torch.Tensor) -> Iterator[None]:
    """Presents a weight (O, I, H, W) in channels_last, and its gradient, as contiguous (O, H, W, I)."""
    data, grad = weight.data, weight.grad
    if data.ndim != 4 or data.is_contiguous() or not data.is_contiguous(memory_format=torch.channels_last):
        yield
        return
    assert grad is not None
    weight.grad, weight.data = None, data.permute(_LAST)
    weight.grad = grad.contiguous(memory_format=torch.channels_last).permute(_LAST)
    try:
        yield
    finally:
        weight.grad, weight.data = None, data
        weight.grad = grad


class Adam8bit(_KeepsLayout, optim.Adam8bit):  # type: ignore[misc]  # bitsandbytes is not followed
    """See `_KeepsLayout`."""


class AdamW8bit(_KeepsLayout, optim.AdamW8bit):  # type: ignore[misc]
    """See `_KeepsLayout`."""
