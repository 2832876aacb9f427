"""The clock of a rung: how long the steps of a fit take once it runs evenly, and what they waited for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback

from ....loaders.profiler.measure.recording import count_images
from ...levers import peak_memory
from ...starvation.data_wait import DataWaitTimer, attach, detach

clock = time.perf_counter

_SETTLING_STEPS = 5
"""In which kernels are chosen, memory is taken and the optimizer's state is made."""
_SLOW_TURNS, _SLOW_STEPS, _SLOW_SECONDS = 2, 4, 120.0


@dataclass(frozen=True)
class Length:
    """How much of a fit is measured.

    steps: None for an epoch. slow: instead, a few whole turns of the loader's workers, each of which makes one batch at
    a time, and none more after `_SLOW_SECONDS`: for batches that take as long as that.
    """

    steps: int | None = None
    slow: bool = False


class Stopwatch(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Stops a fit after a warm-up and the steps that are measured; the Trainer validates then, where it can, and ends.

    The warm-up is a few steps and as many as batches can be ready at a fit's start, so that afterwards the loader has
    to keep up; where an epoch's end falls into the measured steps, it has seen one.

    tell: is called after each step, of training and of the validation, with the training's steps done and wanted.
    """

    def __init__(self, length: Length, tell: Callable[[int, int], None] = lambda _done, _wanted: None) -> None:
        self.length, self.tell = length, tell
        self.seconds = self.warm_up_seconds = self.ending_seconds = 0.0
        self.steps = self.samples = self._done = self._warm_up = self._wanted = 0
        self._opened = self._started = self._stopped = 0.0
        self._turn = 1
        self.steps_per_epoch: int | None = None
        self.stall_share: float | None = None
        self._losses: list[torch.Tensor] = []

    @property
    def loss(self) -> float | None:
        """Mean over the measured steps; None where they hand none out."""
        return float(torch.stack(self._losses).float().mean()) if self._losses else None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to look."""
        self._wait_timer = DataWaitTimer(trainer)
        attach(trainer.profiler, self._wait_timer)
        self._opened = clock()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Lays down how many steps there will be: the loader and its epoch are known now."""
        loader, endless = trainer.train_dataloader, math.isinf(trainer.num_training_batches)
        self.steps_per_epoch = None if endless else int(trainer.num_training_batches)
        self._turn = max(int(getattr(loader, "num_workers", 0) or 0), 1)
        ahead = int(getattr(loader, "prefetch_factor", 0) or 0) * self._turn
        if self.length.slow:
            self._warm_up, self._wanted = max(ahead, 1), max(_SLOW_TURNS * self._turn, _SLOW_STEPS)
        else:
            self._warm_up, self._wanted = ahead + _SETTLING_STEPS, self.length.steps or self.steps_per_epoch or 1
            if self.length.steps and self.steps_per_epoch and self._warm_up + self._wanted > self.steps_per_epoch:
                self._warm_up = max(self._warm_up, self.steps_per_epoch)
        self.tell(0, self._warm_up + self._wanted)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends a step."""
        self._wait_timer.step_ended()
        self._done += 1
        self.tell(self._done, self._warm_up + self._wanted)
        if self._done <= self._warm_up:
            if self._done == self._warm_up:
                self._start(pl_module)
            return
        self.steps += 1
        self.samples += max(count_images(batch), 1) * trainer.world_size
        loss = outputs.get("loss") if isinstance(outputs, dict) else None
        if isinstance(loss, torch.Tensor):
            self._losses.append(loss.detach() * trainer.accumulate_grad_batches)  # Lightning divides by it
        if self.steps >= self._wanted or self._is_over_time():
            self._stop(trainer, pl_module)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Says that it still goes on."""
        self.tell(self._done, self._warm_up + self._wanted)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """What comes now, as the saving of a checkpoint, belongs to an epoch's end."""
        self._stopped = clock()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """An epoch's end is over."""
        if self.steps:
            self.ending_seconds = clock() - self._stopped

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Looks no longer: after an error Lightning does not call `teardown`."""
        detach(trainer.profiler)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Looks no longer."""
        detach(trainer.profiler)

    def _start(self, module: Any) -> None:
        _wait_for(module.device)
        self._wait_timer.pop_window()
        self._started = clock()
        self.warm_up_seconds = self._started - self._opened

    def _stop(self, trainer: Any, module: Any) -> None:
        _wait_for(module.device)
        self._stopped = clock()
        self.seconds = self._stopped - self._started
        stall = self._wait_timer.pop_window()[0]
        self.stall_share = None if math.isnan(stall) else stall
        peak_memory()  # looks at the workers while they live
        trainer.should_stop = True
        trainer.check_val_every_n_epoch = 1

    def _is_over_time(self) -> bool:
        return self.length.slow and self.steps % self._turn == 0 and clock() - self._started > _SLOW_SECONDS


def _wait_for(device: torch.device) -> None:
    """Until the device has done all that was asked of it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
