"""`Stopwatch`: a callback that times the steps of a fit after a warm-up, and their data stall."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback

from ....loaders.profiler.measure.recording import count_images
from ...levers import peak_memory
from ...lightning_internals import validation_metrics
from ...starvation.data_wait import DataWaitTimer, attach, detach
from ...step_images import images_in_step
from .energy import Energy, EnergyMeter
from .schedule import Epoch, MeasuredLength, window

clock = time.perf_counter

_SLOW_SECONDS = 120.0
"""After which no further round of slow batches is begun."""


class Stopwatch(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Stops a fit after a warm-up and the measured steps; the Trainer then validates, if it can, and ends.

    on_step: called after each step of training and validation, with the training steps done and their total.
    metrics: logged by the validation; empty without one. samples: in the measured `steps`, and trained_samples and
    updates in them and the warm-up: samples over all ranks, and steps of the optimizer. loss: mean over the measured
    samples of all ranks; None if the steps return none. stall_share: of the rank that waits longest; None if unknown.
    energy: of the devices of all ranks in the measured steps.
    """

    def __init__(
        self, length: MeasuredLength, on_step: Callable[[int, int], None] = lambda _steps_done, _measured_steps: None
    ) -> None:
        self.length, self.on_step = length, on_step
        self.seconds = self.warm_up_seconds = self.ending_seconds = 0.0
        self.steps = self.samples = self.trained_samples = self.updates = self.warm_up_steps = 0
        self._steps_done = self._measured_steps = 0
        self._fit_started_at = self._measuring_since = self._stopped_at = 0.0
        self._round_steps = 1
        self.loss: float | None = None
        self.energy = Energy()
        self.steps_per_epoch: int | None = None
        self.stall_share: float | None = None
        self.metrics: dict[str, float] = {}
        self._losses: list[torch.Tensor] = []  # of this rank's samples, summed by step
        self._loss_samples = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attaches the wait timer to the Trainer's profiler."""
        self._wait_timer = DataWaitTimer(trainer)
        attach(trainer.profiler, self._wait_timer)
        self._fit_started_at = clock()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Decides on the number of steps; loader and epoch length are known now. Raises what `window` raises."""
        loader, is_endless = trainer.train_dataloader, math.isinf(trainer.num_training_batches)
        self.steps_per_epoch = None if is_endless else int(trainer.num_training_batches)
        self._round_steps = max(int(getattr(loader, "num_workers", 0) or 0), 1)
        epoch = Epoch(
            steps=self.steps_per_epoch, workers=self._round_steps, ranks=trainer.world_size,
            prefetched=int(getattr(loader, "prefetch_factor", 0) or 0) * self._round_steps,
        )  # fmt: skip
        self.warm_up_steps, self._measured_steps = window(self.length, epoch)
        self._energy_meter = EnergyMeter(_uuid(pl_module.device))
        self.on_step(0, self.warm_up_steps + self._measured_steps)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Counts a step, and starts or stops the measurement."""
        self._wait_timer.step_ended()
        self._steps_done += 1
        self.on_step(self._steps_done, self.warm_up_steps + self._measured_steps)
        count = max(count_images(batch), 1)
        samples = images_in_step(trainer, count)
        self.trained_samples += samples
        if self._steps_done <= self.warm_up_steps:
            if self._steps_done == self.warm_up_steps:
                self._start(pl_module)
            return
        self.steps += 1
        self.samples += samples
        loss = outputs.get("loss") if isinstance(outputs, dict) else None
        if isinstance(loss, torch.Tensor):
            self._losses.append(loss.detach() * (trainer.accumulate_grad_batches * count))  # Lightning divides by it
            self._loss_samples += count
        if self.steps >= self._measured_steps or self._is_over_time():
            self._stop(trainer, pl_module)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Reports that the process is alive."""
        self.on_step(self._steps_done, self.warm_up_steps + self._measured_steps)

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
        self._energy_meter.start()
        self._measuring_since = clock()
        self.warm_up_seconds = self._measuring_since - self._fit_started_at

    def _stop(self, trainer: Any, module: Any) -> None:
        _synchronize(module.device)
        self._stopped_at = clock()
        self.seconds = self._stopped_at - self._measuring_since
        self.energy = _sum_over_ranks(trainer, self._energy_meter.stop())
        self.stall_share = _most_of_ranks(trainer, self._wait_timer.pop_window().stall)
        peak_memory()  # while the workers are alive
        self.updates = trainer.global_step
        self.loss = self._mean_loss(trainer)
        trainer.should_stop = True
        trainer.check_val_every_n_epoch = 1

    def _mean_loss(self, trainer: Any) -> float | None:
        """Returns the mean over all ranks. A collective call."""
        total = torch.stack(self._losses).double().sum() if self._losses else torch.zeros((), dtype=torch.float64)
        sums = [over_ranks(trainer, float(number), "sum") for number in (total, self._loss_samples)]
        return sums[0] / sums[1] if sums[1] else None

    def _is_over_time(self) -> bool:
        return (
            self.length.slow and self.steps % self._round_steps == 0 and clock() - self._measuring_since > _SLOW_SECONDS
        )


def _uuid(device: torch.device) -> str | None:
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else None


def _most_of_ranks(trainer: Any, stall: float) -> float | None:
    """Returns the stall of the rank that waits longest, for which all others wait; None without any. Collective."""
    most = over_ranks(trainer, -1.0 if math.isnan(stall) else stall, "max")
    return None if most < 0 else most


def _sum_over_ranks(trainer: Any, energy: Energy) -> Energy:
    """Returns the energy of all ranks' devices; unknown where one of them is. A collective call."""
    joules = over_ranks(trainer, math.nan if energy.joules is None else energy.joules, "sum")
    if math.isnan(joules):
        return Energy(reason=energy.reason or "not known for the device of another rank")
    return Energy(joules=joules)


def over_ranks(trainer: Any, number: float, operation: str) -> float:
    """Returns the "sum" or "max" of a number of each rank. A collective call."""
    tensor = torch.tensor(number, dtype=torch.float64, device=trainer.strategy.root_device)
    return float(trainer.strategy.reduce(tensor, reduce_op=operation))


def _synchronize(device: torch.device) -> None:
    """Synchronises with the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
