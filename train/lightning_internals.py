"""A Trainer's count of an epoch's batches where it goes on with steps of another size than those of its checkpoint."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback

from ..loaders import FaceDataLoader


class CountAnew(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Has a resumed fit count the batches of its epoch from where `loader` stands; once, as it starts.

    Lightning restores how many batches of the epoch were done and ends it at `len(loader)` by that count, whereas the
    loader restores how many images were. Comes before all other callbacks, which may save checkpoints as they start.
    """

    def __init__(self, loader: FaceDataLoader) -> None:
        self._loader = loader

    def attach(self, trainer: Any) -> None:
        """Joins a Trainer's callbacks: in a new list, since a callback may have asked for the loader."""
        trainer.callbacks = [self, *trainer.callbacks]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Moves the count, and leaves.

        There is no public way to it: Lightning restores its loops before this hook, asks nobody, and reads them after.
        What a batch has not come to, such as its end where its checkpoint was written in `on_train_batch_end`, stays as
        it is: Lightning sees by it where it was. An epoch that has ended ends by the new count as well.
        """
        trainer.callbacks = [one for one in trainer.callbacks if one is not self]
        progress = trainer.fit_loop.epoch_loop.batch_progress
        steps = trainer.num_training_batches
        step = steps if progress.is_last_batch else min(self._loader.next_step, steps)
        moved = step - progress.current.processed
        for name in ("ready", "started", "processed", "completed"):
            setattr(progress.current, name, getattr(progress.current, name) + moved)


def optimizer_step(trainer: Any, epoch: int, step: int) -> int:
    """How many optimizer steps a run has made by a step of an epoch, if all its steps were of the present size.

    In the middle of a group of accumulated batches that group's step is yet to come; an epoch ends with a step.
    """
    group: int = trainer.accumulate_grad_batches
    steps: int = trainer.num_training_batches
    an_epoch = math.ceil(steps / group)
    return epoch * an_epoch + (step // group if step < steps else an_epoch)
