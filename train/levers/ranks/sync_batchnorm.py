"""BatchNorm over the batches of all ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lightning.pytorch import LightningModule
from torch.nn.modules.batchnorm import _BatchNorm

from ...machine import Machine
from ..lever import Lever


@dataclass(frozen=True)
class SyncBatchNorm(Lever):
    """BatchNorm with the mean and variance of all ranks' batches, beside a lever that shares the work out.

    Gives: figures of the whole batch where each rank has few images. Costs: two small exchanges a layer, forward and
    backward, which nothing hides. Names in checkpoints stay, and weights are used on one device as ever. With one
    process it changes nothing. Zhang et al., Context Encoding for Semantic Segmentation, CVPR 2018.
    """

    name: ClassVar[str] = "sync_batchnorm"
    kind: ClassVar[str] = "sync_batchnorm"
    form: ClassVar[str] = "sync_batchnorm"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Without a GPU; where there is no BatchNorm."""
        if not machine.gpus:
            return "sync_batchnorm: torch exchanges these figures on GPUs alone, and there is none; leave it out"
        if not any(isinstance(part, _BatchNorm) for part in module.modules()):
            return f"sync_batchnorm: {type(module).__name__} has no BatchNorm, so nothing changes; leave it out"
        return None

    def apply(self, module: LightningModule) -> LightningModule:
        """Replaces each BatchNorm, also timm's, which have their activation in them."""
        from timm.layers import convert_sync_batchnorm  # noqa: PLC0415 (takes seconds)

        converted: LightningModule = convert_sync_batchnorm(module)
        return converted
