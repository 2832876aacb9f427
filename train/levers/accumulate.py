"""Gradient accumulation: one optimizer step for several batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule

from ..machine import Machine
from ..torch_internals import foreach_mul_
from .lever import Lever, LeverError, require_int


@dataclass(frozen=True)
class Accumulate(Lever, name="accumulate", form="accumulate:N"):
    """One optimizer step for every `batches` batches, on the mean of their losses.

    Gives: the step of a batch `batches` times as large, in the memory of one; fewer all-reduces under DDP. An epoch's
    incomplete last group is averaged over the batches it has (Lightning alone would divide by `batches`). Costs: fewer
    steps per epoch; BatchNorm still sees single batches. All batches have equal weight, so images of an epoch's shorter
    last batch weigh more, as they do without the lever. A validation interval in batches (`val_check_interval=100`)
    becomes one in optimizer steps; a longer one than an epoch is refused, unless `check_val_every_n_epoch=None`.
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
        """Returns the Trainer's own accumulation, and callbacks for an epoch's incomplete last group and validation."""
        callbacks = [ShortGroupRescaling(self.batches), ValidationInterval(self.batches)]
        return {"accumulate_grad_batches": self.batches, "callbacks": callbacks}


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


class ValidationInterval(Callback):  # type: ignore[misc]
    """Validates every `val_check_interval` optimizer steps of `batches` batches; a fraction of an epoch stays so.

    Lightning counts batches, and allows no more of them than an epoch has, whose last step may be of fewer.
    """

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Sets the interval; raises `LeverError` where it is longer than an epoch."""
        steps, num_batches = getattr(trainer, "val_check_interval", None), trainer.num_training_batches
        if type(steps) is not int or not trainer.enable_validation:
            return
        trainer.val_check_batch = steps * self._batches
        if trainer.check_val_every_n_epoch is None:
            return
        if trainer.val_check_batch - self._batches >= num_batches:
            raise LeverError(
                f"accumulate:{self._batches}: val_check_interval={steps} is {steps} optimizer steps of {self._batches} "
                f"batches, and an epoch has {num_batches:,} batches; take fewer steps, or check_val_every_n_epoch=None "
                "to count them over epochs"
            )
        trainer.val_check_batch = min(trainer.val_check_batch, num_batches)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Sets the interval again: Lightning sets its own where it reloads the loader."""
        self.on_train_start(trainer, pl_module)
