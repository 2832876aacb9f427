"""AdamW with 8 bits of state a number instead of 32."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, cast

import torch
from lightning.pytorch import LightningModule
from torch.optim import Adam, AdamW, Optimizer

from ...machine import Machine
from ..lever import Lever, LeverError
from .fused import become, change_optimizers

_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
_NOT_THERE = ("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay")


@dataclass(frozen=True)
class AdamW8bit(Lever):
    """The module's AdamW (or Adam) keeps both its averages in 8 bits, in blocks with a scale each.

    Gives: 2 bytes of state a parameter instead of 8. Of embeddings, whose rows are rarely touched and then far, and of
    weights with fewer than 4096 numbers it stays at 32 bits. By bitsandbytes on CUDA where that is installed, else by
    torchao. Groups, rates and schedulers stay the module's. Costs: a slower step without CUDA, and a little noise.
    Dettmers et al., 8-bit Optimizers via Block-wise Quantization, ICLR 2022.
    """

    name: ClassVar[str] = "adamw8bit"
    kind: ClassVar[str] = "optimizer"
    form: ClassVar[str] = "adamw8bit"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Where no library is there that can."""
        if machine.has("torchao") or (machine.gpus and machine.has("bitsandbytes")):
            return None
        library = "bitsandbytes or torchao" if machine.gpus else "torchao"
        return f"adamw8bit: needs {library}, which is not installed; run `pip install torchao`, or leave it out"

    def apply(self, module: LightningModule) -> LightningModule:
        """Has every optimizer made so as it is configured; raises `LeverError` there of one that is no Adam."""
        return change_optimizers(module, EightBit(module))


@dataclass(frozen=True)
class EightBit:
    """Changes an optimizer of a module; its embeddings are known by then."""

    module: LightningModule

    def __call__(self, optimizer: Optimizer) -> None:
        """Raises `LeverError` of any optimizer but torch's Adam and AdamW, and of options that have no 8-bit form."""
        if getattr(optimizer, "eight_bit", False):
            return
        if type(optimizer) not in (Adam, AdamW):
            kind = type(optimizer).__name__
            raise LeverError(f"adamw8bit: {kind} has no 8-bit form here; take torch.optim.AdamW, or leave it out")
        for group in optimizer.param_groups:
            for option in ("amsgrad", "maximize", "differentiable"):
                if group.get(option):
                    raise LeverError(f"adamw8bit: has no {option}=True; leave one of them out")
        decoupled = isinstance(optimizer, AdamW) or bool(optimizer.defaults.get("decoupled_weight_decay"))
        for group in optimizer.param_groups:
            for option in _NOT_THERE:
                group.pop(option, None)
        defaults = {name: optimizer.defaults[name] for name in ("lr", "betas", "eps", "weight_decay")}
        become(optimizer, self._made(optimizer, decoupled, defaults))

    def _made(self, optimizer: Optimizer, decoupled: bool, defaults: dict[str, Any]) -> Optimizer:
        embeddings: list[Any] = [part for part in self.module.modules() if isinstance(part, _EMBEDDINGS)]
        device = next((one.device.type for group in optimizer.param_groups for one in group["params"]), "cpu")
        make = _of_bitsandbytes if device == "cuda" and find_spec("bitsandbytes") else _of_torchao
        made = make(optimizer.param_groups, defaults, decoupled, embeddings)
        made.eight_bit = True  # type: ignore[attr-defined]  # so that it is not made so again
        return made


def _of_bitsandbytes(groups: Any, defaults: Any, decoupled: bool, embeddings: list[Any]) -> Optimizer:
    from bitsandbytes import optim  # noqa: PLC0415 (only where it is used)

    manager = optim.GlobalOptimManager.get_instance()
    for embedding in embeddings:
        manager.register_module_override(embedding, "weight", {"optim_bits": 32})
    kind = optim.AdamW8bit if decoupled else optim.Adam8bit
    return cast("Optimizer", kind(groups, **defaults))


def _of_torchao(groups: Any, defaults: Any, decoupled: bool, embeddings: list[Any]) -> Optimizer:
    from .torchao import Adam8bit, AdamW8bit  # noqa: PLC0415 (only where it is used)

    made = (AdamW8bit if decoupled else Adam8bit)(groups, **defaults)
    made.kept = [embedding.weight for embedding in embeddings]
    return cast("Optimizer", made)
