"""`train`: one run, from its config to its figures; run again, it goes on where it stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from rich.console import Console

from ...pipeline.dataset.manifest import Manifest
from ...pipeline.errors import CorruptDataError, FacefeedError, StoppedError
from .. import levers as lever_texts
from ..config.recipes import Config
from ..datamodule import FaceDataModule
from ..levers.best_and_early_stop import Best, EarlyStop, Logged, mode
from ..levers.freeze import Freeze
from ..levers.nonfinite.guard import FiniteGuard, NonFiniteError
from ..model.face_classifier import FaceClassifier, may_log
from ..model.warm_start import warm_start
from ..starvation.monitor import StarvationMonitor, StarvedError
from .checkpointer import BEST, LAST, Saving, WholeFiles, find, whole
from .folder import RunFolder
from .graceful_stop import Stop
from .launch import is_first_rank
from .progress import Progress
from .signals import Signals, StoppedTrainingError
from .throughput import Pace

_METRIC = "val/loss"  # what best.ckpt is the best of, unless a lever says otherwise: an AUC is not always there
_ON_ALL_RANKS = (StoppedTrainingError, NonFiniteError, StarvedError)


class OutOfMemoryError(FacefeedError):
    """A step needs more of a device's memory than there is."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to, over all its sessions; plain values.

    epochs, steps: done; steps are the optimizer's. images: that were trained on. seconds: in which it trained and
    validated. images_per_second, stall (0 to 1): None in a run too short to say. memory: `levers.peak_memory`'s, of
    the last session. told: what levers have to tell, by name. frozen: rows of `FrozenRow`. val: figures of the weights
    in `checkpoint`, those of `best_step`, as "val/auc"; test: of the same. val_faces, ...: how many were measured.
    """

    run: str
    dataset: str
    config: dict[str, Any]
    epochs: int
    steps: int
    images: int
    seconds: float
    images_per_second: float | None
    stall: float | None
    memory: dict[str, int | None]
    told: dict[str, Any]
    frozen: list[dict[str, Any]]
    best_step: int
    checkpoint: str
    val: dict[str, float]
    test: dict[str, float]
    val_faces: int
    val_videos: int
    test_faces: int
    test_videos: int

    @classmethod
    def read(cls, stored: dict[str, Any]) -> Self:
        """What `dataclasses.asdict` made of one. Raises `CorruptDataError` where another version, or nobody, did."""
        try:
            return cls(**stored)
        except TypeError as error:
            raise CorruptDataError(
                "result.json: is none of this version of facefeed train; delete it, and the same command measures the "
                "run's weights anew"
            ) from error


def train(
    out: str | Path, config: Config, run: str | Path, *, callbacks: Sequence[Callback] = (),
    console: Console | None = None, as_json: bool = False, notes: Sequence[str] = (),
) -> Result | None:  # fmt: skip
    """Trains on the dataset `out` as `config` says; what it makes stands in the folder `run`.

    Run again with the same folder and config, it goes on at the very next batch of the last checkpoint; a finished run
    is not trained again. callbacks: Lightning's, beside those of the run. console: where it shows itself, if anywhere;
    as_json: by one JSON object a line, unless that is a terminal. notes: what to say of the config at the start, and to
    keep in config.json, as `fitted` has it. Returns what it came to, None on other ranks than the first.

    SIGTERM and SIGUSR1 end it between two steps, with a checkpoint, by `StoppedTrainingError` (exit code 75); Ctrl-C
    and a lost terminal too (130). Raises `UsageError` on what cannot be used, `RefusedError` where `run` is another
    run's, `LeverError`, `NonFiniteError`, `OutOfMemoryError`, or `StoppedError` where the disk is full.
    """
    out, folder = Path(out), RunFolder(Path(run))
    with Signals() as signals:
        data = FaceDataModule(out, config.data)
        config = replace(config, model=replace(config.model, classes=data.classes))
        first = is_first_rank()
        if first:  # alone: while others start, it makes what they would take for somebody else's
            folder.check(config, out)
        if (finished := folder.result()) is not None:
            return Result.read(finished) if first else None
        session = _Session(
            out, config, folder, signals, data=data, callbacks=callbacks, console=console, as_json=as_json, notes=notes
        )
        with session.ending():
            return session.to_the_end()


class _Session:
    """One process's part in a run, between its start and its end or stop."""

    def __init__(
        self, out: Path, config: Config, folder: RunFolder, signals: Signals, *, data: FaceDataModule,
        callbacks: Sequence[Callback], console: Console | None, as_json: bool,
        notes: Sequence[str],
    ) -> None:  # fmt: skip
        self._out, self._config, self._folder, self._data = out, config, folder, data
        self._notes = [*notes]
        torch.manual_seed(config.seed)
        taken = lever_texts.parse(config.levers)
        for lever in taken:
            if isinstance(lever, (Best, EarlyStop)) and not may_log(lever.metric):
                raise lever_texts.LeverError(
                    f"{lever}: a classifier does not log {lever.metric!r}; try val/loss, val/auc or val/video_auc"
                )
        best = next((lever for lever in taken if isinstance(lever, Best)), None)
        metric = best.metric if best else _METRIC
        self._pace = Pace()
        self._progress = Progress(console, self._pace, str(folder.root), as_json=as_json)
        self._stop = Stop(signals, folder.root, save_every_minutes=config.save_every_minutes)
        self._saving = Saving(folder.checkpoints, self._stop, metric=metric, mode=mode(metric), seed=config.seed)
        own = [
            *callbacks, self._pace, _monitor(out, config), FiniteGuard(), self._stop, self._progress,
            *([Logged(str(best), metric)] if best else []), self._saving,
        ]  # fmt: skip
        levers = [lever for lever in taken if lever is not best]  # Saving does its work
        arguments = self._arguments(own)
        if not any(lever.kind == "strategy" for lever in levers):
            arguments["devices"] = 1
        signals.on_received = self._progress.on_signal
        with self._progress.quiet():
            module = self._classifier()
            self._module, self._trainer = lever_texts.trainer(module, levers, **arguments)
        self._frozen = [row for lever in levers if isinstance(lever, Freeze) for row in lever.table(module)]
        if whole(self._trainer.strategy):
            self._trainer.strategy.checkpoint_io = WholeFiles()

    def _classifier(self) -> FaceClassifier:
        """A fresh one; its weights are of `init_from`, unless those of a checkpoint will be loaded."""
        config = self._config
        if config.init_from is None or self._folder.begun:
            return FaceClassifier(config.model)
        module, note = warm_start(config.model, config.init_from)
        self._notes += [note] if note else []
        return module

    def _arguments(self, callbacks: list[Callback]) -> dict[str, Any]:
        root, logs = self._folder.root, self._folder.logs
        return {
            "accelerator": "auto",
            "max_epochs": self._config.epochs,
            "max_steps": -1 if self._config.steps is None else self._config.steps,
            "callbacks": callbacks,
            "logger": [
                TensorBoardLogger(root, name=logs.name, version="", default_hp_metric=False),
                CSVLogger(logs, name="csv"),
                self._pace.logger,
            ],
            "log_every_n_steps": 10,
            "default_root_dir": root,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
        }

    def to_the_end(self) -> Result | None:
        """Trains what is left, and measures what came of it."""
        trainer, module, data, folder = self._trainer, self._module, self._data, self._folder
        first = trainer.is_global_zero
        ranks, notes = trainer.world_size, self._notes
        held = folder.held(self._config, self._out, notes, ranks=ranks) if first else nullcontext()
        with held, self._progress.showing(first=first):
            for note in notes:
                self._progress.say(note, event="note", note=note)
            trainer.fit(module, data, ckpt_path=find(folder.checkpoints / LAST))
            if self._saving.validated_step != trainer.global_step:  # it ended in mid-epoch, by `steps`
                trainer.validate(module, data, verbose=False)
            went = self._went()  # before the test, for which callbacks are told what the weights' checkpoint says
            trainer.test(module, data, ckpt_path=went["checkpoint"], verbose=False)
            if not first:
                return None
            result = Result(**went, **self._tested())
            folder.finish(asdict(result))
            return result

    def _went(self) -> dict[str, Any]:
        trainer, saving, pace = self._trainer, self._saving, self._pace
        weights = self._folder.checkpoints / (LAST if saving.best_step is None else BEST)
        if not saving.has_saved:
            raise NonFiniteError(
                f"weights are NaN or infinite after each of {trainer.global_step:,} steps, so nothing was saved; lower "
                "the learning rate, or look for such numbers in the batches"
            )
        return {
            "run": str(self._folder.root), "dataset": str(self._out), "config": asdict(self._config),
            "epochs": trainer.current_epoch, "steps": trainer.global_step, "images": pace.images,
            "seconds": pace.seconds, "images_per_second": pace.images_per_second, "stall": pace.stall,
            "memory": lever_texts.peak_memory(), "told": lever_texts.figures(trainer), "checkpoint": str(weights),
            "frozen": [asdict(row) for row in self._frozen],
            "best_step": trainer.global_step if saving.best_step is None else saving.best_step,
            "val": saving.figures, "val_faces": saving.faces, "val_videos": saving.videos,
        }  # fmt: skip

    def _tested(self) -> dict[str, Any]:
        figures = self._trainer.callback_metrics
        test = {name: float(value) for name, value in figures.items() if name.startswith("test/")}
        scores = self._module.scores if test else None
        return {
            "test": test,
            "test_faces": len(scores.faces) if scores else 0,
            "test_videos": len(scores.videos) if scores else 0,
        }

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Makes of whatever ends a session an error with a code; on other ranks than the first one without a word."""
        try:
            with _as_errors(self._folder.root, self._config), self._stop.leaving():
                yield
        except _ON_ALL_RANKS as error:
            if self._trainer.is_global_zero:
                raise
            # One that Lightning started: it would kill the first rank, at work on its message, if this one failed.
            environment = self._trainer.strategy.cluster_environment
            started = isinstance(environment, LightningEnvironment) and self._trainer.local_rank > 0
            sys.exit(0 if started else error.exit_code)


@contextmanager
def _as_errors(run: Path, config: Config) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(
            f"batch_size={config.data.batch_size}: a step needs more memory than the GPU has; take a smaller "
            "data.batch_size with accumulate:N for it, or the levers bf16 (or fp16), checkpointing, adamw8bit"
        ) from error
    except RuntimeError as error:
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in str(error):
            raise
        raise StoppedError(
            f"{run}: stopped, another rank was lost ({str(error).splitlines()[0]}); the last checkpoint is whole: run "
            "the same command again to go on"
        ) from error
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise StoppedError(
            f"{run}: stopped, {where}{error.strerror or error}; the last checkpoint is whole: mend that, and run the "
            "same command again to go on"
        ) from error


def _monitor(out: Path, config: Config) -> StarvationMonitor:
    """Windows short enough that a short run has some."""
    rows = Manifest.read(out).splits.get("train", {}).get("rows", 0)
    batches = config.steps or config.epochs * rows // config.data.batch_size
    return StarvationMonitor(every_n_steps=min(50, max(2, batches // 5)))
