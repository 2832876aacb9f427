"""What a training run is, whole: `Config`; and recipes, functions that return one.

A recipe is a beginning. `facefeed train OUT --recipe fast --set epochs=3` changes one value of it; what it came to is
written into the run's folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from ...pipeline.errors import UsageError
from .. import levers as lever_texts
from .options import DataOptions, ModelOptions

_LARGEST_SEED = 2**32 - 1  # numpy's


@dataclass(frozen=True, kw_only=True)
class Config:
    """All that decides what a run learns; with the dataset's fingerprint it is the run's identity.

    levers: their text form, as "bf16,accumulate:4"; see `levers.parse`. epochs, steps: passes through the training
    split, and optimizer steps (None: no limit of their own); the run ends with what comes first. seed: of the weights
    that are drawn and of dropout; `data.seed` is that of order and augmentations. save_every_minutes: between
    checkpoints, beside those at each epoch's end: what a SIGKILL can cost. init_from: a file of weights to begin with.

    Raises `UsageError` on values that cannot be meant.
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
        _whole("epochs", self.epochs, least=1, such_as=10)
        if self.steps is not None:
            _whole("steps", self.steps, least=1, such_as=1000)
        minutes = self.save_every_minutes
        if isinstance(minutes, bool) or not isinstance(minutes, (int, float)) or not 0 < minutes < math.inf:
            raise UsageError(f"save_every_minutes={minutes!r}: must be a number above 0; try 5")
        _whole("seed", self.seed, least=0, such_as=0)
        if self.seed > _LARGEST_SEED:
            raise UsageError(f"seed={self.seed}: must be at most {_LARGEST_SEED}, which is numpy's limit; try 0")
        lever_texts.parse(self.levers)


def _whole(name: str, value: object, *, least: int, such_as: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r}: must be a whole number; try {such_as}")
    if value < least:
        raise UsageError(f"{name}={value}: must be at least {least}; try {such_as}")


def quick() -> Config:
    """Small enough for a CPU: a ResNet-18 at 112 px, from scratch. Shows in minutes that all is in place."""
    return Config(
        recipe="quick",
        model=ModelOptions(backbone="resnet18", learning_rate=5e-4, warmup_steps=5),
        data=DataOptions(batch_size=16, image_size=112),
        epochs=5,
        save_every_minutes=1.0,
    )


def baseline() -> Config:
    """A pretrained ResNet-50 at 224 px in fp32, without any lever: what the others are measured against."""
    return Config(
        recipe="baseline",
        model=ModelOptions(
            backbone="resnet50", pretrained=True, learning_rate=1e-4, warmup_steps=200, label_smoothing=0.05
        ),
    )


def fast() -> Config:
    """The baseline with what costs no accuracy on one GPU from Ampere on (RTX 30, A100): bf16, TF32, channels_last,
    the fused optimizer, torch.compile.
    """
    return Config(
        recipe="fast",
        model=baseline().model,
        levers="bf16,tf32,channels_last,fused,compile,clip:1",
    )


def small_gpu() -> Config:
    """The baseline on a card of 8 to 11 GB, also before Ampere (RTX 2080 Ti): fp16, checkpointing, 8-bit AdamW; four
    batches of 16 are one step.
    """
    return Config(
        recipe="small-gpu",
        model=baseline().model,
        data=DataOptions(batch_size=16),
        levers="fp16,channels_last,accumulate:4,checkpointing,adamw8bit,clip:1",
    )


def multi_gpu() -> Config:
    """`fast` on all GPUs of a node, or under Slurm on those of several: each takes its own 64 images a step."""
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
