"""Progress of a run on standard error: a live bar on a terminal, plain lines in a log, or JSON lines."""

from __future__ import annotations

import json
import logging
import math
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback
from rich.console import Console
from torch import Tensor

from ...pipeline.console import StatusBar, duration_text
from ..lightning_internals import final_step
from ..warning import TrainingWarning
from .checkpointer import logged_metrics
from .throughput import Throughput

_LOG_SECONDS, _JSON_SECONDS, _BAR_SECONDS = 30.0, 5.0, 0.5


class Progress(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Shows steps, loss, throughput, data stall, remaining time and validation metrics; on rank 0 only.

    console: None shows nothing. as_json: print JSON lines instead of text, unless the console is a terminal.
    """

    def __init__(self, console: Console | None, throughput: Throughput, run: str, *, as_json: bool = False) -> None:
        self._console, self._throughput, self._run = console, throughput, run
        self._as_json = as_json and console is not None and not console.is_terminal
        self._bar: StatusBar | None = None
        self._shown_at = 0.0
        self._timed_since: float | None = None
        self._first_step = self._total_steps = 0
        self._loss_sum: Tensor | float = 0.0
        self._num_losses = 0

    @property
    def state_key(self) -> str:
        """Not the class's name, which a callback of the user's own may have too."""
        return "TrainingLoss"

    def state_dict(self) -> dict[str, Any]:
        """Returns the sum and the number of training losses since the last validation."""
        return {"loss_sum": float(self._loss_sum), "num_losses": self._num_losses}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores them."""
        self._loss_sum, self._num_losses = state_dict["loss_sum"], state_dict["num_losses"]

    def report(self, text: str, **event: Any) -> None:
        """Prints `text`, or `event` as JSON; never interprets rich markup in names."""
        if self._console is not None:
            line = json.dumps(event) if self._as_json else text
            self._console.print(line, markup=False, emoji=False, highlight=False)

    @contextmanager
    def suppress_lightning(self) -> Iterator[None]:
        """Context that silences Lightning's messages, and shows no warnings but `TrainingWarning`s."""
        loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
        levels = [logger.level for logger in loggers]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", TrainingWarning)
            warnings.showwarning = self._show_warning
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            try:
                yield
            finally:
                for logger, level in zip(loggers, levels, strict=True):
                    logger.setLevel(level)

    @contextmanager
    def live(self, *, first: bool) -> Iterator[None]:
        """Context that shows progress until it is left; `first`: whether this is rank 0."""
        if not first:
            self._console = None
        if self._console is not None and self._console.is_terminal:
            self._bar = StatusBar(self._console, "steps", refresh_per_second=4)
            self._bar.add_task("train", total=None)
            self._bar.status_line = "starting"
            self._bar.start()
        with self.suppress_lightning():
            try:
                yield
            finally:
                self._stop_bar()

    def on_signal(self, number: int) -> None:
        """Updates the status line; called in a signal handler, where printing is not safe."""
        if self._bar is not None:
            self._bar.status_line = "stopping: this step is finished and saved first (Ctrl-C again ends at once)"

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Reports from which step the run is resumed."""
        self._first_step = trainer.global_step
        self._timed_since = None
        self._total_steps = final_step(trainer, *trainer.datamodule.position)
        if self._first_step:
            self.report(
                f"{self._run}: resumes after step {self._first_step:,} of {self._total_steps:,}",
                event="resumed", step=self._first_step, steps=self._total_steps,
            )  # fmt: skip
        self._advance(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Shows the step, at most once per interval: reading the loss waits for the device."""
        loss = outputs["loss"].detach() * trainer.accumulate_grad_batches  # Lightning has divided it by them
        self._loss_sum = self._loss_sum + loss.float()  # on the device: no wait for it
        self._num_losses += 1
        if self._timed_since is None:  # the ETA excludes the first step, which waits for workers and compilation
            self._timed_since, self._first_step = time.monotonic(), trainer.global_step
        interval_seconds = _BAR_SECONDS if self._bar is not None else _JSON_SECONDS if self._as_json else _LOG_SECONDS
        if self._console is not None and time.monotonic() - self._shown_at >= interval_seconds:
            self._show(trainer, float(loss))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Shows that validation runs."""
        self._advance(trainer)
        if self._bar is not None:
            self._bar.status_line = "validating"

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports the mean training loss since the last validation, on this rank, and the metrics."""
        metrics = logged_metrics(trainer, "val")
        if self._num_losses:  # none where weights are validated that were trained before
            metrics = {"train/loss": float(self._loss_sum) / self._num_losses, **metrics}
            self._loss_sum, self._num_losses = 0.0, 0
        finite_metrics = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        labels = {
            "train/loss": "train loss",
            "val/loss": "val loss",
            "val/auc": "AUC",
            "val/video_auc": "AUC of videos",
            "val/accuracy": "accuracy",
        }
        summary = ", ".join(f"{text} {metrics[name]:.3f}" for name, text in labels.items() if name in metrics)
        self.report(
            f"epoch {trainer.current_epoch + 1}, step {trainer.global_step:,}: {summary or 'nothing to validate on'}",
            event="validated", epoch=trainer.current_epoch, step=trainer.global_step, **finite_metrics,
        )  # fmt: skip

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Shows that the test runs."""
        if self._bar is not None:
            self._bar.status_line = "testing"

    def _show(self, trainer: Any, loss: float) -> None:
        self._shown_at = time.monotonic()
        steps_done = trainer.global_step - self._first_step
        remaining_steps = self._total_steps - trainer.global_step
        elapsed = self._shown_at - (self._timed_since or 0.0)
        event = {
            "event": "progress", "epoch": trainer.current_epoch, "step": trainer.global_step,
            "steps": self._total_steps, "loss": loss if math.isfinite(loss) else None,
            "images_per_second": self._throughput.images_per_second,
            "stall": self._throughput.stalls[-1] if self._throughput.stalls else None,
            "eta_seconds": round(remaining_steps * elapsed / steps_done) if steps_done else None,
        }  # fmt: skip
        parts = _status_parts(event, trainer)
        if self._bar is None:
            self.report(f"step {event['step']:,} of {event['steps']:,}: {', '.join(parts)}", **event)
            return
        self._bar.status_line = "  ".join(parts)
        self._advance(trainer)

    def _advance(self, trainer: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=trainer.global_step, total=self._total_steps)

    def _show_warning(self, message: Any, *_: Any, **__: Any) -> None:
        self.report(str(message), event="warning", warning=str(message))

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.status_line = ""
            self._bar.stop()
        self._bar = None


def _status_parts(event: dict[str, Any], trainer: Any) -> list[str]:
    parts = [f"epoch {event['epoch'] + 1} of {trainer.max_epochs}"]
    if event["loss"] is not None:
        parts.append(f"loss {event['loss']:.3f}")
    if event["images_per_second"]:
        parts.append(f"{event['images_per_second']:,.0f} images/s")
    if event["stall"] is not None:
        parts.append(f"stall {event['stall']:.1%}")
    if event["eta_seconds"]:
        parts.append(f"{duration_text(event['eta_seconds'])} left")
    return parts
