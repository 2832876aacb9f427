"""All use of Lightning's private attributes: counts of batches, steps and epochs, loops, iterators, results.

Checked with `CHECKED_LIGHTNING`.
"""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback, callbacks

from ..loaders import FaceDataLoader

CHECKED_LIGHTNING = "2.6"
"""The version with which these attributes were last read in Lightning's source."""

_WeightAveraging: Any = getattr(callbacks, "WeightAveraging", ())  # since 2.6

AVERAGING_CALLBACKS: tuple[type[Callback], ...] = tuple(
    getattr(callbacks, name) for name in ("StochasticWeightAveraging", "WeightAveraging") if hasattr(callbacks, name)
)
"""Callbacks that keep an average of the weights beside them, in a copy of the module."""


def logged_step(trainer: Any) -> int:
    """The step that Lightning's own callbacks log at; `global_step` counts the steps of every optimizer."""
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)  # noqa: SLF001


def train_iterator(trainer: Any) -> Any:
    """The iterator of the only training loader; None before its first epoch, and where several loaders are combined.

    None also in a Lightning without these attributes: what is only measured must not end a fit.
    """
    combined = getattr(trainer.fit_loop, "_combined_loader", None)
    iterators: Any = getattr(getattr(combined, "_iterator", None), "iterators", ())
    return iterators[0] if len(iterators) == 1 else None


def evaluation_loaders(trainer: Any) -> list[Any]:
    """Returns the loaders that the running fit, validation or test is evaluated on; empty before these are created.

    The public `val_dataloaders` are the last fit's also in a later validation on others.
    """
    loops = {"fit": trainer.fit_loop.epoch_loop.val_loop, "validate": trainer.validate_loop, "test": trainer.test_loop}
    combined = getattr(loops.get(trainer.state.fn), "_combined_loader", None)
    return [] if combined is None else list(combined.flattened)


def validation_metrics(trainer: Any) -> dict[str, float]:
    """Returns the metrics that a validation has logged, by name; valid at its end, in `on_validation_end`.

    The public `callback_metrics` keep those of training steps beside them, under any name.
    """
    metrics = trainer._results.metrics(on_step=False)["callback"]  # noqa: SLF001
    return {name: float(value) for name, value in metrics.items()}


def detach_callbacks(trainer: Any) -> None:
    """Removes from callbacks what a Trainer has set on them: the log methods of its module, which it is held by.

    A callback of a user would keep both alive, and the ranks' process groups with them.
    """
    for callback in trainer.callbacks:
        for name in ("log", "log_dict"):
            vars(callback).pop(name, None)


def release_averages(trainer: Any) -> None:
    """Ends the averaging of weights of a finished fit, so that a checkpoint loaded from then on keeps its weights.

    A checkpoint has the averaged ones. As long as the callback has its model, it puts those in their place that were
    being trained, with which the fit would be resumed: a test would be of these.
    """
    for callback in trainer.callbacks:
        if isinstance(callback, _WeightAveraging):
            callback._average_model = None  # noqa: SLF001


class AlignProgress(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Makes the counts of a resumed fit those of `loader`, once, at its start: of batches, and of epochs.

    Lightning restores the number of batches done and ends the epoch when it reaches `len(loader)`, whereas the loader
    restores the number of images done. Runs before all other callbacks, which may save checkpoints at the start.

    resized: whether steps are of another number of images than in the checkpoint.
    """

    def __init__(self, loader: FaceDataLoader, *, resized: bool) -> None:
        self._loader, self._resized = loader, resized

    def attach(self, trainer: Any) -> None:
        """Prepends itself to a Trainer's callbacks, in a new list: the present one may be being iterated over."""
        trainer.callbacks = [self, *trainer.callbacks]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Moves the counts, and removes this callback.

        There is no public API: Lightning restores its loops before this hook and reads them after it.
        """
        trainer.callbacks = [callback for callback in trainer.callbacks if callback is not self]
        if self._resized:
            self._realign_batches(trainer)
        _count_next_epoch(trainer.fit_loop)

    def _realign_batches(self, trainer: Any) -> None:
        """Sets the batch count of the epoch to the position of the loader.

        All four counts move by the same amount, since their differences tell Lightning where in a batch the checkpoint
        was written (such as in `on_train_batch_end`). A finished epoch is finished by the new count as well.
        """
        progress = trainer.fit_loop.epoch_loop.batch_progress
        num_batches = trainer.num_training_batches
        batch = num_batches if progress.is_last_batch else min(self._loader.next_step, num_batches)
        offset = batch - progress.current.processed
        for name in ("ready", "started", "processed", "completed"):
            setattr(progress.current, name, getattr(progress.current, name) + offset)


def _count_next_epoch(fit_loop: Any) -> None:
    """Lets the loop begin and count the epoch after one that the checkpoint has completed.

    Lightning 2.5.1 and later take it for a part of the completed one. After a checkpoint of an epoch's last step, that
    of the next epoch's last step would say that this epoch had not begun, and a run resumed from it would train one
    more. After one of an epoch's end, a Trainer with `max_steps` would count an epoch in which it trains nothing, and
    the loader would leave out the epoch of that number.
    """
    progress = fit_loop.epoch_progress.current
    if getattr(fit_loop, "restarted_on_epoch_end", False):
        fit_loop.epoch_progress.increment_completed()
        fit_loop._restarting = False  # noqa: SLF001 (the setter sets True where there is `max_steps`)
        fit_loop.epoch_loop.restarting = False
        fit_loop.reset_restart_stage()
    elif getattr(fit_loop, "restarted_mid_epoch", False) and progress.processed == progress.ready:
        fit_loop.reset_restart_stage()


def optimizer_steps_at(trainer: Any, epoch: int, batch: int) -> int:
    """Returns the number of optimizer steps done at batch `batch` of `epoch`, had all batches the present size.

    An incomplete group of accumulated batches does not count yet; an epoch ends with a step.
    """
    accumulated: int = trainer.accumulate_grad_batches
    num_batches: int = trainer.num_training_batches
    steps_per_epoch = math.ceil(num_batches / accumulated)
    return epoch * steps_per_epoch + (batch // accumulated if batch < num_batches else steps_per_epoch)


def final_step(trainer: Any, epoch: int, batch: int) -> int:
    """Returns the number of optimizer steps when training from batch `batch` of `epoch` ends, by its first limit.

    That is the steps done, of whatever size, and those that are left of `max_epochs`, of the present one; at most
    `max_steps`. -1 without a limit.
    """
    max_epochs, max_steps = int(trainer.max_epochs), int(trainer.max_steps)
    if max_epochs == -1:
        return max_steps
    steps_left = optimizer_steps_at(trainer, max_epochs, 0) - optimizer_steps_at(trainer, epoch, batch)
    total = int(trainer.global_step) + max(steps_left, 0)
    return total if max_steps == -1 else min(total, max_steps)


def run_validation(trainer: Any) -> None:
    """Runs the validation of an epoch whose last step a checkpoint has completed, over all batches, as in that epoch.

    A loop that a checkpoint has restored takes itself for one that was interrupted, and counts the batches of the
    validation before as its own: it would end after its first batch. The epoch counts as completed already.
    """
    val_loop = trainer.fit_loop.epoch_loop.val_loop
    epochs = trainer.fit_loop.epoch_progress.current
    completed = epochs.completed
    val_loop.restarting = False
    epochs.completed = epochs.ready - 1
    trainer.validating = True
    val_loop.run()
    trainer.training = True
    epochs.completed = completed
