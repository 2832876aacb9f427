"""How fast a run goes, over all its sessions: what the closing table says of images, steps, time and waiting."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback
from lightning.pytorch.loggers import Logger

from ..levers import peak_memory


class Pace(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Counts, and carries its counts through checkpoints.

    images: of all ranks. timed_images, timed_seconds: those of steps that began at another's end, and how long these
    took; an epoch's first step, which waits for workers to start, and what lies between steps and epochs (validation,
    checkpoints) are left out. stalls: the shares that `StarvationMonitor` logged, one a window.
    """

    def __init__(self) -> None:
        self.images = self.timed_images = 0
        self.timed_seconds = self.seconds = 0.0
        self.stalls: list[float] = []
        self.logger = Stalls(self.stalls)
        self._began = self._resumed_seconds = 0.0
        self._latest: float | None = None

    @property
    def images_per_second(self) -> float | None:
        """Over all timed steps; None before there is one."""
        return self.timed_images / self.timed_seconds if self.timed_seconds else None

    @property
    def stall(self) -> float | None:
        """The mean share of the time in which training waited for data, 0 to 1; None before the first window."""
        return sum(self.stalls) / len(self.stalls) if self.stalls else None

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {
            "images": self.images, "timed_images": self.timed_images, "timed_seconds": self.timed_seconds,
            "seconds": self.seconds, "stalls": list(self.stalls),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from them."""
        self.stalls[:] = state_dict["stalls"]
        self.images, self.timed_images = state_dict["images"], state_dict["timed_images"]
        self.timed_seconds, self._resumed_seconds = state_dict["timed_seconds"], state_dict["seconds"]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """A session begins."""
        self._began = time.monotonic()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """The next step is an epoch's first."""
        self._latest = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step is done."""
        now = time.monotonic()
        images = trainer.world_size * len(batch["label"] if isinstance(batch, Mapping) else batch[1])
        self.images += images
        self.seconds = self._resumed_seconds + now - self._began
        if self._latest is not None:
            self.timed_images += images
            self.timed_seconds += now - self._latest
        self._latest = now

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Takes note of memory while both splits' workers live."""
        peak_memory()
        self._latest = None


class Stalls(Logger):  # type: ignore[misc]
    """Takes from all that is logged what `StarvationMonitor` says."""

    name = version = None

    def __init__(self, stalls: list[float]) -> None:
        super().__init__()
        self._stalls = stalls

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Keeps the stall."""
        if "starvation/stall" in metrics:
            self._stalls.append(float(metrics["starvation/stall"]))

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Nothing to keep."""
