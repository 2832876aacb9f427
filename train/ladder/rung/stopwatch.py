"""`Stopwatch`: a callback that times the steps of a fit after a warm-up, and their data stall."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback

from ....loaders.profiler.measure.recording import count_images
from ....pipeline.errors import UsageError
from ...levers import peak_memory
from ...lightning_internals import validation_metrics
from ...starvation.data_wait import DataWaitTimer, attach, detach
from ...step_images import images_in_step

clock = time.perf_counter

_SETTLING_STEPS = 5
"""Warm-up steps in which kernels are selected, memory is allocated and optimizer state is created."""
_SLOW_ROUNDS, _SLOW_STEPS, _SLOW_SECONDS = 2, 4, 120.0


@dataclass(frozen=True)
class MeasuredLength:
    """How many steps of a fit are measured.

    steps: None for an epoch. slow: instead of `steps`, a few rounds of one batch per loader worker, and no further
    round after `_SLOW_SECONDS`; for batches that take very long.
    """

    steps: int | None = None
    slow: bool = False


@dataclass(frozen=True)
class OptimizerSchedule:
    """After which steps of a fit the optimizer steps: every `accumulated` batches of an epoch, and at its end.

    steps_per_epoch: None where it is endless.
    """

    accumulated: int
    steps_per_epoch: int | None

    def window(self, warm_up_steps: int, measured_steps: int) -> tuple[int, int]:
        """Returns the steps of the warm-up and the measured ones, raised so that both end with an optimizer step.

        >>> OptimizerSchedule(32, 1000).window(5, 20), OptimizerSchedule(4, 10).window(5, 10)
        ((32, 32), (10, 10))
        """
        epoch = self.steps_per_epoch or math.inf
        group = int(min(self.accumulated, epoch))
        warm_up_steps = _rounded_up(warm_up_steps, group)
        if measured_steps != epoch:
            measured_steps = _rounded_up(measured_steps, group)
        if warm_up_steps + measured_steps > epoch:
            warm_up_steps = self._next_end(max(warm_up_steps, int(epoch)))
        return warm_up_steps, self._next_end(warm_up_steps + measured_steps) - warm_up_steps

    def _next_end(self, step: int) -> int:
        """Returns the first step from `step` on that the optimizer steps after."""
        if self.steps_per_epoch is None:
            return _rounded_up(step, self.accumulated)
        epochs, in_epoch = divmod(step, self.steps_per_epoch)
        return epochs * self.steps_per_epoch + min(_rounded_up(in_epoch, self.accumulated), self.steps_per_epoch)


class Stopwatch(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Stops a fit after a warm-up and the measured steps; the Trainer then validates, if it can, and ends.

    The warm-up is a few steps, plus the batches that may be prefetched at a fit's start, so that afterwards the loader
    has to keep up. If the measured steps contain an epoch's end, so does the warm-up. Where batches are accumulated,
    both end with an optimizer step, so that each measured one has all its batches.

    on_step: called after each step of training and validation, with the training steps done and their total.
    metrics: logged by the validation; empty without one.
    """

    def __init__(
        self, length: MeasuredLength, on_step: Callable[[int, int], None] = lambda _steps_done, _measured_steps: None
    ) -> None:
        self.length, self.on_step = length, on_step
        self.seconds = self.warm_up_seconds = self.ending_seconds = 0.0
        self.steps = self.samples = self._steps_done = self._warm_up_steps = self._measured_steps = 0
        self._fit_started_at = self._measuring_since = self._stopped_at = 0.0
        self._round_steps = 1
        self.steps_per_epoch: int | None = None
        self.stall_share: float | None = None
        self.metrics: dict[str, float] = {}
        self._losses: list[torch.Tensor] = []

    @property
    def loss(self) -> float | None:
        """Mean loss over the measured steps; None if the steps return none."""
        return float(torch.stack(self._losses).float().mean()) if self._losses else None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attaches the wait timer to the Trainer's profiler."""
        self._wait_timer = DataWaitTimer(trainer)
        attach(trainer.profiler, self._wait_timer)
        self._fit_started_at = clock()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Decides on the number of steps; loader and epoch length are known now.

        Raises `UsageError` where an epoch is to be measured, but is endless.
        """
        loader, is_endless = trainer.train_dataloader, math.isinf(trainer.num_training_batches)
        self.steps_per_epoch = None if is_endless else int(trainer.num_training_batches)
        self._round_steps = max(int(getattr(loader, "num_workers", 0) or 0), 1)
        prefetched = int(getattr(loader, "prefetch_factor", 0) or 0) * self._round_steps
        if self.length.slow:
            self._warm_up_steps, self._measured_steps = (
                max(prefetched, 1),
                max(_SLOW_ROUNDS * self._round_steps, _SLOW_STEPS),
            )
        else:
            measured_steps = self.length.steps or self.steps_per_epoch
            if measured_steps is None:
                raise UsageError("--steps epoch: the module's loader has no length; take --steps 20")
            schedule = OptimizerSchedule(trainer.accumulate_grad_batches, self.steps_per_epoch)
            self._warm_up_steps, self._measured_steps = schedule.window(prefetched + _SETTLING_STEPS, measured_steps)
        self.on_step(0, self._warm_up_steps + self._measured_steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Counts a step, and starts or stops the measurement."""
        self._wait_timer.step_ended()
        self._steps_done += 1
        self.on_step(self._steps_done, self._warm_up_steps + self._measured_steps)
        if self._steps_done <= self._warm_up_steps:
            if self._steps_done == self._warm_up_steps:
                self._start(pl_module)
            return
        self.steps += 1
        self.samples += images_in_step(trainer, max(count_images(batch), 1))
        loss = outputs.get("loss") if isinstance(outputs, dict) else None
        if isinstance(loss, torch.Tensor):
            self._losses.append(loss.detach() * trainer.accumulate_grad_batches)  # Lightning divides by it
        if self.steps >= self._measured_steps or self._is_over_time():
            self._stop(trainer, pl_module)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Reports that the process is alive."""
        self.on_step(self._steps_done, self._warm_up_steps + self._measured_steps)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Keeps the validation's metrics, and starts timing the epoch's end, such as saving a checkpoint."""
        self.metrics = validation_metrics(trainer)
        self._stopped_at = clock()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stops timing the epoch's end."""
        if self.steps:
            self.ending_seconds = clock() - self._stopped_at

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Detaches the timer: after an error Lightning does not call `teardown`."""
        detach(trainer.profiler)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Detaches the timer."""
        detach(trainer.profiler)

    def _start(self, module: Any) -> None:
        _synchronize(module.device)
        self._wait_timer.pop_window()
        self._measuring_since = clock()
        self.warm_up_seconds = self._measuring_since - self._fit_started_at

    def _stop(self, trainer: Any, module: Any) -> None:
        _synchronize(module.device)
        self._stopped_at = clock()
        self.seconds = self._stopped_at - self._measuring_since
        stall = self._wait_timer.pop_window().stall
        self.stall_share = None if math.isnan(stall) else stall
        peak_memory()  # while the workers are alive
        trainer.should_stop = True
        trainer.check_val_every_n_epoch = 1

    def _is_over_time(self) -> bool:
        return (
            self.length.slow and self.steps % self._round_steps == 0 and clock() - self._measuring_since > _SLOW_SECONDS
        )


def _rounded_up(steps: int, group: int) -> int:
    return math.ceil(steps / group) * group


def _synchronize(device: torch.device) -> None:
    """Synchronises with the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
