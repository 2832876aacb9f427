"""Synchronised BatchNorm: statistics over the batches of all ranks."""

from __future__ import annotations

from dataclasses import dataclass

from lightning.pytorch import LightningModule

from ...machine import Machine
from ...torch_internals import BatchNormBase
from ..lever import Lever


@dataclass(frozen=True)
class SyncBatchNorm(Lever, name="sync_batchnorm"):
    """BatchNorm with mean and variance over the batches of all ranks; needs a strategy beside it.

    Gives: statistics of the global batch if each rank has few images. Costs: two small all-reduces per layer, forward
    and backward, which do not overlap with computation. Names in the state dict do not change, and the weights work on
    one device. No effect with one process. Zhang et al., Context Encoding for Semantic Segmentation, CVPR 2018.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses without a GPU, and a module without BatchNorm."""
        if not machine.gpus:
            return "sync_batchnorm: torch exchanges these statistics on GPUs alone, and there is none; leave it out"
        if not any(isinstance(part, BatchNormBase) for part in module.modules()):
            return f"sync_batchnorm: {type(module).__name__} has no BatchNorm, so nothing changes; leave it out"
        return None

    def apply(self, module: LightningModule) -> LightningModule:
        """Replaces each BatchNorm, also timm's with fused activation."""
        from timm.layers import convert_sync_batchnorm  # noqa: PLC0415 (takes seconds)

        converted: LightningModule = convert_sync_batchnorm(module)
        return converted
