"""Gradient clipping by norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lightning.pytorch import LightningModule

from ..machine import Machine
from ..torch_internals import disable_fused_unscaling
from .lever import Lever, require_positive
from .optimizers.in_place import transform_optimizers


@dataclass(frozen=True)
class Clip(Lever, name="clip", form="clip:NORM"):
    """Scales down gradients whose Euclidean norm over all parameters exceeds `norm`.

    Gives: one outlier batch cannot throw the weights far off; warm-up may be shorter. Gradients are clipped after
    unscaling under fp16, and after the last batch of a group under accumulation. Costs: a pass over the gradients.
    Pascanu et al., On the Difficulty of Training Recurrent Neural Networks, ICML 2013.
    """

    norm: float

    def __post_init__(self) -> None:
        require_positive(self, "norm")

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses manual optimization."""
        if not module.automatic_optimization:
            return (
                f"{self}: {type(module).__name__} optimizes manually, so the Trainer has no step to clip before; call "
                f"self.clip_gradients(optimizer, gradient_clip_val={self.norm}) in its training_step"
            )
        return None

    def arguments(self) -> dict[str, Any]:
        """Returns the Trainer's own clipping."""
        return {"gradient_clip_val": self.norm, "gradient_clip_algorithm": "norm"}

    def apply(self, module: LightningModule) -> LightningModule:
        """Makes fused optimizers leave unscaling to the Trainer: they unscale within their step, after clipping."""
        return transform_optimizers(module, disable_fused_unscaling)
