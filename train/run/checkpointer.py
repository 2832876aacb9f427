"""Checkpoints of a run: `last.ckpt` to resume from, and `best.ckpt` by a validation metric."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

import torch
from lightning.pytorch.callbacks import Checkpoint
from torch.distributed.tensor import DTensor

from ...pipeline.errors import StoppedError
from ..checkpoints.publication import previous_path, publish, recover, remove
from ..checkpoints.rng_state import gather_rng_states, restore_or_seed
from ..levers.ranks.zero_strategy import ZeroStrategy
from ..lightning_internals import run_validation
from ..warning import warn
from .background_writer import BackgroundWriter
from .checkpoint_io import BEST, LAST
from .graceful_stop import GracefulStop


class RunCheckpointer(Checkpoint):  # type: ignore[misc]  # Lightning is not followed
    """Writes `last.ckpt` when `GracefulStop` says that it is due, before and after each validation and at the end.

    `best.ckpt` is of the validation with the lowest (`mode` "min") or highest ("max") `metric`, never of one where it
    was NaN; `metrics` are those of that validation, over `faces` faces and `videos` videos. `loaded_step` is that of
    the checkpoint that was loaded last; these are then its own. A file is written in the background, while training
    goes on, and renamed into place once it is complete, so a kill, a full disk or a power failure leaves the previous
    one. One file is written at a time: a further checkpoint, a stop and the end of training wait for it. Weights and
    running statistics that are not finite are never saved, except weights that ZeRO's stage 3 has freed, which no rank
    sees. When the ranks have agreed to stop, the step is saved and the run ended. Where one cannot save, all of them
    raise, at the same step. `has_failed`: whether they have. `on_saved` is called after each save, on the first rank,
    in any thread.

    Lightning's ModelCheckpoint does not do: a run resumed after an epoch's last step would skip its validation.
    """

    state_key: ClassVar[str] = "Saving"  # the key in checkpoints, as 0.1.0 wrote it

    def __init__(
        self, folder: Path, stop: GracefulStop, *, metric: str, mode: str, seed: int,
        on_saved: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.metrics: dict[str, float] = {}
        self.faces = self.videos = 0
        self.best_step: int | None = None
        self.validated_step: int | None = None
        self.loaded_step: int | None = None
        self._folder, self._stop, self._on_saved = folder, stop, on_saved
        self._metric, self._metric_sign = metric, 1 if mode == "min" else -1
        self._best_value = math.inf
        self.has_saved = False  # in any session; the same on all ranks, unlike the existence of a file
        self._validation_is_due = self._training_ended = self._warned = False
        self._writer = BackgroundWriter()
        self.has_failed = False
        stop.before_stop = self.finish
        stop.own_save_has_failed = lambda: self._writer.has_failed
        self._seed = seed
        self._rng_states: list[dict[str, Any]] = []
        self._step = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs, as plain values, by the keys that 0.1.0 wrote."""
        return {
            "figures": self.metrics, "best": self._best_value, "best_step": self.best_step,
            "finished": self._training_ended, "validated_step": self.validated_step,
            "validation_is_due": self._validation_is_due, "faces": self.faces, "videos": self.videos,
            "rank_generators": self._rng_states,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state of `state_dict`."""
        self.has_saved = True
        self.metrics, self._best_value, self.best_step = (
            state_dict["figures"],
            state_dict["best"],
            state_dict["best_step"],
        )
        self.validated_step, self._training_ended = state_dict["validated_step"], state_dict["finished"]
        self.faces, self.videos = state_dict["faces"], state_dict["videos"]
        self._validation_is_due = state_dict["validation_is_due"]
        self._rng_states = state_dict.get("rank_generators", [])  # 0.1.0 had one rank's

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Records the step of the checkpoint."""
        self.loaded_step = checkpoint["global_step"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Restores random generators, and runs the validation if the checkpoint was written right before it."""
        self._step = trainer.global_step
        self._forget_lost_best(trainer)
        restore_or_seed(trainer, self._seed, self._rng_states)
        if self._validation_is_due:
            pl_module.realign_schedule()  # before a save, which stores the new global batch size
            run_validation(trainer)
            self.on_train_epoch_end(trainer, pl_module)
        trainer.should_stop |= self._training_ended  # otherwise a run that had stopped early would train another epoch

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Saves if due, only after an optimizer step: accumulated gradients are not part of a checkpoint."""
        if self._stop.save_has_failed:
            self.finish(trainer)
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if trainer.is_last_batch or self._stop.agreed_signal or self._stop.save_is_due:
            self._validation_is_due = bool(trainer.is_last_batch and sum(trainer.num_val_batches))
            self._save_last(trainer)
            self._stop.raise_if_agreed(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves `best.ckpt` if the metric has improved."""
        self._validation_is_due = False
        self.validated_step = trainer.global_step
        metrics = logged_metrics(trainer, "val")
        value = self._metric_sign * metrics.get(self._metric, math.inf)
        if value < self._best_value and self._check_finite(trainer):  # NaN compares false
            self.metrics, self._best_value, self.best_step = metrics, value, trainer.global_step
            self.faces, self.videos = len(pl_module.scores.faces), pl_module.scores.num_videos
            self._save(trainer, BEST)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves the end of the epoch, which after an early stop is that of training; a signal raises instead."""
        self._training_ended |= trainer.should_stop
        self._save_last(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Runs the validation of steps that ended within an epoch, and saves the end of training.

        Within the fit, since ZeRO can save from its engine alone.
        """
        if self.validated_step != trainer.global_step and sum(trainer.num_val_batches):
            self._save_last(trainer)
            run_validation(trainer)
        self._training_ended = True
        self._save_last(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Runs the validation in which a run was killed before: a fit without a step left has no end of training.

        Also that of the last weights if `best.ckpt` is gone, so that they are the best.
        """
        self.finish(trainer)
        self._forget_lost_best(trainer)
        if self.validated_step == trainer.global_step:
            return
        pl_module.to(trainer.strategy.root_device)  # a fit ends with the module on the host
        run_validation(trainer)
        if self.validated_step == trainer.global_step:  # there are faces to validate
            self._training_ended = True
            self._save_last(trainer)
            self.finish(trainer)

    def finish(self, trainer: Any) -> None:
        """Waits until the latest checkpoint is in place; a collective call. Raises the error of a write that failed."""
        with self._failing_together(trainer):
            self._writer.wait()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Context of a run, which no write outlasts; a second Ctrl-C gives one up."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self._writer.abandon()
            raise
        except BaseException:
            self._wait_after_error()
            raise
        self._writer.wait()

    def _wait_after_error(self) -> None:
        """Waits for the write in flight where another error ends the run; warns if it fails too."""
        try:
            self._writer.wait()
        except Exception as error:  # any of a write's: the other is reported
            warn(f"{self._folder}: the checkpoint that was being written is not there ({error}); the one before is")

    def _forget_lost_best(self, trainer: Any) -> None:
        """Makes the next validation the best if `best.ckpt` is gone, say deleted since it was damaged.

        The first rank looks, since a validation is the best on all of them or on none.
        """
        exists: bool = trainer.strategy.broadcast(trainer.is_global_zero and recover(self._folder / BEST))
        if exists or self.best_step is None:
            return
        warn(f"{self._folder / BEST}: is gone; the best of the validations from now on takes its place")
        self.metrics, self._best_value, self.best_step, self.validated_step = {}, math.inf, None, None
        self.faces = self.videos = 0

    def _save_last(self, trainer: Any) -> None:
        if self._check_finite(trainer):
            self._stop.record_saving()
            self._save(trainer, LAST)

    def _check_finite(self, trainer: Any) -> bool:
        """Whether all weights and buffers are finite, the same on all ranks; warns once if they are not."""
        finite: bool = trainer.strategy.reduce_boolean_decision(_is_finite(trainer), all=True)
        if not finite and not self._warned:
            self._warned = True
            self.finish(trainer)
            warn(
                f"not saved: weights or running statistics are NaN or infinite after step {trainer.global_step:,}; the "
                f"last checkpoint is that of step {self._stop.last_saved_step:,}"
            )
        return finite

    def _save(self, trainer: Any, name: str) -> None:
        """Saves a checkpoint; called on all ranks, since some strategies save a part on each.

        Unless the strategy offloads, it is written in the background, from a copy in host memory: a file by the first
        rank, or under FSDP and ZeRO parts by all ranks, which the first one publishes once all are there. Before the
        first checkpoint of a run, `best.ckpt` of a run that was in the folder before, and begun anew, is removed.
        """
        is_first, self.has_saved = not self.has_saved, True
        temporary = self._folder / f".{name}"
        with self._failing_together(trainer):
            self._writer.wait()
            if trainer.is_global_zero:
                remove(temporary)  # that of a save that was killed
        self._rng_states = gather_rng_states(trainer)
        publish_it: Callable[[], None] = lambda: None  # noqa: E731
        if trainer.is_global_zero:
            publish_it = partial(self._publish, name, trainer.global_step, is_first=is_first)
        if not (isinstance(trainer.strategy, ZeroStrategy) and trainer.strategy.offloads):
            trainer.save_checkpoint(temporary, storage_options=partial(self._start_write, publish_it))
            return
        trainer.save_checkpoint(temporary)
        with self._failing_together(trainer):
            publish_it()

    @contextmanager
    def _failing_together(self, trainer: Any) -> Iterator[None]:
        """Context that all ranks leave at once, and with an error if one has failed; a collective call.

        No rank ends before the first is done, since a launcher then ends it too; nor waits for one that has failed. A
        second Ctrl-C waits for none.
        """
        error: Exception | None = None
        try:
            yield
        except Exception as raised:  # any, which would leave the others waiting
            error = raised
        self.has_failed = not trainer.strategy.reduce_boolean_decision(error is None, all=True)
        if error is not None:
            raise error
        if self.has_failed:
            raise StoppedError(f"{self._folder}: another rank could not save a checkpoint")

    def _start_write(self, publish_it: Callable[[], None], write: Callable[[Event], None]) -> None:
        def write_and_publish(abandoned: Event) -> None:
            write(abandoned)
            if not abandoned.is_set():
                publish_it()

        self._writer.start(write_and_publish)

    def _publish(self, name: str, step: int, *, is_first: bool) -> None:
        """Gives a complete checkpoint its name; on the first rank, in the thread that wrote it."""
        for best in (self._folder / BEST, previous_path(self._folder / BEST)) if is_first else ():
            remove(best)
        publish(self._folder / f".{name}", self._folder / name)
        self._on_saved()
        if name == LAST:
            self._stop.record_saved(step)


def logged_metrics(trainer: Any, split: str) -> dict[str, float]:
    """Returns the latest metrics of a split, "val" or "test", by name, such as "val/auc"."""
    return {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith(f"{split}/")}


def _is_finite(trainer: Any) -> bool:
    """Whether all weights and buffers that this rank holds are finite; it has none of those that ZeRO has freed."""
    module, device = trainer.lightning_module, trainer.strategy.root_device
    state = (*module.parameters(), *module.buffers())
    tensors = [tensor.detach() for tensor in state if tensor.is_floating_point()]
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    largest = [tensor.abs().max().float().to(device) for tensor in local if tensor.numel()]  # ZeRO offloads to the host
    return bool(torch.stack(largest).isfinite().all()) if largest else True
