"""Throughput of a run over all its sessions: images, seconds and data stall, for the closing table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger

from ..levers.memory import peak_memory, reset_peak_memory
from ..step_images import images_in_step


class Throughput(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Counts images and time; the counts are saved in checkpoints.

    images: over all ranks. seconds: from the start of a session to its last step or validation. timed_images,
    timed_seconds: of steps that directly follow another one. An epoch's first step, which waits for workers to start,
    and time between steps (validation, checkpoints) are left out. stalls: the stall fractions that `StarvationMonitor`
    logged, one per window.
    """

    state_key: ClassVar[str] = "Pace"  # the key in checkpoints, as 0.1.0 wrote it

    def __init__(self) -> None:
        self.images = self.timed_images = 0
        self.timed_seconds = self.seconds = 0.0
        self.stalls: list[float] = []
        self.logger = StallLogger(self.stalls)
        self._started_at = self._resumed_seconds = 0.0
        self._last_step_at: float | None = None

    @property
    def images_per_second(self) -> float | None:
        """Throughput over all timed steps; None before the first."""
        return self.timed_images / self.timed_seconds if self.timed_seconds else None

    @property
    def stall(self) -> float | None:
        """Mean fraction of time that training waited for data, 0 to 1; None before the first window."""
        return sum(self.stalls) / len(self.stalls) if self.stalls else None

    def state_dict(self) -> dict[str, Any]:
        """Returns the counts."""
        return {
            "images": self.images, "timed_images": self.timed_images, "timed_seconds": self.timed_seconds,
            "seconds": self.seconds, "stalls": list(self.stalls),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the counts."""
        self.stalls[:] = state_dict["stalls"]
        self.images, self.timed_images = state_dict["images"], state_dict["timed_images"]
        self.timed_seconds = state_dict["timed_seconds"]
        self.seconds = self._resumed_seconds = state_dict["seconds"]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Starts the clock of a session, and its peaks of memory: the process may have trained before."""
        self._started_at = time.monotonic()
        reset_peak_memory()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Leaves the epoch's first step untimed."""
        self._last_step_at = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Counts a step."""
        images = images_in_step(trainer, len(batch["label"] if isinstance(batch, Mapping) else batch[1]))
        now = time.monotonic()
        self.images += images
        self._count_seconds(now)
        if self._last_step_at is not None:
            self.timed_images += images
            self.timed_seconds += now - self._last_step_at
        self._last_step_at = now

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Updates peak memory while the workers of training are alive: there may be no validation."""
        peak_memory()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Counts its time, and updates peak memory while the workers of both splits are alive."""
        peak_memory()
        self._count_seconds(time.monotonic())
        self._last_step_at = None

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Leaves a step untimed in which a checkpoint is written: this one, or the next if this one has been counted.

        Which one depends on whether the callback that saves is called before this one.
        """
        self._last_step_at = None

    def _count_seconds(self, now: float) -> None:
        self.seconds = self._resumed_seconds + now - self._started_at


class StallLogger(Logger):  # type: ignore[misc]
    """A logger that records only the stall fractions that `StarvationMonitor` logs."""

    name = version = None

    def __init__(self, stalls: list[float]) -> None:
        super().__init__()
        self._stalls = stalls

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Appends the stall fraction, if it is among the metrics."""
        if "starvation/stall" in metrics:
            self._stalls.append(float(metrics["starvation/stall"]))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Does nothing: hyperparameters are not recorded."""
