"""Channels-last memory format (NHWC) for convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from lightning.pytorch import LightningModule

from ..machine import Machine
from .lever import Lever


@dataclass(frozen=True)
class ChannelsLast(Lever, name="channels_last"):
    """Stores weights of convolutions channels last in memory (NHWC); activations follow.

    Gives: convolutions without transposes around them; some 5 to 35 % with fp16 or bf16 on tensor cores, often a
    little on CPUs. Costs: results differ only by the order of sums; slower if a network reshapes between its
    convolutions. Shapes stay NCHW, only strides change, and checkpoints are the same.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses a module without 2-D convolutions."""
        if not any(isinstance(part, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)) for part in module.modules()):
            return f"channels_last: {type(module).__name__} has no convolutions of images, so nothing changes; leave it"
        return None

    def apply(self, module: LightningModule) -> LightningModule:
        """Converts the weights in place."""
        return module.to(memory_format=torch.channels_last)
