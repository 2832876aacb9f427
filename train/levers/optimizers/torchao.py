"""torchao's 8-bit Adam and AdamW, with weights kept at 32 bits, rates that anyone may set, and plain checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchao import optim
from torchao.optim.subclass_8bit import OptimState8bit


class _Kept:
    """Stands before torchao's class. kept: the weights whose averages stay at 32 bits."""

    kept: list[torch.Tensor]
    param_groups: list[dict[str, Any]]
    defaults: dict[str, Any]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Keeps the rate a number: torchao makes it a tensor, in whose place many schedulers would put one."""
        rate = param_group.get("lr", self.defaults["lr"])
        super().add_param_group(param_group)  # type: ignore[misc]
        self.param_groups[-1]["lr"] = float(rate)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does not compile on a CPU as torchao does for every shape of weights: that takes minutes and a compiler."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        on_cpu = all(one.device.type == "cpu" for group in self.param_groups for one in group["params"])
        rates = [group["lr"] for group in self.param_groups]
        for group in self.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), dtype=torch.float32)
        try:
            with torch.compiler.set_stance("force_eager" if on_cpu else "default"):
                super().step()  # type: ignore[misc]
        finally:
            for group, rate in zip(self.param_groups, rates, strict=True):
                group["lr"] = rate
        return loss

    def state_dict(self) -> dict[str, Any]:
        """As any optimizer's, of plain tensors: Lightning could not load those of torchao's own kind."""
        packed: dict[str, Any] = super().state_dict()  # type: ignore[misc]
        return {**packed, "state": _each(packed["state"], _plain)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` gives."""
        super().load_state_dict({**state_dict, "state": _each(state_dict["state"], _of_8_bits)})  # type: ignore[misc]

    def _new_buffer(self, p: torch.Tensor, signed: bool) -> torch.Tensor:
        if any(p is one for one in self.kept):
            return torch.zeros_like(p)
        return super()._new_buffer(p, signed)  # type: ignore[misc,no-any-return]


def _each(states: dict[Any, dict[str, Any]], change: Callable[[Any], Any]) -> dict[Any, dict[str, Any]]:
    return {number: {name: change(value) for name, value in state.items()} for number, state in states.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, OptimState8bit):
        return value
    parts = {"codes": value.codes, "scale": value.scale, "qmap": value.qmap}
    return {**parts, "signed": value.signed, "dtype": value.dtype}


def _of_8_bits(value: Any) -> Any:
    return OptimState8bit(**value) if isinstance(value, dict) else value


class Adam8bit(_Kept, optim.Adam8bit):  # type: ignore[misc]  # torchao is not followed
    """With L2 regularisation, as torch's Adam."""


class AdamW8bit(_Kept, optim.AdamW8bit):  # type: ignore[misc]  # torchao is not followed
    """With decoupled weight decay, as torch's AdamW."""
