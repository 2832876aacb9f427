"""Steps that are not finite: counted, and stopped when there are too many in a row."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback

from ....pipeline.errors import FacefeedError, UsageError
from .counter import Seen, WatchedSteps
from .statistics import RunningStatistics


class NonFiniteError(FacefeedError):
    """Training came to numbers that are none; `figures` holds the step, and what was counted."""

    exit_code = 1


class FiniteGuard(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Counts steps of the optimizer whose loss or gradient is NaN or infinite, and stops after `patience` in a row.

    patience: so many in a row raise `NonFiniteError`, which names the first of them and the last finite loss, on all
    ranks at the same step. Under fp16 the scaler skips a step whose gradient overflowed, and makes its scale smaller:
    that is how it searches, so such steps are counted apart, and in a row only once a step was taken or the scale is 1.
    `figures` has what was counted; checkpoints keep it. On a GPU, and with several ranks, it is looked at every
    `patience` steps, since that waits for the device: training may stop as many steps late. Costs a pass over the
    gradients. Under ZeRO these are in pieces that only DeepSpeed sees: losses count, and the steps that it skipped.
    Without a scaler such a step is taken all the same, and the weights may be lost from there. BatchNorm's running
    statistics stay as they were before a batch that makes one of them NaN or infinite, which is counted too.
    """

    name: ClassVar[str] = "finite"

    def __init__(self, *, patience: int = 10) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise UsageError(f"patience={patience!r}: must be a whole number of at least 1; try 10")
        self.patience = patience
        self._counted = {"nonfinite_steps": 0, "scaler_skips": 0, "kept_statistics": 0}
        self._steps: WatchedSteps | None = None

    def figures(self) -> dict[str, Any]:
        """nonfinite_steps: whose loss or gradient was not finite; scaler_skips: which fp16's scaler alone left out.

        kept_statistics: batches that BatchNorm's running statistics were kept from, on the rank that had most.
        """
        return dict(self._counted)

    def state_dict(self) -> dict[str, Any]:
        """What was counted."""
        return dict(self._counted)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from there."""
        self._counted = {name: int(state_dict.get(name, 0)) for name in self._counted}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to look; the scaler has its state from a checkpoint by now."""
        device = trainer.strategy.root_device
        self._statistics = RunningStatistics(pl_module)
        self._steps = WatchedSteps(device, getattr(trainer.precision_plugin, "scaler", None))
        self._every = 1 if device.type == "cpu" and trainer.world_size == 1 else self.patience
        self._first = trainer.global_step
        self._taken = 0
        self._is_due = False
        self._engine_skips = 0

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """The gradients are there, fp16's scale taken out of them, and not clipped yet."""
        assert self._steps is not None
        parameters = [one for group in getattr(optimizer, "param_groups", ()) for one in group["params"]]
        self._steps.gradients([one.grad for one in parameters if one.grad is not None])
        self._is_due = True

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The loss is there, and maybe a step was taken."""
        assert self._steps is not None
        self._steps.statistics(self._statistics.keep_finite())
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._steps.loss(loss if isinstance(loss, torch.Tensor) else None)
        if not self._is_due:
            return
        self._is_due = False
        self._steps.step(self._taken)
        self._taken += 1
        if self._taken % self._every == 0:
            self._judge(trainer, self._steps.take(trainer))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Looks before a checkpoint is written."""
        assert self._steps is not None
        self._judge(trainer, self._steps.take(trainer))

    def _judge(self, trainer: Any, seen: Seen) -> None:
        skips = int(getattr(trainer.strategy.model, "skipped_steps", 0))  # DeepSpeed's engine has them
        self._counted["nonfinite_steps"] += seen.nonfinite
        self._counted["scaler_skips"] += seen.skipped + skips - self._engine_skips
        self._counted["kept_statistics"] += seen.kept_statistics
        self._engine_skips = skips
        if seen.most_in_a_row < self.patience:
            return
        step, last = self._first + seen.began, seen.last_finite_loss
        told = "none was finite before" if math.isnan(last) else f"the last finite loss was {last:.6g}"
        raise NonFiniteError(
            f"loss or gradient is NaN or infinite in {seen.most_in_a_row} steps in a row, from step {step} on; {told}. "
            "Lower the learning rate, add warm-up steps or the lever clip:1, take bf16 instead of fp16, or look for "
            "such numbers in the batches",
            figures={**self._counted, "step": step, "last_finite_loss": None if math.isnan(last) else last},
        )
