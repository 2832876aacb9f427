"""Mixed precision (fp16, bf16) and TF32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from lightning.pytorch import LightningModule

from ..machine import AMPERE, Machine
from .lever import Lever
from .process_setting import ProcessSetting


@dataclass(frozen=True)
class Fp16(Lever, name="fp16", kind="precision"):
    """Matrix products and convolutions in fp16 (5 exponent bits), other operations and weights in fp32.

    Gives: a BERT's epoch 23.09 -> 8.75 min on an A100; half of the time or less for large models, little for tiny
    ones; activations take half the memory. Works on every GPU with tensor cores, also a 2080 Ti. Costs: gradients
    below 6e-8 would underflow, so the loss is scaled dynamically: a few steps at the start, and about one in two
    thousand, are skipped (`FiniteGuard` counts them). Micikevicius et al., Mixed Precision Training, ICLR 2018.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses without a GPU, and a loss that autocast refuses."""
        if not machine.gpus:
            return "fp16: a CPU has no scaled fp16 (Lightning would take bf16 without a word); take bf16"
        return _unsafe_loss_refusal(self, module)

    def arguments(self) -> dict[str, Any]:
        """Returns Lightning's fp16 mixed precision, with its gradient scaler."""
        return {"precision": "16-mixed"}


@dataclass(frozen=True)
class Bf16(Lever, name="bf16", kind="precision"):
    """Matrix products and convolutions in bf16 (fp32's 8 exponent bits, 8 of fraction), other operations in fp32.

    Gives: the speed of fp16 on a GPU of compute capability 8.0 (Ampere) and above, without loss scaling and skipped
    steps. Correct on CPUs, and fast on those with AMX or AVX-512 BF16. Costs: products have three decimal digits;
    weights and their updates stay fp32. Kalamkar et al., A Study of BFLOAT16 for Deep Learning Training, 2019.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses on GPUs before Ampere, and a loss that autocast refuses."""
        if machine.is_older_than(AMPERE):
            return f"bf16: {machine.compute_capability_text}, and bf16 needs 8.0 (Ampere) or above; take fp16"
        return _unsafe_loss_refusal(self, module)

    def arguments(self) -> dict[str, Any]:
        """Returns Lightning's bf16 mixed precision."""
        return {"precision": "bf16-mixed"}


@dataclass(frozen=True)
class Tf32(Lever, name="tf32"):
    """Matrix products of fp32 numbers on tensor cores, with 10 of their 23 fraction bits.

    Gives: up to several times the speed of fp32 matrix products on Ampere and above (convolutions use TF32 by
    default). Together with fp16 or bf16 it matters only for operations left in fp32. Costs: products have three
    decimal digits. The process's setting is restored after the fit.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses without a GPU of compute capability 8.0 or above."""
        if not machine.gpus:
            return "tf32: needs a GPU with tensor cores, and there is none; leave it out"
        if machine.is_older_than(AMPERE):
            return f"tf32: {machine.compute_capability_text}, and TF32 needs 8.0 (Ampere) or above; take fp16"
        return None

    def arguments(self) -> dict[str, Any]:
        """Returns a callback that changes the process's setting during the fit."""
        return {"callbacks": [MatmulPrecision("high")]}


class MatmulPrecision(ProcessSetting):
    """Sets torch's float32 matmul precision during a fit: "highest", "high" or "medium"."""

    def __init__(self, precision: str) -> None:
        self._precision = precision

    def change(self) -> Callable[[], None]:
        """Sets the precision."""
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(self._precision)
        return partial(torch.set_float32_matmul_precision, before)


def _unsafe_loss_refusal(lever: Lever, module: LightningModule) -> str | None:
    """Refuses a module that computes binary cross entropy of probabilities, which in 16 bits round to 0 and 1.

    torch refuses it under CUDA's autocast too, but only in the first step.
    """
    remedy = "take BCEWithLogitsLoss of what went into the sigmoid, and leave the sigmoid out"
    for name, submodule in module.named_modules():
        if isinstance(submodule, torch.nn.BCELoss):
            return f"{lever.name}: {name} is a BCELoss, which is not safe in 16 bits; {remedy}"
    for class_, function in _user_methods(module):
        names = _referenced_names(function.__code__)
        if "binary_cross_entropy" in names and "autocast" not in names:
            where = f"{class_.__name__}.{function.__name__}"
            return f"{lever.name}: {where} calls binary_cross_entropy, which is not safe in 16 bits; {remedy}"
    return None


def _user_methods(module: LightningModule) -> Iterator[tuple[type, FunctionType]]:
    """Yields the methods of the classes of a module and its submodules, except those of torch and Lightning."""
    classes = {class_: None for submodule in module.modules() for class_ in type(submodule).__mro__}
    for class_ in classes:
        if class_.__module__.split(".")[0] not in ("torch", "torchmetrics", "lightning", "builtins"):
            yield from (
                (class_, attribute) for attribute in vars(class_).values() if isinstance(attribute, FunctionType)
            )


def _referenced_names(code: CodeType) -> set[str]:
    nested = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_referenced_names, nested))
