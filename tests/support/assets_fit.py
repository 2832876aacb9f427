"""What tests of `facefeed train` share: a short run, and callbacks that end it in ways that runs end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch.utils.tensorboard  # noqa: F401 (this and the next: once, before processes are forked)
import torchmetrics.functional.classification  # noqa: F401
from assets_clock import Clock
from assets_train import BACKBONE, Seen
from facefeed.pipeline.errors import FacefeedError
from facefeed.train.config.options import DataOptions, ModelOptions
from facefeed.train.config.recipes import Config
from facefeed.train.run import graceful_stop
from facefeed.train.run.runner import Result, train

STEPS = 7  # an epoch: 52 faces, 8 at a time


def config(**changes: Any) -> Config:
    """Two epochs of seven steps of eight faces, made in this process; changes of model and data are dicts."""
    model = {"backbone": BACKBONE, **changes.pop("model", {})}
    data = {"batch_size": 8, "image_size": 32, "num_workers": 0, **changes.pop("data", {})}
    defaults = {"recipe": "small", "epochs": 2, "save_every_minutes": 3}
    return Config(model=ModelOptions(**model), data=DataOptions(**data), **{**defaults, **changes})


class At(lightning.Callback):
    """Calls something once, when `hook` comes for the `number`-th time, from 1."""

    def __init__(self, hook: str, number: int, then: Callable[[], Any]) -> None:
        self._left, self._then = number, then
        setattr(self, hook, self._come)

    def _come(self, *_: Any, **__: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._then()


class Minutes(lightning.Callback):
    """Has a minute pass with every step, by the clock that says when a checkpoint is due."""

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
    """What one process of a run does; notes the faces it saw, a line a step, in `seen` and its rank.

    kill: a signal's number, the rank that it hits, and the step in which it does, from 1. Ends with the exit code that
    the command has.
    """
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    callbacks: list[Any] = [Seen(Path(f"{seen}{rank}"))]
    if rank == 0:  # others' clocks do not say the same, and they save all the same
        callbacks.append(Minutes())
    if kill is not None and kill[1] == rank:
        callbacks.append(At("on_train_batch_start", kill[2], lambda: os.kill(os.getpid(), kill[0])))
    try:
        train(out, config(**changes), run, callbacks=callbacks)
    except FacefeedError as error:
        print(error)
        os._exit(error.exit_code)
    except SystemExit as left:
        os._exit(int(left.code or 0))


def trained(out: Path, run: Path, *callbacks: Any, **changes: Any) -> tuple[Result, list[list[Any]]]:
    """A run in this process, and the faces that it saw in each step."""
    seen = Seen()
    result = train(out, config(**changes), run, callbacks=[seen, Minutes(), *callbacks])
    assert result is not None
    return result, seen.steps


def raising(number: signal.Signals) -> Callable[[], None]:
    """Sends this process a signal, at once."""
    return lambda: signal.raise_signal(number)
