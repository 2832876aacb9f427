"""How a run shows itself: a live bar on a terminal, plain lines in a log, or JSON; always on standard error."""

from __future__ import annotations

import json
import logging
import math
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from ...pipeline.console import duration_text
from .throughput import Pace

_LOG_SECONDS, _JSON_SECONDS, _LOOK_SECONDS = 30.0, 5.0, 0.5


class _TwoLines(Bar):
    """A bar, and below it a sentence that would not fit beside it on 80 columns."""

    sentence = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """What rich draws at each refresh."""
        yield from super().get_renderables()
        yield Text(f"  {self.sentence}")


class Progress(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Shows steps, loss, speed, waiting and what is left, and what each validation came to; on rank 0 alone.

    console: None shows nothing. as_json: where it is no terminal, one JSON object a line instead of text.
    """

    def __init__(self, console: Console | None, pace: Pace, run: str, *, as_json: bool = False) -> None:
        self._console, self._pace, self._run = console, pace, run
        self._as_json = as_json and console is not None and not console.is_terminal
        self._bar: _TwoLines | None = None
        self._shown_at = 0.0
        self._began: float | None = None
        self._first_step = self._total_steps = 0

    def say(self, text: str, **event: Any) -> None:
        """One sentence for people, or its figures for a program; whatever a name in it looks like to rich."""
        if self._console is not None:
            told = json.dumps(event) if self._as_json else text
            self._console.print(told, markup=False, emoji=False, highlight=False)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keeps Lightning's advice back; of warnings only what concerns the run is said."""
        loud = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
        before = [one.level for one in loud]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message=".*training waits for data|warmup_steps=|not saved: ")
            warnings.showwarning = self._warned
            for one in loud:
                one.setLevel(logging.ERROR)
            try:
                yield
            finally:
                for one, level in zip(loud, before, strict=True):
                    one.setLevel(level)

    @contextmanager
    def showing(self, *, first: bool) -> Iterator[None]:
        """From the start of the workers to the last test; `first`: whether this is the rank that shows itself."""
        if not first:
            self._console = None
        if self._console is not None and self._console.is_terminal:
            columns = SpinnerColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("steps"), TimeElapsedColumn()
            self._bar = _TwoLines(*columns, console=self._console, refresh_per_second=4)
            self._bar.add_task("train", total=None)
            self._bar.sentence = "starting"
            self._bar.start()
        with self.quiet():
            try:
                yield
            finally:
                self._stop()

    def on_signal(self, number: int) -> None:
        """Says that it was heard; comes in a signal's handler, where nothing may be printed."""
        if self._bar is not None:
            self._bar.sentence = "stopping: this step is finished and saved first (Ctrl-C again ends at once)"

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Says where it begins, or goes on."""
        self._first_step = trainer.global_step
        self._began = None
        self._total_steps = int(trainer.estimated_stepping_batches)
        if self._first_step:
            self.say(
                f"{self._run}: goes on after step {self._first_step:,} of {self._total_steps:,}",
                event="resumed", step=self._first_step, steps=self._total_steps,
            )  # fmt: skip
        self._advance(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Shows it, if the last time is long enough ago: reading the loss waits for the device."""
        if self._began is None:  # an eta is of the steps after the first, which waits for workers and compilers
            self._began, self._first_step = time.monotonic(), trainer.global_step
        wait = _LOOK_SECONDS if self._bar is not None else _JSON_SECONDS if self._as_json else _LOG_SECONDS
        if self._console is not None and time.monotonic() - self._shown_at >= wait:
            self._show(trainer, float(outputs["loss"]))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Says so."""
        self._advance(trainer)
        if self._bar is not None:
            self._bar.sentence = "validating"

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Says what it came to."""
        figures = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
        plain = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        named = {"val/loss": "val loss", "val/auc": "AUC", "val/video_auc": "AUC of videos", "val/accuracy": "accuracy"}
        told = ", ".join(f"{text} {figures[name]:.3f}" for name, text in named.items() if name in figures)
        self.say(
            f"epoch {trainer.current_epoch + 1}, step {trainer.global_step:,}: {told or 'nothing to validate on'}",
            event="validated", epoch=trainer.current_epoch, step=trainer.global_step, **plain,
        )  # fmt: skip

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """Says so."""
        if self._bar is not None:
            self._bar.sentence = "testing the best weights"

    def _show(self, trainer: Any, loss: float) -> None:
        self._shown_at = time.monotonic()
        done = trainer.global_step - self._first_step
        left = self._total_steps - trainer.global_step
        event = {
            "event": "progress", "epoch": trainer.current_epoch, "step": trainer.global_step,
            "steps": self._total_steps, "loss": loss if math.isfinite(loss) else None,
            "images_per_second": self._pace.images_per_second,
            "stall": self._pace.stalls[-1] if self._pace.stalls else None,
            "eta_seconds": round(left * (self._shown_at - (self._began or 0.0)) / done) if done else None,
        }  # fmt: skip
        parts = _parts(event, trainer)
        if self._bar is None:
            self.say(f"step {event['step']:,} of {event['steps']:,}: {', '.join(parts)}", **event)
            return
        self._bar.sentence = "  ".join(parts)
        self._advance(trainer)

    def _advance(self, trainer: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=trainer.global_step, total=self._total_steps)

    def _warned(self, message: Any, *_: Any, **__: Any) -> None:
        self.say(str(message), event="warning", warning=str(message))

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.sentence = ""
            self._bar.stop()
        self._bar = None


def _parts(event: dict[str, Any], trainer: Any) -> list[str]:
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
