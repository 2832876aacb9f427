"""Ending a run before its end, so that it can go on: what all ranks agree on at the end of a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback

from .signals import Signals, StoppedTrainingError


class Stop(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Has all ranks know, at the end of every step, whether any of them was asked to end: `agreed` is then its signal.

    Ranks exchange one number a step, on the CPU, beside the device's work and without waiting for it. What ends a run
    after a step has to save it first: `Saving`. Between batches of validation and test, where training stands still,
    it ends here.
    """

    def __init__(self, signals: Signals, run: Path) -> None:
        self.signals = signals
        self.agreed = 0
        self._run = run
        self._saved_step = 0
        self._group: Any = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 (Lightning names them)
        """Makes the ranks' own channel."""
        if trainer.world_size > 1 and self._group is None:
            self._group = torch.distributed.new_group(backend="gloo")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        """After the Trainer has set its handlers; what came before them ends the run here."""
        self.signals.install()
        self.saved(trainer)
        self._exchange()
        self.end_if_agreed()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
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
        self._saved_step = trainer.global_step

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
        if self._group is None:
            self.agreed = self.signals.received
            return
        asked = torch.tensor([self.signals.received], dtype=torch.int32)
        torch.distributed.all_reduce(asked, op=torch.distributed.ReduceOp.MAX, group=self._group)
        self.agreed = int(asked)
