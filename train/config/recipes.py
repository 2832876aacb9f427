"""`Config`, all settings of a training run, and recipes: functions that return a complete config.

`facefeed train OUT --recipe fast --set epochs=3` overrides one value of a recipe; the resulting config is written to
the run's folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ...loaders.whole_numbers import optional_int, require_int
from ...pipeline.errors import UsageError
from .. import levers
from .options import DataOptions, ModelOptions

_MAX_SEED = 2**32 - 1  # numpy's


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings that affect training; with the dataset's fingerprint they identify a run.

    levers: in their text form, such as "bf16,accumulate:4"; see `levers.parse`. epochs, steps: the run ends after so
    many passes through the training split or optimizer steps (None: no limit), whichever is reached first. seed: of
    initial weights and dropout; `data.seed` is that of order and augmentations. save_every_minutes: between
    checkpoints, in addition to those at each epoch's end; the most that a SIGKILL can lose. init_from: a file of
    initial weights.

    Raises `UsageError` on values out of range.
    """

    recipe: str
    model: ModelOptions = field(default_factory=ModelOptions)
    data: DataOptions = field(default_factory=DataOptions)
    levers: str = ""
    epochs: int = 10
    steps: int | None = None
    seed: int = 0
    save_every_minutes: float = 5.0
    init_from: str | None = None

    def __post_init__(self) -> None:
        counts = {
            "epochs": require_int("epochs", self.epochs, minimum=1, example=10),
            "steps": optional_int("steps", self.steps, minimum=1, example=1000),
            "seed": require_int("seed", self.seed, minimum=0, example=0),
        }
        for name, value in counts.items():
            object.__setattr__(self, name, value)
        minutes = self.save_every_minutes
        if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not 0 < minutes < math.inf:
            raise UsageError(f"save_every_minutes={minutes!r}: must be a number above 0; try 5")
        if self.seed > _MAX_SEED:
            raise UsageError(f"seed={self.seed}: must be at most {_MAX_SEED}, which is numpy's limit; try 0")
        levers.parse(self.levers)


def quick() -> Config:
    """Small enough for a CPU: a ResNet-18 at 112 px, from scratch. Takes minutes; a check that everything works."""
    return Config(
        recipe="quick",
        model=ModelOptions(backbone="resnet18", learning_rate=5e-4, warmup_steps=5),
        data=DataOptions(batch_size=16, image_size=112),
        epochs=5,
        save_every_minutes=1.0,
    )


def baseline() -> Config:
    """A pretrained ResNet-50 at 224 px in fp32, without levers: the baseline of the other recipes."""
    return Config(
        recipe="baseline",
        model=ModelOptions(
            backbone="resnet50", pretrained=True, learning_rate=1e-4, warmup_steps=200, label_smoothing=0.05
        ),
    )


def fast() -> Config:
    """The baseline with levers that cost no accuracy, for one GPU from Ampere on (RTX 30, A100): bf16, TF32,
    channels_last, the fused optimizer, torch.compile.
    """
    return Config(
        recipe="fast",
        model=baseline().model,
        levers="bf16,tf32,channels_last,fused,compile,clip:1",
    )


def small_gpu() -> Config:
    """The baseline for a GPU of 8 to 11 GB, also before Ampere (RTX 2080 Ti): fp16, activation checkpointing, 8-bit
    AdamW, and a step of four accumulated batches of 16.
    """
    return Config(
        recipe="small-gpu",
        model=baseline().model,
        data=DataOptions(batch_size=16),
        levers="fp16,channels_last,accumulate:4,checkpointing,adamw8bit,clip:1",
    )


def multi_gpu() -> Config:
    """`fast` under DDP on all GPUs of a node, or of several under Slurm: 64 images per GPU and step."""
    return Config(
        recipe="multi-gpu",
        model=fast().model,
        levers=f"ddp,{fast().levers}",
    )


RECIPES: dict[str, Callable[[], Config]] = {
    "quick": quick,
    "baseline": baseline,
    "fast": fast,
    "small-gpu": small_gpu,
    "multi-gpu": multi_gpu,
}
