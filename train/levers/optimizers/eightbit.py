"""AdamW with 8-bit state."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule
from torch.optim import Adam, AdamW, Optimizer

from ...machine import TENSOR_CORES, Machine
from ..lever import Lever, LeverError
from .in_place import replace_in_place, transform_optimizers

_EMBEDDINGS = (torch.nn.Embedding, torch.nn.EmbeddingBag)
_UNSUPPORTED_OPTIONS = ("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay")


@dataclass(frozen=True)
class AdamW8bit(Lever, name="adamw8bit", kind="optimizer"):
    """Replaces the module's AdamW (or Adam) by one whose moments are quantized block-wise to 8 bits.

    Gives: 2 bytes of state per parameter instead of 8. State stays at 32 bits for embeddings, whose rows get rare and
    large updates, and for tensors with fewer than 4096 elements (with torchao, also of a size that is not a multiple of
    256). By bitsandbytes on CUDA if it is installed, else by torchao. Groups, learning rates and schedulers stay the
    module's. Costs: a slower step without CUDA, and quantization noise. Dettmers et al., 8-bit Optimizers via
    Block-wise Quantization, ICLR 2022.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses without a library that has the optimizer, and on GPUs that torchao's cannot be compiled for."""
        if machine.gpus and machine.has("bitsandbytes"):
            return None
        if machine.has("torchao"):
            missing = _missing_for_torchao(machine)
            return missing and f"adamw8bit: {missing}; run `pip install bitsandbytes`, or leave it out"
        library = "bitsandbytes or torchao" if machine.gpus else "torchao"
        return f"adamw8bit: needs {library}, which is not installed; run `pip install torchao`, or leave it out"

    def apply(self, module: LightningModule) -> LightningModule:
        """Replaces every optimizer when it is configured, which raises `LeverError` on one that is not Adam."""
        return transform_optimizers(module, ReplaceByEightBit(module))


def _missing_for_torchao(machine: Machine) -> str | None:
    """What torchao's optimizer, which compiles its step on GPUs, misses on the machine; None where it works."""
    if not machine.gpus:
        return None
    if machine.compiler is None:
        return "there is no C++ compiler, with which torchao builds its step"
    if not machine.has("triton"):
        return "there is no Triton, in which torchao writes its step"
    if machine.is_older_than(TENSOR_CORES):
        return f"{machine.compute_capability_text}, and the Triton of torchao's step needs 7.0"
    return None


@dataclass(frozen=True)
class ReplaceByEightBit:
    """Replaces an optimizer of a module by its 8-bit form."""

    module: LightningModule

    def __call__(self, optimizer: Optimizer) -> None:
        """Raises `LeverError` on other optimizers than torch's Adam and AdamW, and on unsupported options."""
        if getattr(optimizer, "is_eight_bit", False):
            return
        if type(optimizer) not in (Adam, AdamW):
            optimizer_class = type(optimizer).__name__
            raise LeverError(
                f"adamw8bit: {optimizer_class} has no 8-bit form here; take torch.optim.AdamW, or leave it out"
            )
        decoupled = isinstance(optimizer, AdamW) or bool(optimizer.defaults.get("decoupled_weight_decay"))
        create = _create_bitsandbytes if _uses_bitsandbytes(optimizer) else _create_torchao
        _check_options(optimizer, is_torch_decay=decoupled or create is _create_torchao)
        for group in optimizer.param_groups:
            for option in _UNSUPPORTED_OPTIONS:
                group.pop(option, None)
        defaults = {name: optimizer.defaults[name] for name in ("lr", "betas", "eps", "weight_decay")}
        embeddings: list[Any] = [submodule for submodule in self.module.modules() if isinstance(submodule, _EMBEDDINGS)]
        replacement = create(optimizer.param_groups, defaults, decoupled, embeddings)
        replacement.is_eight_bit = True  # type: ignore[attr-defined]  # so that it is not replaced twice
        replace_in_place(optimizer, replacement)


def _check_options(optimizer: Optimizer, *, is_torch_decay: bool) -> None:
    """Raises `LeverError` on options that the 8-bit form does not have, or has otherwise.

    is_torch_decay: whether weight decay stays as it is in torch. bitsandbytes' Adam decouples it as AdamW does.
    """
    for group in optimizer.param_groups:
        for option in ("amsgrad", "maximize", "differentiable"):
            if group.get(option):
                raise LeverError(f"adamw8bit: has no {option}=True; leave one of them out")
        if group["weight_decay"] and not is_torch_decay:
            raise LeverError(
                f"adamw8bit: weight_decay={group['weight_decay']:g} of Adam is added to the gradient, and bitsandbytes "
                "has that of AdamW alone, which trains otherwise; take torch.optim.AdamW, or weight_decay=0"
            )


def _uses_bitsandbytes(optimizer: Optimizer) -> bool:
    """Whether bitsandbytes replaces an optimizer, by the device of its parameters; else torchao does."""
    device = next((parameter.device.type for group in optimizer.param_groups for parameter in group["params"]), "cpu")
    return device == "cuda" and find_spec("bitsandbytes") is not None


def _create_bitsandbytes(groups: Any, defaults: Any, decoupled: bool, embeddings: list[Any]) -> Optimizer:
    from bitsandbytes.optim import GlobalOptimManager  # noqa: PLC0415 (optional)

    from .bitsandbytes import Adam8bit, AdamW8bit  # noqa: PLC0415

    manager = GlobalOptimManager.get_instance()
    for embedding in embeddings:
        manager.register_module_override(embedding, "weight", {"optim_bits": 32})
    return cast("Optimizer", (AdamW8bit if decoupled else Adam8bit)(groups, **defaults))


def _create_torchao(groups: Any, defaults: Any, decoupled: bool, embeddings: list[Any]) -> Optimizer:
    from .torchao import Adam8bit, AdamW8bit  # noqa: PLC0415 (optional)

    replacement = (AdamW8bit if decoupled else Adam8bit)(groups, **defaults)
    replacement.full_precision = [embedding.weight for embedding in embeddings]
    return cast("Optimizer", replacement)
