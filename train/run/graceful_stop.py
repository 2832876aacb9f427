"""What all ranks agree on at the end of a step: whether to save the run, and whether to end it so that it can go on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from .signals import Signals, StoppedTrainingError

clock = time.monotonic


class Stop(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Has all ranks know, at the end of every step, whether any of them was asked to end: `agreed` is then its signal.

    And whether it is `save_every_minutes` since the last checkpoint, by the clock of any of them: `save_is_due`. Ranks
    exchange two numbers a step, on the CPU, beside the device's work and without waiting for it. What ends a run
    after a step has to save it first: `Saving`. Between batches of validation and test, where training stands still,
    it ends here.
    """

    def __init__(self, signals: Signals, run: Path, *, save_every_minutes: float) -> None:
        self.signals = signals
        self.agreed = 0
        self.save_is_due = False
        self._save_every_seconds = 60 * save_every_minutes
        self._saved_at = 0.0
        self._run = run
        self._saved_step = 0
        self._group: Any = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Makes the ranks' own channel."""
        if trainer.world_size > 1 and self._group is None:
            self._group = torch.distributed.new_group(backend="gloo")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """After the Trainer has set its handlers; what came before them ends the run here."""
        self.signals.install()
        self.saved(trainer)
        self._exchange()
        self.end_if_agreed()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Also of a validation or test of its own, for which the Trainer sets its handlers again."""
        self.signals.install()

    on_test_start = on_validation_start

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Exchanges."""
        self._exchange()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Exchanges, and ends."""
        self._exchange()
        self.end_if_agreed()

    on_test_batch_end = on_validation_batch_end

    def saved(self, trainer: Any) -> None:
        """The run can go on from here."""
        self._saved_step, self._saved_at = trainer.global_step, clock()

    def end_if_agreed(self) -> None:
        """Raises `StoppedTrainingError`, on all ranks alike, if any was asked to end."""
        if self.agreed:
            raise StoppedTrainingError(self.agreed, self._run, self._saved_step)

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Has a second Ctrl-C, of which a Trainer makes an exit of the process, end the run with an error as well."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as left:
            if not self.signals.received:
                raise
            raise StoppedTrainingError(self.signals.received, self._run, self._saved_step) from left

    def _exchange(self) -> None:
        own = [self.signals.received, int(clock() - self._saved_at >= self._save_every_seconds)]
        if self._group is not None:
            told = torch.tensor(own, dtype=torch.int32)
            torch.distributed.all_reduce(told, op=torch.distributed.ReduceOp.MAX, group=self._group)
            own = told.tolist()
        self.agreed, self.save_is_due = own[0], bool(own[1])
