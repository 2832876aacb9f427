"""One repeat of one rung: a real Trainer, a real loader, and a clock."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch import seed_everything

from ... import levers as lever_texts
from ...config.recipes import Config
from ...levers import peak_memory
from ..messages import Question
from ..results import Measured, Memory
from .stopwatch import Length, Stopwatch
from .subject import config_of, module_of

if TYPE_CHECKING:
    from .batches import Faces

_LEAST_VALIDATION_BATCHES = 16
_EPOCHS = 10_000  # more than any measurement takes; it is the stopwatch that ends a fit


def measure(question: Question, folder: Path, tell: Callable[[int, int], None]) -> dict[str, Any]:
    """Trains as `question` says and returns `Measured` as plain values. Raises what training raises.

    folder: for what training writes, as checkpoints; whoever asked removes it. tell: see `Stopwatch`.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    subject, config = question.subject, config_of(question.subject)
    seed_everything(config.seed + question.repeat, workers=True, verbose=False)
    before = peak_memory()["host_bytes"]
    module = module_of(subject, config)
    faces = None if question.data == "own" else _faces(question, config)
    # Batches made from videos take hundreds of times as long: a few tell what the others would take.
    watch = Stopwatch(Length(question.steps, slow=question.data == "naive"), tell)
    taken = lever_texts.parse(",".join(question.levers))
    module, trainer = lever_texts.trainer(
        module, taken, callbacks=[watch], default_root_dir=folder, **_arguments(question, taken)
    )
    trainer.fit(module, datamodule=faces)
    if not watch.steps:
        raise RuntimeError("the fit ended by itself before its warm-up was over; give it more batches or epochs")
    return asdict(_measured(watch, trainer, faces, host_before_bytes=before or 0))


def _faces(question: Question, config: Config) -> Faces:
    from .batches import Faces  # noqa: PLC0415 (not for a module with batches of its own)

    return Faces(question.subject, config, naive=question.data == "naive")


def _arguments(question: Question, taken: Any) -> dict[str, Any]:
    """The Trainer's: one device, or all where a lever shares the work; it validates once, when the stopwatch stops it.

    So all rungs of several devices have the same ones, whichever strategy they are of.
    """
    shared = any(lever.kind == "strategy" for lever in taken)
    return {
        **({} if shared else {"devices": 1}),
        "max_epochs": _EPOCHS,
        "check_val_every_n_epoch": _EPOCHS,
        "limit_val_batches": max(question.steps or 0, _LEAST_VALIDATION_BATCHES),
        "num_sanity_val_steps": 0,
        "logger": question.subject.module is not None,  # a user's module may want one
        "enable_checkpointing": any(lever.name == "best" for lever in taken),
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }


def _measured(watch: Stopwatch, trainer: Any, faces: Faces | None, *, host_before_bytes: int) -> Measured:
    memory = peak_memory()
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if not name.startswith("train")}
    naive = faces is not None and faces.is_naive
    return Measured(
        seconds=watch.seconds, steps=watch.steps, samples=watch.samples,
        steps_per_epoch=faces.steps_per_epoch() if naive and faces is not None else watch.steps_per_epoch,
        ending_seconds=watch.ending_seconds, warm_up_seconds=watch.warm_up_seconds, stall_share=watch.stall_share,
        memory=Memory(
            allocated_bytes=memory["allocated_bytes"], reserved_bytes=memory["reserved_bytes"],
            host_bytes=memory["host_bytes"] or 0, host_before_bytes=host_before_bytes,
        ),
        loss=watch.loss, metrics=metrics, devices=trainer.world_size,
    )  # fmt: skip
