"""`train`: runs one training from its config to its result, and resumes it when called again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from ...pipeline.dataset.stores.address import as_out, without_credentials
from ...pipeline.dataset.stores.opening import read_manifest
from ...pipeline.errors import FacefeedError
from ...pipeline.files import stop_on_any_disk_error
from .. import levers
from ..checkpoints.publication import find_checkpoint
from ..config.checked_levers import checked_levers
from ..config.recipes import Config
from ..datamodule import FaceDataModule
from ..levers.best_and_early_stop import Best, EarlyStop, RequireMetric, mode
from ..levers.freeze import Freeze
from ..levers.lever import Lever, LeverError
from ..levers.nonfinite.guard import FiniteGuard, NonFiniteError
from ..levers.ranks.fsdp_strategy import FSDP2Strategy
from ..lightning_internals import detach_callbacks, release_averages
from ..model.face_classifier import FaceClassifier, validation_metrics
from ..model.warm_start import warm_start
from ..process_groups import destroy_process_groups_at_exit, keep_process_groups_at_exit
from ..starvation.monitor import StarvationMonitor, StarvedError
from ..torch_internals import raising_memory_errors
from .checkpoint_io import BEST, LAST, SafeCheckpointIO
from .checkpointer import RunCheckpointer, logged_metrics
from .folder import RunFolder
from .graceful_stop import GracefulStop
from .launch import is_first_rank
from .library_errors import converting_library_errors
from .progress import Progress
from .result import Result
from .signals import Signals, StoppedTrainingError
from .throughput import Throughput

_METRIC = "val/loss"  # decides on best.ckpt unless a lever does: an AUC is not always defined
_ON_ALL_RANKS = (StoppedTrainingError, NonFiniteError, StarvedError)


@raising_memory_errors()
def train(
    out: str | Path, config: Config, run: str | Path, *, callbacks: Sequence[Callback] = (),
    console: Console | None = None, as_json: bool = False, notes: Sequence[str] = (),
) -> Result | None:  # fmt: skip
    """Trains on the dataset `out` by `config`, with checkpoints, logs and result in the folder `run`.

    Called again with the same folder and config, it resumes at the very next batch after the last checkpoint; a
    finished run is not trained again.

    Args:
        out: Folder of a finished dataset, or its address in an object store.
        config: Settings of the run.
        run: Folder of the run; created if it does not exist.
        callbacks: Lightning callbacks, in addition to those of the run.
        console: Shows progress; None for none.
        as_json: Show progress as JSON lines, unless the console is a terminal.
        notes: Shown at the start and kept in config.json, as `fit_to_machine` returns them.

    Returns:
        The result on the first rank, None on others.

    Raises:
        StoppedTrainingError: SIGTERM or SIGUSR1 (exit code 75), Ctrl-C or a lost terminal (130) ended the run between
            two steps, with a checkpoint.
        StoppedError: The disk is full, or a rank was lost.
        UsageError: An argument cannot be used.
        RefusedError: `run` is the folder of another run.
        LeverError: A lever cannot be used.
        NonFiniteError: Loss or gradients stay NaN or infinite.
        OutOfMemoryError: A step needs more device memory than there is (exit code 1).
        WorkerDiedError: A worker of a loader died (exit code 1).

    """
    out, folder = as_out(out), RunFolder(Path(run))
    with Signals() as signals:
        data = FaceDataModule(out, config.data)
        config = replace(config, model=replace(config.model, classes=data.classes))
        is_first = is_first_rank()
        with stop_on_any_disk_error(folder.root):
            if is_first:  # not on others: they may start after the first has created files
                folder.check(config, out)
            stored_result = folder.read_result()
        if stored_result is not None:
            return Result.read(stored_result).moved_to(folder.root) if is_first else None
        data.check()
        keep_process_groups_at_exit()
        session = _Session(
            out, config, folder, signals, data=data, callbacks=callbacks, console=console, as_json=as_json, notes=notes
        )
        with session.converting_errors():
            return session.run()


class _RunBest(Best):
    """`best` in a run, whose `RunCheckpointer` keeps the best weights."""

    def arguments(self) -> dict[str, Any]:
        """Returns the check that the metric is logged."""
        return {"callbacks": [RequireMetric(str(self), self.metric)]}


class _Session:
    """One process of a run, from its start to its end or stop."""

    def __init__(
        self, out: str | Path, config: Config, folder: RunFolder, signals: Signals, *, data: FaceDataModule,
        callbacks: Sequence[Callback], console: Console | None, as_json: bool,
        notes: Sequence[str],
    ) -> None:  # fmt: skip
        self._dataset_path, self._config, self._folder, self._data = out, config, folder, data
        self._notes = [*notes]
        torch.manual_seed(config.seed)
        parsed = _parse_levers(config, data)
        metric = next((lever.metric for lever in parsed if isinstance(lever, Best)), _METRIC)
        self._throughput = Throughput()
        self._progress = Progress(console, self._throughput, str(folder.root), as_json=as_json)
        signals.on_received = self._progress.on_signal
        self._graceful_stop = GracefulStop(
            signals, folder.root, save_every_minutes=config.save_every_minutes, is_resumed=folder.is_resumable
        )
        self._checkpointer = RunCheckpointer(
            folder.checkpoints, self._graceful_stop, metric=metric, mode=mode(metric), seed=config.seed,
            on_saved=lambda: folder.record_session(config.data.batch_size, self._trainer.world_size),
        )  # fmt: skip
        run_callbacks = [
            *callbacks, self._throughput, _make_monitor(out, config), FiniteGuard(), self._graceful_stop,
            self._progress, self._checkpointer,
        ]  # fmt: skip
        run_levers = [_RunBest(lever.metric) if isinstance(lever, Best) else lever for lever in parsed]
        self._module, self._trainer = self._make_trainer(run_levers, run_callbacks)
        self._frozen = [row for lever in run_levers if isinstance(lever, Freeze) for row in lever.table(self._module)]

    def _make_trainer(self, run_levers: Sequence[Lever], callbacks: list[Callback]) -> tuple[Any, Trainer]:
        """Returns the module to train, with the levers applied, and its Trainer."""
        arguments = self._trainer_arguments(callbacks)
        if not any(lever.kind == "strategy" for lever in run_levers):
            arguments["devices"] = 1
        try:
            with self._progress.suppress_lightning():
                module, trainer = levers.trainer(self._make_module(), run_levers, **arguments)
        except LeverError as error:
            if not self._folder.is_resumable:
                raise
            raise LeverError(
                f"{error}\n--run {self._folder.root}: has a checkpoint, so its levers stay, but for those of its "
                "ranks; continue it on a machine that takes them, or name another folder",
                details=error.details,
            ) from error
        trainer.strategy.checkpoint_io = SafeCheckpointIO()  # which ZeRO, with its own files, asks nothing
        if isinstance(trainer.strategy, FSDP2Strategy):
            trainer.strategy.saves_shards = True
        return module, trainer

    def _make_module(self) -> FaceClassifier:
        """Returns a new module, with the weights of `init_from` unless a checkpoint will be loaded.

        For a checkpoint none are fetched: it has them all, and the machine may be without a network or a cache.
        """
        config = self._config
        if self._folder.is_resumable:
            return FaceClassifier(asdict(config.model))
        if config.init_from is None:
            return FaceClassifier(config.model)
        module, note = warm_start(config.model, config.init_from)
        self._notes += [note] if note else []
        return module

    def _trainer_arguments(self, callbacks: list[Callback]) -> dict[str, Any]:
        root, logs = self._folder.root, self._folder.logs
        return {
            "accelerator": "auto",
            "max_epochs": self._config.epochs,
            "max_steps": -1 if self._config.steps is None else self._config.steps,
            "callbacks": callbacks,
            "logger": [
                TensorBoardLogger(root, name=logs.name, version="", default_hp_metric=False),
                CSVLogger(logs, name="csv"),
                self._throughput.logger,
            ],
            "log_every_n_steps": 10,
            "default_root_dir": root,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
        }

    def run(self) -> Result | None:
        """Trains the remaining steps, tests the best weights (the last, if there are none), and writes the result."""
        trainer, module, data, folder = self._trainer, self._module, self._data, self._folder
        is_first = trainer.is_global_zero
        ranks, notes = trainer.world_size, self._notes
        lock = folder.locked(self._config, self._dataset_path, notes, ranks=ranks) if is_first else nullcontext()
        with lock, self._progress.live(first=is_first), self._checkpointer.writing():
            for note in notes:
                self._progress.report(note, event="note", note=note)
            trainer.fit(module, data, ckpt_path=find_checkpoint(folder.checkpoints / LAST))
            # Before the test, which loads the callbacks' states of the tested checkpoint.
            training_result = self._training_result()
            release_averages(trainer)
            trainer.test(module, data, ckpt_path=training_result["checkpoint"], verbose=False)
            self._release_process_groups()
            if not is_first:
                return None
            result = Result(**training_result, **self._tested_result())
            folder.write_result(asdict(result))
            return result

    def _training_result(self) -> dict[str, Any]:
        trainer, checkpointer, throughput = self._trainer, self._checkpointer, self._throughput
        epoch, step = self._data.position
        epochs_done = epoch + (step >= trainer.num_training_batches)  # `current_epoch` counts one that `max_steps` cut
        weights = self._folder.checkpoints / (LAST if checkpointer.best_step is None else BEST)
        if not checkpointer.has_saved:
            raise NonFiniteError(
                f"weights are NaN or infinite after each of {trainer.global_step:,} steps, so nothing was saved; lower "
                "the learning rate, or look for such numbers in the batches"
            )
        return {
            "run": str(self._folder.root), "dataset": without_credentials(self._dataset_path),
            "config": asdict(self._config), "epochs": epochs_done, "steps": trainer.global_step,
            "images": throughput.images, "seconds": throughput.seconds,
            "images_per_second": throughput.images_per_second, "stall": throughput.stall,
            "memory": levers.peak_memory(), "lever_metrics": levers.metrics(trainer), "checkpoint": str(weights),
            "frozen": [asdict(row) for row in self._frozen],
        }  # fmt: skip

    def _tested_result(self) -> dict[str, Any]:
        """Returns the part of the result that is of the tested checkpoint.

        That is what it records itself: a run killed between the saves of `best.ckpt` and `last.ckpt` has a best that
        the run resumed from the latter does not know of.
        """
        checkpointer, test = self._checkpointer, logged_metrics(self._trainer, "test")
        metrics = self._module.scores if test else None
        return {
            "best_step": checkpointer.loaded_step,
            "val": checkpointer.metrics,
            "val_faces": checkpointer.faces,
            "val_videos": checkpointer.videos,
            "test": test,
            "test_faces": len(metrics.faces) if metrics else 0,
            "test_videos": metrics.num_videos if metrics else 0,
        }

    def _release_process_groups(self) -> None:
        """Call it where all ranks end alike."""
        detach_callbacks(self._trainer)
        destroy_process_groups_at_exit()

    @contextmanager
    def converting_errors(self) -> Iterator[None]:
        """Context that converts errors to those with an exit code; other ranks than the first exit silently."""
        try:
            with (
                converting_library_errors(self._folder.root, self._config),
                self._graceful_stop.converting_interrupts(),
            ):
                yield
        except FacefeedError as error:
            if not (isinstance(error, _ON_ALL_RANKS) or self._checkpointer.has_failed):
                raise
            if not isinstance(error.__cause__, (KeyboardInterrupt, SystemExit)):  # a second Ctrl-C, amid a step
                self._release_process_groups()
            if self._trainer.is_global_zero:
                raise
            # If a rank that Lightning started exits with an error, Lightning kills the first rank before it reports.
            environment = self._trainer.strategy.cluster_environment
            started_by_lightning = isinstance(environment, LightningEnvironment) and self._trainer.local_rank > 0
            sys.exit(0 if started_by_lightning else error.exit_code)


def _parse_levers(config: Config, data: FaceDataModule) -> tuple[Lever, ...]:
    """Returns the levers of a config. Raises `LeverError` on one whose metric no validation on `data` logs.

    `best` compares the weights after validations.
    """
    parsed = checked_levers(config)
    for lever in parsed:
        if isinstance(lever, (Best, EarlyStop)):
            _check_is_logged(lever, validation_metrics(data.dataset("val")))
    return parsed


def _check_is_logged(lever: Best | EarlyStop, metrics: Sequence[str]) -> None:
    """Raises `LeverError` on a lever whose metric is not among those of the validations."""
    if not metrics:
        raise LeverError(f"{lever}: no face of val has a known label, so no validation logs a metric; leave it out")
    if lever.metric not in metrics:
        raise LeverError(
            f"{lever}: a validation does not log {lever.metric!r}, by the labels, videos and methods of the faces of "
            f"val; try {', '.join(metrics)}"
        )


def _make_monitor(out: str | Path, config: Config) -> StarvationMonitor:
    """Returns a monitor with windows short enough for a short run to have several."""
    rows = read_manifest(out, config.data.store).splits.get("train", {}).get("rows", 0)
    batches = config.epochs * rows // config.data.batch_size
    batches = min(config.steps or batches, batches)
    return StarvationMonitor(every_n_steps=min(50, max(2, batches // 5)))
