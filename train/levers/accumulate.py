"""Gradient accumulation: one optimizer step for several batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule

from ..machine import Machine
from ..torch_internals import foreach_mul_
from .lever import Lever, require_int


@dataclass(frozen=True)
class Accumulate(Lever, name="accumulate", form="accumulate:N"):
    """One optimizer step for every `batches` batches, on the mean of their losses.

    Gives: the step of a batch `batches` times as large, in the memory of one; fewer all-reduces under DDP. An epoch's
    incomplete last group is averaged over the batches it has (Lightning alone would divide by `batches`). Costs: fewer
    steps per epoch; BatchNorm still sees single batches. All batches have equal weight, so images of an epoch's shorter
    last batch weigh more, as they do without the lever. A validation interval in batches (`val_check_interval=100`)
    becomes one in optimizer steps.
    """

    batches: int

    def __post_init__(self) -> None:
        require_int(self, "batches", minimum=2)

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses manual optimization."""
        if not module.automatic_optimization:
            return (
                f"{self}: {type(module).__name__} optimizes manually, so it alone decides when to step; let its "
                f"training_step call the optimizer every {self.batches} batches"
            )
        return None

    def arguments(self) -> dict[str, Any]:
        """Returns the Trainer's own accumulation, and a callback that rescales an epoch's incomplete last group."""
        return {"accumulate_grad_batches": self.batches, "callbacks": [ShortGroupRescaling(self.batches)]}

    def adjust_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Multiplies a validation interval in batches; a fraction of an epoch stays as it is."""
        validation_interval = arguments.get("val_check_interval")
        if isinstance(validation_interval, int) and not isinstance(validation_interval, bool):
            return {**arguments, "val_check_interval": validation_interval * self.batches}
        return arguments


class ShortGroupRescaling(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Rescales the gradient of a group of fewer than `batches` batches: Lightning has divided each by `batches`."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._num_passes = 0  # backward passes since the last step

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Resets the count."""
        self._num_passes = 0

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Counts the pass; there is none for a batch whose `training_step` returned None."""
        self._num_passes += 1

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Rescales the gradients; called after unscaling of fp16 and before clipping."""
        num_passes, self._num_passes = self._num_passes, 0
        if 0 < num_passes < self._batches and not trainer.strategy.handles_gradient_accumulation:
            gradients = [parameter.grad for parameter in pl_module.parameters() if parameter.grad is not None]
            foreach_mul_(gradients, self._batches / num_passes)
