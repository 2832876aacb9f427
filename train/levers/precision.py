"""Fewer bits for most of the arithmetic: fp16, bf16 and TF32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule

from ..machine import Machine
from .lever import Lever
from .process_setting import ProcessSetting

_AMPERE = (8, 0)


@dataclass(frozen=True)
class Fp16(Lever):
    """Matrix products and convolutions in fp16 (5 bits of exponent), the rest and the weights in fp32.

    Gives: a BERT's epoch 23.09 -> 8.75 min on an A100; half of the time or less for large models, about nothing for
    tiny ones; activations take half the memory. Works on every GPU with tensor cores, also a 2080 Ti. Costs: gradients
    below 6e-8 would vanish, so the loss is multiplied by a scale that is searched for: a few steps at the start, and
    one in about two thousand, are skipped (`FiniteGuard` counts them). Micikevicius et al., Mixed Precision Training,
    ICLR 2018.
    """

    name: ClassVar[str] = "fp16"
    kind: ClassVar[str] = "precision"
    form: ClassVar[str] = "fp16"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Without a GPU; with a loss that autocast refuses."""
        if not machine.gpus:
            return "fp16: a CPU has no scaled fp16 (Lightning would take bf16 without a word); take bf16"
        return _unsafe_loss(self, module)

    def arguments(self) -> dict[str, Any]:
        """Lightning's mixed precision, with its scaler."""
        return {"precision": "16-mixed"}


@dataclass(frozen=True)
class Bf16(Lever):
    """Matrix products and convolutions in bf16 (fp32's 8 bits of exponent, 8 of fraction), the rest in fp32.

    Gives: as fp16 on a GPU of compute capability 8.0 (Ampere) and above, without a scale and without skipped steps. On
    a CPU it is right, and fast only where that has AMX or AVX-512 BF16. Costs: three decimal digits in the products;
    the weights and their updates stay fp32. Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019.
    """

    name: ClassVar[str] = "bf16"
    kind: ClassVar[str] = "precision"
    form: ClassVar[str] = "bf16"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """On a GPU that has none; with a loss that autocast refuses."""
        if _below(machine, _AMPERE):
            return f"bf16: {_capability(machine)}, and bf16 needs 8.0 (Ampere) or above; take fp16"
        return _unsafe_loss(self, module)

    def arguments(self) -> dict[str, Any]:
        """Lightning's mixed precision."""
        return {"precision": "bf16-mixed"}


@dataclass(frozen=True)
class Tf32(Lever):
    """Matrix products of fp32 numbers on tensor cores, which look at 10 of their 23 bits of fraction.

    Gives: up to several times the speed of fp32's matrix products on Ampere and above, for one line (convolutions have
    it by default). Beside fp16 or bf16 it matters only for what is left in fp32. Costs: three decimal digits in the
    products. The process gets its setting back after the fit.
    """

    name: ClassVar[str] = "tf32"
    kind: ClassVar[str] = "tf32"
    form: ClassVar[str] = "tf32"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Without a GPU of compute capability 8.0 or above."""
        if not machine.gpus:
            return "tf32: needs a GPU with tensor cores, and there is none; leave it out"
        if _below(machine, _AMPERE):
            return f"tf32: {_capability(machine)}, and TF32 needs 8.0 (Ampere) or above; take fp16"
        return None

    def arguments(self) -> dict[str, Any]:
        """A callback, since the setting is the process's."""
        return {"callbacks": [MatmulPrecision("high")]}


class MatmulPrecision(ProcessSetting):
    """Has fp32 matrix products computed so during a fit: "highest", "high" or "medium"."""

    def __init__(self, precision: str) -> None:
        self._precision = precision

    def change(self) -> Callable[[], None]:
        """As `ProcessSetting` has it."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._precision)
        return partial(torch.set_float32_matmul_precision, before)


def _below(machine: Machine, least: tuple[int, int]) -> bool:
    return machine.compute_capability is not None and machine.compute_capability < least


def _capability(machine: Machine) -> str:
    major, minor = machine.compute_capability or (0, 0)
    return f"{machine.gpus[0]} has compute capability {major}.{minor}"


def _unsafe_loss(lever: Lever, module: LightningModule) -> str | None:
    """Where a module takes the cross entropy of probabilities: in 16 bits they round to 0 and 1, whose logs are inf.

    torch refuses it under CUDA's autocast, in the first step.
    """
    remedy = "take BCEWithLogitsLoss of what went into the sigmoid, and leave the sigmoid out"
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.BCELoss):
            return f"{lever.name}: {name} is a BCELoss, which is not safe in 16 bits; {remedy}"
    for kind, function in _own_functions(module):
        names = _names(function.__code__)
        if "binary_cross_entropy" in names and "autocast" not in names:
            where = f"{kind.__name__}.{function.__name__}"
            return f"{lever.name}: {where} calls binary_cross_entropy, which is not safe in 16 bits; {remedy}"
    return None


def _own_functions(module: LightningModule) -> Iterator[tuple[type, FunctionType]]:
    """The methods that the classes of a module and its parts define, but for those of torch and Lightning."""
    kinds = {kind: None for part in module.modules() for kind in type(part).__mro__}
    for kind in kinds:
        if kind.__module__.split(".")[0] not in ("torch", "torchmetrics", "lightning", "builtins"):
            yield from ((kind, found) for found in vars(kind).values() if isinstance(found, FunctionType))


def _names(code: CodeType) -> set[str]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))
