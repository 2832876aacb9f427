"""The gradient of several batches in one step: a large batch on a small card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback, LightningModule

from ..machine import Machine
from .lever import Lever, whole


@dataclass(frozen=True)
class Accumulate(Lever):
    """A step of the optimizer every `batches` batches, on the mean of their losses.

    Gives: the step of a batch so many times as large, in the memory of one; under DDP fewer exchanges. An epoch's last
    group is averaged over the batches that it has, be they fewer (Lightning alone would divide by `batches`). Costs:
    fewer steps an epoch; BatchNorm still sees one batch at a time. Every batch counts the same, so images of an epoch's
    shorter last batch count more, as they do without it. Under ZeRO a last group that is not full goes on in the next
    epoch. A validation interval that the user gives in batches (`val_check_interval=100`) is taken as one in steps.
    """

    name: ClassVar[str] = "accumulate"
    kind: ClassVar[str] = "accumulate"
    form: ClassVar[str] = "accumulate:N"

    batches: int

    def __post_init__(self) -> None:
        whole(self, "batches", least=2)

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Where the module calls its optimizers itself."""
        if not module.automatic_optimization:
            return (
                f"{self}: {type(module).__name__} optimizes manually, so it alone decides when to step; let its "
                f"training_step call the optimizer every {self.batches} batches"
            )
        return None

    def arguments(self) -> dict[str, Any]:
        """The Trainer's own accumulation, and a callback that puts an epoch's last group right."""
        return {"accumulate_grad_batches": self.batches, "callbacks": [ShortGroup(self.batches)]}

    def adjusted(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """An interval in batches, multiplied; a share of the epoch stays one."""
        interval = arguments.get("val_check_interval")
        if isinstance(interval, int) and not isinstance(interval, bool):
            return {**arguments, "val_check_interval": interval * self.batches}
        return arguments


class ShortGroup(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Makes the gradient of a group of fewer than `batches` their mean: Lightning has divided each by `batches`."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._backward = 0  # passes since the last step

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to count."""
        self._backward = 0

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """A batch had a loss; of one whose `training_step` returned None there is no backward pass."""
        self._backward += 1

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Comes after fp16's scale was taken out and before clipping."""
        backward, self._backward = self._backward, 0
        if 0 < backward < self._batches and not trainer.strategy.handles_gradient_accumulation:
            gradients = [one.grad for one in pl_module.parameters() if one.grad is not None]
            torch._foreach_mul_(gradients, self._batches / backward)
