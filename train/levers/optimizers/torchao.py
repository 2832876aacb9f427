"""torchao's 8-bit Adam and AdamW, adapted: a second moment above 0, 32-bit state for some weights, float learning
rates, plain state dicts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchao import optim
from torchao.optim.subclass_8bit import OptimState8bit

_LOWEST_SECOND_MOMENT = 1e-7
"""Lowest value of a second moment, relative to the largest of its block; torchao's next one is 3.25e-7."""


class _Adapted:
    """Mixin for torchao's optimizers. full_precision: weights whose state stays at 32 bits."""

    full_precision: list[torch.Tensor]
    param_groups: list[dict[str, Any]]
    defaults: dict[str, Any]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Keeps the learning rate a float: torchao makes it a tensor, which many schedulers replace by a float."""
        learning_rate = param_group.get("lr", self.defaults["lr"])
        super().add_param_group(param_group)  # type: ignore[misc]
        self.param_groups[-1]["lr"] = float(learning_rate)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does not compile on a CPU: torchao compiles for every weight shape, which takes minutes."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        on_cpu = all(parameter.device.type == "cpu" for group in self.param_groups for parameter in group["params"])
        learning_rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32)
        try:
            with torch.compiler.set_stance("force_eager" if on_cpu else "default"):
                super().step()  # type: ignore[misc]
        finally:
            for group, learning_rate in zip(self.param_groups, learning_rates, strict=True):
                group["lr"] = learning_rate
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Returns a state dict of plain tensors: Lightning cannot load torchao's tensor subclass."""
        packed: dict[str, Any] = super().state_dict()  # type: ignore[misc]
        return {**packed, "state": _map_states(packed["state"], _to_plain)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores a state of `state_dict`."""
        super().load_state_dict({**state_dict, "state": _map_states(state_dict["state"], _to_8bit)})  # type: ignore[misc]

    def _new_buffer(self, p: torch.Tensor, signed: bool) -> torch.Tensor:
        if any(p is weight for weight in self.full_precision):
            return torch.zeros_like(p)
        return _without_zero(super()._new_buffer(p, signed))  # type: ignore[misc,no-any-return]


def _map_states(states: dict[Any, dict[str, Any]], change: Callable[[Any], Any]) -> dict[Any, dict[str, Any]]:
    return {number: {name: change(value) for name, value in state.items()} for number, state in states.items()}


def _to_plain(value: Any) -> Any:
    if not isinstance(value, OptimState8bit):
        return value
    parts = {"codes": value.codes, "scale": value.scale, "qmap": value.qmap}
    return {**parts, "signed": value.signed, "dtype": value.dtype}


def _to_8bit(value: Any) -> Any:
    return _without_zero(OptimState8bit(**value) if isinstance(value, dict) else value)


def _without_zero(value: Any) -> Any:
    """Returns `value`, with a lowest code above 0 if it is an 8-bit second moment.

    With torchao's own map, a small second moment becomes 0 while the first moment of the same weight does not, and the
    next step divides by eps alone: it moves the weight by thousands of learning rates. States of older checkpoints have
    that map. A block without gradients decodes to 1e-19 at most, by its scale. Li et al., Memory Efficient Optimizers
    with 4-bit States, NeurIPS 2023 (zero-point problem).
    """
    if not isinstance(value, OptimState8bit) or value.signed:
        return value
    qmap = value.qmap.clone()
    qmap[0] = _LOWEST_SECOND_MOMENT
    return OptimState8bit(value.codes, value.scale, qmap, value.signed, value.dtype)


class Adam8bit(_Adapted, optim.Adam8bit):  # type: ignore[misc]  # torchao is not followed
    """With L2 regularisation, as torch's Adam."""


class AdamW8bit(_Adapted, optim.AdamW8bit):  # type: ignore[misc]  # torchao is not followed
    """With decoupled weight decay, as torch's AdamW."""
