"""Images laid out in memory as tensor cores take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from lightning.pytorch import LightningModule

from ..machine import Machine
from .lever import Lever


@dataclass(frozen=True)
class ChannelsLast(Lever):
    """The weights of convolutions with their channels last in memory (NHWC); activations follow from there.

    Gives: convolutions without the transposes around them; some 5 to 35 % with fp16 or bf16 on tensor cores, and on
    CPUs often more than nothing. Costs: nothing to the result but the order of sums; slower where a network reshapes
    between its convolutions. Shapes stay NCHW, only strides change, and a checkpoint is the same.
    """

    name: ClassVar[str] = "channels_last"
    kind: ClassVar[str] = "channels_last"
    form: ClassVar[str] = "channels_last"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Where there are no convolutions of images."""
        if not any(isinstance(part, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)) for part in module.modules()):
            return f"channels_last: {type(module).__name__} has no convolutions of images, so nothing changes; leave it"
        return None

    def apply(self, module: LightningModule) -> LightningModule:
        """Lays the weights out so, in their place."""
        return module.to(memory_format=torch.channels_last)
