"""Measures one repeat of one rung with a Trainer, a loader and a `Stopwatch`."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import seed_everything

from ... import levers
from ...config.recipes import Config
from ...levers import Lever
from ...process_groups import destroy_process_groups_at_exit
from ..messages import RungRequest
from ..results import Measurement, PeakMemory
from ..scheduler import RungError
from .schedule import MeasuredLength
from .stopwatch import Stopwatch, over_ranks
from .subject import create_module, load_config

if TYPE_CHECKING:
    from .batches import RungDataModule

_MIN_VALIDATION_BATCHES = 16
_EPOCHS = 10_000  # more than any measurement takes; the stopwatch ends the fit


def measure(request: RungRequest, folder: Path, on_step: Callable[[int, int], None]) -> dict[str, Any]:
    """Trains as `request` says and returns `Measurement` as plain values. Raises what training raises.

    folder: for files of training, such as checkpoints; the caller removes it. on_step: see `Stopwatch`.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    subject, config = request.subject, load_config(request.subject)
    seed_everything(config.seed + request.repeat, workers=True, verbose=False)
    host_before_bytes = levers.peak_memory()["host_bytes"]
    module = create_module(subject, config)
    data_module = None if request.data == "own" else _data_module(request, config)
    # Batches decoded from videos take hundreds of times as long, so only a few are measured.
    length = MeasuredLength(
        steps=request.steps, grid=request.grid, reference=request.reference, slow=request.data == "naive"
    )
    stopwatch = Stopwatch(length, on_step)
    rung_levers = levers.parse(",".join(request.levers))
    module, trainer = levers.trainer(
        module, rung_levers, callbacks=[stopwatch], default_root_dir=folder, **_arguments(request, rung_levers)
    )
    _limit_validation(trainer, request)
    trainer.fit(module, datamodule=data_module)
    destroy_process_groups_at_exit()
    if not stopwatch.steps:
        raise RungError(
            "the fit ended by itself before its warm-up was over, so no step was measured; remove what stops it, such "
            "as an EarlyStopping callback of the module"
        )
    return asdict(_measured(stopwatch, trainer, data_module, host_before_bytes=host_before_bytes or 0))


def _data_module(request: RungRequest, config: Config) -> RungDataModule:
    from .batches import RungDataModule  # noqa: PLC0415 (a module with its own batches needs none)

    return RungDataModule(request.subject, config, naive=request.data == "naive")


def _arguments(request: RungRequest, rung_levers: Sequence[Lever]) -> dict[str, Any]:
    """Returns Trainer arguments: one device, or all under a strategy; validation runs once, when the stopwatch stops.

    All strategies thus run on the same devices.
    """
    has_strategy = any(lever.kind == "strategy" for lever in rung_levers)
    return {
        **({} if has_strategy else {"devices": 1}),
        "max_epochs": _EPOCHS,
        "check_val_every_n_epoch": _EPOCHS,
        "num_sanity_val_steps": 0,
        "logger": request.subject.module is not None,  # a user's module may want one
        "enable_checkpointing": any(lever.name == "best" for lever in rung_levers),
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }


def _limit_validation(trainer: Any, request: RungRequest) -> None:
    """Limits a validation to as many batches, over all ranks, as steps are asked for, and as all rungs can share out.

    Rungs thus validate the same faces. Lightning's limit is that of each rank, whose number is known once there is a
    Trainer.
    """
    ranks = math.lcm(request.grid.ranks, trainer.world_size)
    batches = math.ceil(max(request.steps or 0, _MIN_VALIDATION_BATCHES) / ranks) * ranks
    trainer.limit_val_batches = batches // trainer.world_size


def _measured(
    stopwatch: Stopwatch, trainer: Any, data_module: RungDataModule | None, *, host_before_bytes: int
) -> Measurement:
    memory = levers.peak_memory()
    steps_per_epoch = stopwatch.steps_per_epoch
    if data_module is not None and data_module.is_naive:
        steps_per_epoch = data_module.steps_per_epoch()
    return Measurement(
        seconds=stopwatch.seconds, steps=stopwatch.steps, samples=stopwatch.samples,
        warm_up_steps=stopwatch.warm_up_steps, trained_samples=stopwatch.trained_samples, updates=stopwatch.updates,
        steps_per_epoch=steps_per_epoch, ending_seconds=stopwatch.ending_seconds,
        warm_up_seconds=stopwatch.warm_up_seconds, stall_share=stopwatch.stall_share,
        memory=PeakMemory(
            allocated_bytes=_most_of_ranks(trainer, memory["allocated_bytes"]),
            reserved_bytes=_most_of_ranks(trainer, memory["reserved_bytes"]),
            host_bytes=memory["host_bytes"] or 0, host_before_bytes=host_before_bytes,
        ),
        energy_joules=stopwatch.energy.joules, energy_reason=stopwatch.energy.reason,
        loss=stopwatch.loss, metrics=stopwatch.metrics, devices=trainer.world_size,
    )  # fmt: skip


def _most_of_ranks(trainer: Any, size_bytes: int | None) -> int | None:
    return None if size_bytes is None else int(over_ranks(trainer, size_bytes, "max"))
