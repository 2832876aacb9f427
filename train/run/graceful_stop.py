"""Agreement of all ranks, at the end of each step, on saving a checkpoint and on stopping."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from .signals import Signals, StoppedTrainingError

clock = time.monotonic


class GracefulStop(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Agrees over all ranks, at the end of every step, on stopping and on saving.

    agreed_signal: number of the signal that any rank received, else 0. save_is_due: whether `save_every_minutes` have
    passed since the last checkpoint was begun, by the clock of any rank. save_has_failed: whether the write of one has
    failed on any rank. last_saved_step: the step of the latest that is in place, as the first rank knows it; None
    before a run that has one has loaded it. before_stop: called with the Trainer, on all ranks, before the run is
    ended. own_save_has_failed: whether a write has failed on this rank. Ranks exchange three integers a step over gloo,
    without waiting for the device. After a training step `RunCheckpointer` saves and then ends the run; between batches
    of validation and test, which change no weights, the run ends here.
    """

    def __init__(self, signals: Signals, run: Path, *, save_every_minutes: float, is_resumed: bool = False) -> None:
        self.signals = signals
        self.agreed_signal = 0
        self.save_is_due = self.save_has_failed = False
        self._save_every_seconds = 60 * save_every_minutes
        self._last_saved_at = 0.0
        self._run = run
        self.last_saved_step: int | None = None if is_resumed else 0
        self.before_stop: Callable[[Any], None] = lambda _: None
        self.own_save_has_failed: Callable[[], bool] = lambda: False
        self._group: Any = None

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Records the step of the checkpoint that is resumed; where no step is left, no training starts."""
        if trainer.state.fn == "fit":
            self.last_saved_step = checkpoint["global_step"]

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Creates a gloo process group for the exchange."""
        if trainer.world_size > 1 and self._group is None:
            self._group = torch.distributed.new_group(backend="gloo")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Installs the handlers again, since the Trainer has set its own; stops if a signal has come already."""
        self.signals.install()
        self.last_saved_step = trainer.global_step
        self.record_saving()
        self._all_reduce()
        self.raise_if_agreed(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Installs the handlers again: the Trainer sets its own for a separate validation or test too."""
        self.signals.install()

    on_test_start = on_validation_start

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Updates `agreed_signal`, `save_is_due` and `save_has_failed`."""
        self._all_reduce()

    def on_validation_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Updates them, and ends the run if a signal was received."""
        self._all_reduce()
        self.raise_if_agreed(trainer)

    on_test_batch_end = on_validation_batch_end

    def record_saving(self) -> None:
        """Records that a checkpoint is being written now."""
        self._last_saved_at = clock()

    def record_saved(self, step: int) -> None:
        """Records that the checkpoint of this step is in place."""
        self.last_saved_step = step

    def raise_if_agreed(self, trainer: Any) -> None:
        """Raises `StoppedTrainingError`, on all ranks alike, if any has received a signal; after `before_stop`."""
        if self.agreed_signal:
            self.before_stop(trainer)
            raise StoppedTrainingError(self.agreed_signal, self._run, self.last_saved_step)

    @contextmanager
    def converting_interrupts(self) -> Iterator[None]:
        """Context that converts a second Ctrl-C, on which a Trainer exits the process, to `StoppedTrainingError`."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as interrupt:
            if not self.signals.received:
                raise
            raise StoppedTrainingError(self.signals.received, self._run, self.last_saved_step) from interrupt

    def _all_reduce(self) -> None:
        is_due = clock() - self._last_saved_at >= self._save_every_seconds
        flags = [self.signals.received, int(is_due), int(self.own_save_has_failed())]
        if self._group is not None:
            with torch.inference_mode(False):  # a validation's, in which gloo is not to be relied on
                reduced = torch.tensor(flags, dtype=torch.int32)
                torch.distributed.all_reduce(reduced, op=torch.distributed.ReduceOp.MAX, group=self._group)
                flags = reduced.tolist()
        self.agreed_signal, self.save_is_due, self.save_has_failed = flags[0], bool(flags[1]), bool(flags[2])
