"""A run's checkpoints: `last.ckpt`, from which it goes on, and `best.ckpt`, by a figure of the validation."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch.distributed.tensor import DTensor

from ..checkpoints.plain import PlainCheckpointIO, read_checkpoint
from ..checkpoints.rng_state import gather_rng_states, restore_or_seed
from ..levers.ranks.fsdp_strategy import ShardedStrategy
from .graceful_stop import Stop

LAST, BEST = "last.ckpt", "best.ckpt"


class Saving(Checkpoint):  # type: ignore[misc]  # Lightning is not followed
    """Writes `last.ckpt` when `Stop` says that it is due, before and after each validation and at the end.

    `best.ckpt` is of the validation whose `metric` was the least (`mode` "min") or the most ("max"), never of one where
    it was NaN: `figures` are that validation's, over so many `faces` and `videos`. A file takes its name once it is
    whole: a kill or a full disk leaves the one before, and so do weights and running statistics that are not finite.
    When ranks have agreed to stop, the step is saved and the run ended.

    Beside ModelCheckpoint, which Lightning brings: that resumes after an epoch's last step without its validation.
    """

    def __init__(self, folder: Path, stop: Stop, *, metric: str, mode: str, seed: int) -> None:
        self.figures: dict[str, float] = {}
        self.faces = self.videos = 0
        self.best_step: int | None = None
        self.validated_step: int | None = None
        self._folder, self._stop = folder, stop
        self._metric, self._sign = metric, 1 if mode == "min" else -1
        self._best = math.inf
        self.has_saved = False  # in this session or one before it; known to all ranks, a file to the first one earlier
        self._validation_is_due = self._finished = self._warned = False
        self._seed = seed
        self._states: list[dict[str, Any]] = []
        self._step = self._saved_step = 0

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run has to know, in plain values."""
        return {
            "figures": self.figures, "best": self._best, "best_step": self.best_step, "finished": self._finished,
            "validated_step": self.validated_step, "validation_is_due": self._validation_is_due,
            "faces": self.faces, "videos": self.videos, "rank_generators": self._states,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes it up."""
        self.has_saved = True
        self.figures, self._best, self.best_step = state_dict["figures"], state_dict["best"], state_dict["best_step"]
        self.validated_step, self._finished = state_dict["validated_step"], state_dict["finished"]
        self.faces, self.videos = state_dict["faces"], state_dict["videos"]
        self._validation_is_due = state_dict["validation_is_due"]
        self._states = state_dict.get("rank_generators", [])  # 0.1.0 had one rank's

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Goes on where the checkpoint was written, with the validation if that was before it."""
        self._step = self._saved_step = trainer.global_step
        restore_or_seed(trainer, self._seed, self._states)
        if self._validation_is_due:
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.run()
            trainer.training = True
            self._save_last(trainer)
        trainer.should_stop |= self._finished  # else one that was stopped early would train another epoch

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Saves where it is due: only after a step of the optimizer, since half a group of gradients is not saved."""
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if trainer.is_last_batch or self._stop.agreed or self._stop.save_is_due:
            self._validation_is_due = bool(trainer.is_last_batch and sum(trainer.num_val_batches))
            self._save_last(trainer)
            self._stop.end_if_agreed()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves the best."""
        self._validation_is_due = False
        self.validated_step = trainer.global_step
        figures = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("val/")}
        value = self._sign * figures.get(self._metric, math.inf)
        if value < self._best and self._may_be_saved(trainer):  # NaN is not less than anything
            self.figures, self._best, self.best_step = figures, value, trainer.global_step
            self.faces, self.videos = len(pl_module.scores.faces), len(pl_module.scores.videos)
            self._save(trainer, BEST)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves that the epoch is over."""
        self._save_last(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Saves that training is over."""
        self._finished = True
        self._save_last(trainer)

    def _save_last(self, trainer: Any) -> None:
        if not self._may_be_saved(trainer):
            return
        self._save(trainer, LAST)
        self._saved_step = trainer.global_step
        self._stop.saved(trainer)

    def _may_be_saved(self, trainer: Any) -> bool:
        """Whether all that would be saved is finite; warns once where it is not. The same on all ranks."""
        finite: bool = trainer.strategy.reduce_boolean_decision(_finite(trainer), all=True)
        if not finite and not self._warned:
            self._warned = True
            rank_zero_warn(
                f"not saved: weights or running statistics are NaN or infinite after step {trainer.global_step:,}; the "
                f"last checkpoint is that of step {self._saved_step:,}"
            )
        return finite

    def _save(self, trainer: Any, name: str) -> None:
        """On all ranks, since some strategies save a part on each."""
        self.has_saved = True
        hidden = self._folder / f".{name}"
        if trainer.is_global_zero:
            _remove(hidden)
        trainer.strategy.barrier("facefeed: nothing of a save that was killed is left")
        self._states = gather_rng_states(trainer)
        trainer.save_checkpoint(hidden)
        if trainer.is_global_zero:
            publish(hidden, self._folder / name)


class WholeFiles(PlainCheckpointIO):
    """Checkpoints of one file, written where they are to be.

    Lightning writes them to the system's folder for temporary files first, which on clusters is often small.
    """

    def load_checkpoint(self, path: str | Path, *args: Any, **options: Any) -> dict[str, Any]:
        """See `read_checkpoint`."""
        return read_checkpoint(path, remedy="delete it, and the run begins anew, or name another folder by --run")

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        """Tensor by tensor, straight into the file. Raises `OSError` with its name where it cannot be written."""
        try:
            with Path(path).open("wb") as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            reason = error if isinstance(error, OSError) else error.__context__  # torch closes its archive all the same
            if not isinstance(reason, OSError):
                raise
            reason.filename = reason.filename or str(path)
            raise reason from None


def whole(strategy: Any) -> bool:
    """Whether checkpoints are one file, which any such strategy resumes from; DeepSpeed's are folders of parts."""
    return type(strategy) in (SingleDeviceStrategy, DDPStrategy, ShardedStrategy)  # DeepSpeed's is a subclass of DDP's


def publish(hidden: Path, path: Path) -> None:
    """Gives a written checkpoint its name: in one step a file, in two a folder of several ranks' parts."""
    if hidden.is_dir():
        before = _before(path)
        if path.exists():  # else a kill came between the two steps, and what is named so is the last one
            _remove(before)
            path.rename(before)
        hidden.rename(path)
        _remove(before)
        return
    with hidden.open("rb") as file:
        os.fsync(file.fileno())
    hidden.replace(path)


def find(path: Path) -> Path | None:
    """The checkpoint of that name, or the one before it where a kill came between the two steps of `publish`.

    None without either. Renames nothing: every rank looks, whenever it comes.
    """
    return next((one for one in (path, _before(path)) if one.exists()), None)


def _before(path: Path) -> Path:
    return path.with_name(f".{path.name}.before")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _finite(trainer: Any) -> bool:
    """Whether no weight and no buffer of this rank is NaN or infinite; True where each rank has other parts of them."""
    if not whole(trainer.strategy):
        return True
    module = trainer.lightning_module
    saved = [one.detach() for one in (*module.parameters(), *module.buffers()) if one.is_floating_point()]
    own = [one.to_local() if isinstance(one, DTensor) else one for one in saved]
    most = [one.abs().max().float() for one in own if one.numel()]
    return bool(torch.stack(most).isfinite().all()) if most else True
