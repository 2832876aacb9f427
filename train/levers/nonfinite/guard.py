"""`FiniteGuard`: counts steps with NaN or infinity, and stops training after too many in a row."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback

from ....loaders.whole_numbers import require_int
from ....pipeline.errors import FacefeedError
from .counter import NonFiniteCounter, StepCounts
from .statistics import RunningStatistics


class NonFiniteError(FacefeedError):
    """Loss or gradients stay NaN or infinite; `details` holds the first such step, and the counts."""

    exit_code = 1


class FiniteGuard(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Counts optimizer steps whose loss or gradient is NaN or infinite, and stops after `patience` in a row.

    patience: consecutive steps after which `NonFiniteError` is raised, on all ranks at the same step; it names the
    first of them and the last finite loss. Under fp16 the scaler skips steps whose gradient overflows, and reduces its
    scale; these steps are counted separately, and as consecutive only after a step was taken or once the scale is 1.
    `metrics` returns the counts, which checkpoints keep. On a GPU, and with several ranks, the counts are read every
    `patience` steps and for each checkpoint, since that synchronises: training may stop as many steps late. Costs a
    pass over the gradients. Under ZeRO only DeepSpeed sees gradients, so losses and its skipped steps are counted.
    Without a scaler a non-finite step is still taken, and the weights may be lost from there. BatchNorm's running
    statistics are kept as they were before a batch that makes one of them NaN or infinite; such batches are counted
    too.
    """

    name: ClassVar[str] = "finite"

    def __init__(self, *, patience: int = 10) -> None:
        self.patience = require_int("patience", patience, minimum=1, example=10)
        self._counts = {"nonfinite_steps": 0, "scaler_skips": 0, "kept_statistics": 0}
        self._counter: NonFiniteCounter | None = None

    def metrics(self) -> dict[str, Any]:
        """Returns nonfinite_steps: with a non-finite loss or gradient; scaler_skips: skipped by fp16's scaler alone.

        kept_statistics: batches that BatchNorm's running statistics were protected from, maximum over ranks.
        """
        return dict(self._counts)

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts."""
        return dict(self._counts)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the counts."""
        self._counts = {name: int(state_dict.get(name, 0)) for name in self._counts}

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Stores the counts of all steps before the checkpoint; on all ranks, as every save."""
        if self._counter is not None and trainer.state.fn == "fit":
            with torch.inference_mode(False):  # a validation's, in which gloo is not to be relied on
                self._collect(trainer)
            checkpoint["callbacks"][self.state_key] = self.state_dict()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Starts counting; the states of the scaler and of DeepSpeed's engine have been restored by now."""
        device = trainer.strategy.root_device
        self._statistics = RunningStatistics(pl_module)
        self._counter = NonFiniteCounter(device, getattr(trainer.precision_plugin, "scaler", None))
        self._check_every = 1 if device.type == "cpu" and trainer.world_size == 1 else self.patience
        self._first_step = trainer.global_step
        self._num_steps = 0
        self._is_due = False
        self._engine_skips = _engine_skips(trainer)

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Adds the gradients, after unscaling and before clipping."""
        assert self._counter is not None
        # With offload DeepSpeed shows gradients: where fp16 overflows it skips the step, and counts it itself.
        if not _engine_scales(trainer):
            parameters = [
                parameter for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]
            ]
            self._counter.add_gradients([parameter.grad for parameter in parameters if parameter.grad is not None])
        self._is_due = True

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Adds the loss, and ends the step if the optimizer has stepped."""
        assert self._counter is not None
        self._counter.add_statistics(self._statistics.keep_finite())
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        # Lightning has divided it by the accumulated batches.
        self._counter.add_loss(loss * trainer.accumulate_grad_batches if isinstance(loss, torch.Tensor) else None)
        if not self._is_due:
            return
        self._is_due = False
        self._counter.end_step(self._num_steps)
        self._num_steps += 1
        if self._num_steps % self._check_every == 0:
            self._check(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Checks before a checkpoint is written."""
        self._check(trainer)

    def _collect(self, trainer: Any) -> StepCounts:
        """Adds what was counted since the last call, and returns it. Synchronises with the device and the ranks."""
        assert self._counter is not None
        counts, skips = self._counter.collect(trainer), _engine_skips(trainer)
        self._counts["nonfinite_steps"] += counts.nonfinite
        self._counts["scaler_skips"] += counts.skipped + skips - self._engine_skips
        self._counts["kept_statistics"] += counts.kept_statistics
        self._engine_skips = skips
        return counts

    def _check(self, trainer: Any) -> None:
        counts = self._collect(trainer)
        if counts.most_in_a_row < self.patience:
            return
        step, last_loss = self._first_step + counts.first_in_row, counts.last_finite_loss
        loss_text = "none was finite before" if math.isnan(last_loss) else f"the last finite loss was {last_loss:.6g}"
        raise NonFiniteError(
            f"loss or gradient is NaN or infinite in {counts.most_in_a_row} steps in a row, from step {step} on; "
            f"{loss_text}. Lower the learning rate, add warm-up steps or the lever clip:1, take bf16 instead of fp16, "
            "or look for such numbers in the batches",
            details={**self._counts, "step": step, "last_finite_loss": None if math.isnan(last_loss) else last_loss},
        )


def _engine_scales(trainer: Any) -> bool:
    """Returns whether DeepSpeed's engine trains in fp16, with a scale."""
    fp16_enabled = getattr(trainer.strategy.model, "fp16_enabled", None)
    return fp16_enabled is not None and bool(fp16_enabled())


def _engine_skips(trainer: Any) -> int:
    """Returns the steps that DeepSpeed's engine has skipped, in all sessions; 0 without it."""
    return int(getattr(trainer.strategy.model, "skipped_steps", 0))
