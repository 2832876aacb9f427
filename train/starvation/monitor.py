"""`StarvationMonitor`: a Lightning callback that logs how long training waits for data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Literal

import torch
from lightning.pytorch import Callback

from ...loaders import DevicePrefetcher, FaceDataLoader
from ...loaders.real_numbers import as_float
from ...loaders.whole_numbers import require_int
from ...pipeline.errors import FacefeedError, UsageError
from ..lightning_internals import logged_step
from ..warning import warn
from .data_wait import DataWaitTimer, WaitWindow, attach, detach


class StarvedError(FacefeedError):
    """Training waited for data longer than `max_stall` allows; `details` holds the metrics of the last window."""

    exit_code = 1


class StarvationMonitor(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Logs to the Trainer's loggers, every `every_n_steps` steps of `fit`, how long the device waited for data.

    starvation/stall: fraction of time, 0 to 1; near 0: always fed; near 1: the device mostly waits. Only fetches and
    steps count as time, not what lies between a step's end and the next fetch (validation, checkpoints, logging,
    waiting for other ranks). Over ranks: the mean.
    starvation/stall_max: the maximum over several ranks. The slowest rank delays all others, since a step ends when
    every rank's gradients have arrived: the run loses at least this fraction, and it is compared with `max_stall`.
    starvation/wait_p99_ms: 99th percentile of the fetches in ms (the maximum of fewer than 100); near 0: no step waits
    long. Over ranks: the maximum.
    starvation/queue_depth: mean number of batches ready at a fetch; near 0: the workers are the bottleneck. Over
    ranks: the minimum. Left out if unknown: without workers, or with several combined loaders.
    starvation/first_batch_seconds: once an epoch, from its start to its first batch, on the slowest rank; not part of
    the other metrics. In a fit's first epoch Lightning calls `iter()` earlier, so its time is not included.

    Args:
        every_n_steps: Steps (calls of `training_step`) in a window.
        max_stall: Largest allowed stall of a window, between 0 and 1.
        patience: Consecutive windows above `max_stall` that count as starved. A fit's first window, in which workers
            start, never counts.
        on_starved: "warn", once a fit; "fail", raise `StarvedError` on all ranks at the same step; "ignore", only log.

    Raises:
        UsageError: An argument is out of range.

    On CUDA stall is the time in which the device had no work, by events that are read two steps later without waiting;
    with several ranks the host waits for the device once a window, to exchange metrics. On CPUs it is the whole of a
    fetch, as in a profile, including the transfer of a batch that is ready. No state is saved in checkpoints: a
    resumed fit begins with a first window.

    """

    def __init__(
        self, *, every_n_steps: int = 50, max_stall: float = 0.05, patience: int = 2,
        on_starved: Literal["warn", "fail", "ignore"] = "warn",
    ) -> None:  # fmt: skip
        self.every_n_steps = require_int("every_n_steps", every_n_steps, minimum=1, example=50)
        self.patience = require_int("patience", patience, minimum=1, example=2)
        if on_starved not in ("warn", "fail", "ignore"):
            raise UsageError(f"on_starved={on_starved!r}: must be 'warn', 'fail' or 'ignore'; try 'warn'")
        self.max_stall = _check_fraction(max_stall)
        self.on_starved = on_starved

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attaches the timer to the Trainer's profiler."""
        self._steps = self._window_started_at_step = 0
        self._starved_since_steps: list[int] = []  # global_step at the start of each consecutive starved window
        self._warned = False
        self._wait_timer = DataWaitTimer(trainer)
        attach(trainer.profiler, self._wait_timer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Ends a step. Ranks exchange metrics after the same number of steps, so the collective calls match."""
        first_batch_seconds = self._wait_timer.step_ended()
        self._steps += 1
        if first_batch_seconds is not None:
            slowest = max(_gather(trainer, (first_batch_seconds,)))[0]
            _log(trainer, {"starvation/first_batch_seconds": slowest})
        if self._steps % self.every_n_steps == 0:
            window = self._wait_timer.pop_window()
            metrics = _reduce([WaitWindow(*values) for values in _gather(trainer, astuple(window))])
            _log(trainer, metrics)
            self._check_starved(trainer, metrics)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Detaches the timer: after an error Lightning does not call `teardown`."""
        detach(trainer.profiler)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Detaches the timer."""
        detach(trainer.profiler)

    def _check_starved(self, trainer: Any, metrics: dict[str, float]) -> None:
        started_at_step, self._window_started_at_step = self._window_started_at_step, trainer.global_step
        stall = metrics.get("starvation/stall_max", metrics.get("starvation/stall", 0.0))
        if self._steps == self.every_n_steps or stall <= self.max_stall:
            self._starved_since_steps.clear()
            return
        self._starved_since_steps.append(started_at_step)
        if len(self._starved_since_steps) < self.patience or self.on_starved == "ignore":
            return
        where = " on the slowest rank, which delays all others" if trainer.world_size > 1 else ""
        message = (
            f"stall={stall:.1%}: training waits for data{where}, for more of the time than max_stall="
            f"{self.max_stall:.1%} since step {self._starved_since_steps[0]}, and the device stands still meanwhile; "
            f"{_remedy(trainer.train_dataloader)} to see why, and what would help"
        )
        if self.on_starved == "fail":
            raise StarvedError(message, details=metrics)
        if not self._warned:
            warn(message)
        self._warned = True


def _remedy(loader: Any) -> str:
    if isinstance(loader, (FaceDataLoader, DevicePrefetcher)):
        return "run `facefeed profile OUT`"
    return "call `profile(loader, step)` of facefeed.loaders.profiler.profile"


def _check_fraction(max_stall: Any) -> float:
    share = as_float(max_stall)
    if not 0 < share < 1:
        raise UsageError(
            f"max_stall={max_stall!r}: must be a share of the time between 0 and 1, else every window would have more, "
            "or none; try 0.05"
        )
    return share


def _gather(trainer: Any, values: tuple[float, ...]) -> list[tuple[float, ...]]:
    """Gathers values of all ranks, by rank."""
    if trainer.world_size == 1:
        return [values]
    gathered = trainer.strategy.all_gather(torch.tensor(values, device=trainer.strategy.root_device))
    return [tuple(map(float, rank)) for rank in gathered.tolist()]


def _reduce(ranks: Sequence[WaitWindow]) -> dict[str, float]:
    """Reduces the ranks' windows to the metrics that are logged; unknown ones are left out."""
    known = [window for window in ranks if not math.isnan(window.stall)]
    depths = [window.queue_depth for window in ranks if not math.isnan(window.queue_depth)]
    metrics: dict[str, float] = {}
    if known:
        metrics["starvation/stall"] = sum(window.stall for window in known) / len(known)
        metrics["starvation/wait_p99_ms"] = max(window.wait_p99_ms for window in known)
        if len(ranks) > 1:
            metrics["starvation/stall_max"] = max(window.stall for window in known)
    if depths:
        metrics["starvation/queue_depth"] = min(depths)
    return metrics


def _log(trainer: Any, metrics: dict[str, float]) -> None:
    step = logged_step(trainer)
    for logger in trainer.loggers:
        logger.log_metrics(dict(metrics), step=step)
