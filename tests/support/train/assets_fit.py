"""A short run for tests of `facefeed train`, and callbacks that interrupt it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch.utils.tensorboard  # noqa: F401 (this and the next: once, before processes are forked)
import torchmetrics.functional.classification  # noqa: F401
from assets_clock import Clock
from assets_train import BACKBONE, RecordFaces
from facefeed.pipeline.errors import FacefeedError
from facefeed.train.config.options import DataOptions, ModelOptions
from facefeed.train.config.recipes import Config
from facefeed.train.run import graceful_stop
from facefeed.train.run.background_writer import BackgroundWriter
from facefeed.train.run.result import Result
from facefeed.train.run.runner import train

STEPS = 7  # an epoch: 52 faces, 8 at a time


def config(**changes: Any) -> Config:
    """Returns a config of two epochs of seven steps of eight faces; changes of model and data are dicts."""
    model = {"backbone": BACKBONE, **changes.pop("model", {})}
    data = {"batch_size": 8, "image_size": 32, "num_workers": 0, **changes.pop("data", {})}
    defaults = {"recipe": "small", "epochs": 2, "save_every_minutes": 3}
    return Config(model=ModelOptions(**model), data=DataOptions(**data), **{**defaults, **changes})


class CallAtHook(lightning.Callback):
    """Calls `then` once, at the `number`-th call of `hook`, from 1."""

    def __init__(self, hook: str, number: int, then: Callable[[], Any]) -> None:
        self._left, self._then = number, then
        setattr(self, hook, self._come)

    def _come(self, *_: Any, **__: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._then()


class MinutePerStep(lightning.Callback):
    """Advances the clock of `graceful_stop` by a minute with every step."""

    def __init__(self) -> None:
        self._clock, self._before = Clock(), graceful_stop.clock

    def on_fit_start(self, *_: Any) -> None:
        graceful_stop.clock = self._clock

    def on_train_batch_start(self, *_: Any) -> None:
        self._clock.pass_by(60)

    def on_exception(self, *_: Any) -> None:
        graceful_stop.clock = self._before

    on_fit_end = on_exception


def session(out: str, run: str, seen: str, *, kill: tuple[int, int, int] | None = None, **changes: Any) -> None:
    """Runs one process of a run; records its faces, a line per step, in the file `seen` followed by its rank.

    kill: (signal number, rank, step from 1) at which the process sends itself the signal. Exits with the exit code of
    the command.
    """
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    callbacks: list[Any] = [RecordFaces(Path(f"{seen}{rank}"))]
    if rank == 0:  # clocks of other ranks differ, and they save all the same
        callbacks.append(MinutePerStep())
    if kill is not None:
        write_at_once(pytest.MonkeyPatch())
    if kill is not None and kill[1] == rank:
        callbacks.append(CallAtHook("on_train_batch_start", kill[2], lambda: os.kill(os.getpid(), kill[0])))
    try:
        train(out, config(**changes), run, callbacks=callbacks)
    except FacefeedError as error:
        print(error)
        os._exit(error.exit_code)
    except SystemExit as system_exit:
        os._exit(int(system_exit.code or 0))


def write_at_once(patch: pytest.MonkeyPatch) -> None:
    """Has each checkpoint written before the next step."""
    start = BackgroundWriter.start

    def start_and_wait(writer: BackgroundWriter, write: Any) -> None:
        start(writer, write)
        writer.wait()

    patch.setattr(BackgroundWriter, "start", start_and_wait)


def trained(out: str | Path, run: Path, *callbacks: Any, **changes: Any) -> tuple[Result, list[list[Any]]]:
    """Runs in this process; returns the result and the faces of each step."""
    seen = RecordFaces()
    result = train(out, config(**changes), run, callbacks=[seen, MinutePerStep(), *callbacks])
    assert result is not None
    return result, seen.steps


def raising(number: signal.Signals) -> Callable[[], None]:
    """Returns a function that sends this process a signal."""
    return lambda: signal.raise_signal(number)
