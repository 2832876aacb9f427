"""No step on a gradient longer than a norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lightning.pytorch import LightningModule
from torch.optim import Optimizer

from ..machine import Machine
from .lever import Lever, positive
from .optimizers.fused import change_optimizers


@dataclass(frozen=True)
class Clip(Lever):
    """A gradient longer than `norm` (over all parameters, Euclidean) is made that long.

    Gives: one strange batch cannot throw the weights far off; warm-up may be shorter. Under fp16 it is clipped after
    the scale is taken out, under accumulation after the last of its batches. Costs: a pass over the gradients. Pascanu
    et al., On the Difficulty of Training Recurrent Neural Networks, ICML 2013.
    """

    name: ClassVar[str] = "clip"
    kind: ClassVar[str] = "clip"
    form: ClassVar[str] = "clip:NORM"

    norm: float

    def __post_init__(self) -> None:
        positive(self, "norm")

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Where the module calls its optimizers itself."""
        if not module.automatic_optimization:
            return (
                f"{self}: {type(module).__name__} optimizes manually, so the Trainer has no step to clip before; call "
                f"self.clip_gradients(optimizer, gradient_clip_val={self.norm}) in its training_step"
            )
        return None

    def arguments(self) -> dict[str, Any]:
        """The Trainer's own clipping."""
        return {"gradient_clip_val": self.norm, "gradient_clip_algorithm": "norm"}

    def apply(self, module: LightningModule) -> LightningModule:
        """Has fused optimizers leave fp16's scale to the Trainer, as others do: in their step it would be too late."""
        return change_optimizers(module, leave_scale)


def leave_scale(optimizer: Optimizer) -> None:
    """By the mark that torch's GradScaler looks for, and Lightning, which refuses to clip where it is (bf16 too)."""
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]  # noqa: SLF001
