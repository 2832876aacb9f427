"""What rides along in Lightning's Trainer: `StarvationMonitor` says, while it trains, how long it waits for data."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal

import torch
from lightning.pytorch import Callback
from lightning.pytorch.utilities.rank_zero import rank_zero_warn

from ...loaders import DevicePrefetcher, FaceDataLoader, validation
from ...pipeline.errors import FacefeedError, UsageError
from .data_wait import Waits, tap, untap


class StarvedError(FacefeedError):
    """Training waited for data longer than it may; `figures` holds the window that was one too many."""

    exit_code = 1


class StarvationMonitor(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Logs to the Trainer's loggers, every few steps of `fit`, how long the device waited for data.

    starvation/stall: share of the time, 0 to 1; near 0: always fed; near 1: the device does little but wait. The time
    is that of fetches and steps; what lies between a step's end and the next fetch (validation, checkpoints, logging,
    waiting for other ranks) counts for neither. Over ranks: the mean.
    starvation/stall_max: with several ranks, the most. The slowest rank holds all others, since a step ends when every
    rank's gradients are there: the run loses at least this share, and it is the one that is judged.
    starvation/wait_p99_ms: what 99 of 100 fetches stay within, in ms (of fewer, the longest); near 0: no step waits
    long. Over ranks: the most.
    starvation/queue_depth: how many batches were ready when one was asked for, on average; near 0: the workers are the
    slower side. Over ranks: the least. Left out where nobody knows: without workers, or with several loaders in one.
    starvation/first_batch_seconds: once an epoch, from its beginning to its first batch, on the slowest rank; counts
    for nothing else. In a fit's first epoch Lightning calls `iter()` before, and what a loader does there is not seen.

    every_n_steps: steps (calls of `training_step`) in a window. max_stall: the most stall that a window may have.
    patience: so many windows in a row with more are too many; a fit's first, in which workers start, is never judged.
    on_starved: "warn", once a fit; "fail": raise `StarvedError`, on all ranks at the same step; "ignore": only log.

    On CUDA stall is what the device had no work in, by events that are read two steps later and never waited for; with
    several ranks the host waits for the device once a window, to exchange figures. Elsewhere it is all of a fetch, as
    in a profile: the loop stands still also while a batch that is ready is handed over. Checkpoints hold nothing of it:
    a resumed fit begins with a first window. Raises `UsageError` on arguments that cannot be meant.
    """

    def __init__(
        self, *, every_n_steps: int = 50, max_stall: float = 0.05, patience: int = 2,
        on_starved: Literal["warn", "fail", "ignore"] = "warn",
    ) -> None:  # fmt: skip
        self.every_n_steps = validation.require_int("every_n_steps", every_n_steps, minimum=1, example=50)
        self.patience = validation.require_int("patience", patience, minimum=1, example=2)
        if on_starved not in ("warn", "fail", "ignore"):
            raise UsageError(f"on_starved={on_starved!r}: must be 'warn', 'fail' or 'ignore'; try 'warn'")
        self.max_stall = _share(max_stall)
        self.on_starved = on_starved

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to look."""
        self._steps = self._began = 0
        self._starved: list[int] = []  # the global_step at which each window began, of those in a row with too much
        self._warned = False
        self._waits = Waits(trainer)
        tap(trainer.profiler, self._waits)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends a step. When ranks exchange figures follows from the number of steps alone, which is the same on all."""
        first_batch_seconds = self._waits.done()
        self._steps += 1
        if first_batch_seconds is not None:
            slowest = max(_of_ranks(trainer, [first_batch_seconds]))[0]
            _log(trainer, {"starvation/first_batch_seconds": slowest})
        if self._steps % self.every_n_steps == 0:
            figures = _reduced(_of_ranks(trainer, self._waits.take()))
            _log(trainer, figures)
            self._judge(trainer, figures)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Looks no longer: after an error Lightning does not call `teardown`."""
        untap(trainer.profiler)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Looks no longer."""
        untap(trainer.profiler)

    def _judge(self, trainer: Any, figures: dict[str, float]) -> None:
        began, self._began = self._began, trainer.global_step
        stall = figures.get("starvation/stall_max", figures.get("starvation/stall", 0.0))
        if self._steps == self.every_n_steps or stall <= self.max_stall:
            self._starved.clear()
            return
        self._starved.append(began)
        if len(self._starved) < self.patience or self.on_starved == "ignore":
            return
        where = " on the slowest rank, which holds all others" if trainer.world_size > 1 else ""
        told = (
            f"stall={stall:.1%}: training waits for data{where}, for more of the time than max_stall="
            f"{self.max_stall:.1%} since step {self._starved[0]}, and the device stands still meanwhile; "
            f"{_remedy(trainer.train_dataloader)} to see why, and what would help"
        )
        if self.on_starved == "fail":
            raise StarvedError(told, figures=figures)
        if not self._warned:
            rank_zero_warn(told)
        self._warned = True


def _remedy(loader: Any) -> str:
    if isinstance(loader, (FaceDataLoader, DevicePrefetcher)):
        return "run `facefeed profile OUT`"
    return "call `profile(loader, step)` of facefeed.loaders.profiler.profile"


def _share(max_stall: Any) -> float:
    if isinstance(max_stall, bool) or not isinstance(max_stall, Real) or not 0 < float(max_stall) < 1:
        raise UsageError(
            f"max_stall={max_stall!r}: must be a share of the time between 0 and 1, else every window would have more, "
            "or none; try 0.05"
        )
    return float(max_stall)


def _of_ranks(trainer: Any, figures: list[float]) -> list[list[float]]:
    """The figures of every rank, by rank."""
    if trainer.world_size == 1:
        return [figures]
    gathered = trainer.strategy.all_gather(torch.tensor(figures, device=trainer.strategy.root_device))
    return [[float(figure) for figure in rank] for rank in gathered.tolist()]


def _reduced(ranks: list[list[float]]) -> dict[str, float]:
    """What is logged, of the stall, wait and queue depth of each rank; what no rank knows is left out."""
    stalls, waits, depths = ([one for one in column if not math.isnan(one)] for column in zip(*ranks, strict=True))
    figures: dict[str, float] = {}
    if stalls:
        figures |= {"starvation/stall": sum(stalls) / len(stalls), "starvation/wait_p99_ms": max(waits)}
        if len(ranks) > 1:
            figures["starvation/stall_max"] = max(stalls)
    if depths:
        figures["starvation/queue_depth"] = min(depths)
    return figures


def _log(trainer: Any, figures: dict[str, float]) -> None:
    """At the step that Lightning's own callbacks log at; `global_step` would count every optimizer's."""
    for logger in trainer.loggers:
        logger.log_metrics(dict(figures), step=trainer.fit_loop.epoch_loop._batches_that_stepped)  # noqa: SLF001
