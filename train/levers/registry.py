"""Registry of levers: every lever's name, class and traits, and the parser of texts such as `bf16,accumulate:4`.

A new lever needs an entry in `_SPECS` and a place in the ladder: in `LADDER_TEXTS` or in `NOT_ON_LADDER`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from ..machine import AMPERE, TENSOR_CORES
from .lever import Lever, LeverError


@dataclass(frozen=True)
class _LeverSpec:
    """Where a lever's class is, and traits that are needed without importing it: Lightning takes seconds.

    min_compute_capability: of GPUs on which a recipe uses it. is_strategy: runs several processes. is_interchangeable:
    a strategy whose checkpoints any other such strategy, and a single process, can resume from. changes_result: trains
    other weights than without it, so the ladder's best set includes it only on request.
    """

    module: str
    class_name: str
    min_compute_capability: tuple[int, int] = (0, 0)
    is_strategy: bool = False
    is_interchangeable: bool = False
    changes_result: bool = False


_SPECS = {
    "fp16": _LeverSpec("precision", "Fp16", min_compute_capability=TENSOR_CORES),  # works below, without a gain
    "bf16": _LeverSpec("precision", "Bf16", min_compute_capability=AMPERE),
    "tf32": _LeverSpec("precision", "Tf32", min_compute_capability=AMPERE),
    "sync_batchnorm": _LeverSpec("ranks.sync_batchnorm", "SyncBatchNorm", changes_result=True),
    "compile": _LeverSpec("compilation", "Compile", min_compute_capability=TENSOR_CORES),
    "ddp": _LeverSpec("ranks.ddp", "Ddp", is_strategy=True, is_interchangeable=True),
    "zero": _LeverSpec("ranks.sharded", "Zero", is_strategy=True),
    "fsdp": _LeverSpec("ranks.sharded", "Fsdp", is_strategy=True, is_interchangeable=True),
    "accumulate": _LeverSpec("accumulate", "Accumulate", changes_result=True),
    "freeze": _LeverSpec("freeze", "Freeze", changes_result=True),
    "adamw8bit": _LeverSpec("optimizers.eightbit", "AdamW8bit"),
    "fused": _LeverSpec("optimizers.fused", "Fused"),
    "checkpointing": _LeverSpec("activation_checkpointing", "Checkpointing"),
    "clip": _LeverSpec("clip", "Clip"),
    "channels_last": _LeverSpec("channels_last", "ChannelsLast"),
    "best": _LeverSpec("best_and_early_stop", "Best"),
    "early_stop": _LeverSpec("best_and_early_stop", "EarlyStop"),
    "deterministic": _LeverSpec("deterministic", "Deterministic"),
}
"""In the order in which levers are applied to a module."""

LADDER_TEXTS = (
    "tf32", "fp16", "bf16", "compile", "channels_last", "fused", "adamw8bit", "checkpointing", "accumulate:4", "clip:1",
    "deterministic", "ddp", "zero:1", "zero:2", "zero:3", "zero:3:offload", "fsdp",
)  # fmt: skip
"""Levers that `facefeed ladder` measures by default, each alone, in the order of its table."""
NO_RUNG = "none"
"""What `facefeed ladder --levers` takes beside levers: no rung."""
NOT_ON_LADDER = {
    "freeze": "which parameters is for you to say: --levers 'freeze:PATTERN'",
    "sync_batchnorm": "needs a lever that shares out the work beside it: --levers ddp,sync_batchnorm",
    "best": "of which metric is for you to say: --levers best:METRIC",
    "early_stop": "saves epochs, not time within one: nothing that a ladder could measure",
}
"""Levers that `facefeed ladder` lists but does not measure by default, and why."""

STRATEGIES = tuple(name for name, spec in _SPECS.items() if spec.is_strategy)
"""Levers that run several processes."""
INTERCHANGEABLE_STRATEGIES = tuple(name for name, spec in _SPECS.items() if spec.is_interchangeable)
"""Strategies that can resume from each other's checkpoints."""
RESULT_CHANGING = tuple(name for name, spec in _SPECS.items() if spec.changes_result)
"""Levers that train other weights: fewer updates, fewer trainable parameters, other batch statistics."""


def min_compute_capability(text: str) -> tuple[int, int]:
    """Returns the lowest compute capability of GPUs on which a recipe uses the lever of a text such as `bf16`."""
    return _SPECS[text].min_compute_capability if text in _SPECS else (0, 0)


class _LazyLevers(Mapping[str, type[Lever]]):
    """Maps names to lever classes, whose modules are imported on access."""

    def __getitem__(self, name: str) -> type[Lever]:
        spec = _SPECS[name]
        return cast("type[Lever]", getattr(import_module(f".{spec.module}", __package__), spec.class_name))

    def __iter__(self) -> Iterator[str]:
        return iter(_SPECS)

    def __len__(self) -> int:
        return len(_SPECS)

    def __contains__(self, name: object) -> bool:
        return name in _SPECS


LEVERS: Mapping[str, type[Lever]] = _LazyLevers()
"""Lever classes by name, in the order in which levers are applied to a module."""


def parse(text: str) -> tuple[Lever, ...]:
    """Parses levers from a text such as `bf16,clip:1,zero:2:offload`, in its order; none from an empty one.

    Raises `LeverError` on an unknown name, or on values that its lever does not take.
    """
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    return tuple(_parse_lever(part, text) for part in parts)


def _parse_lever(part: str, text: str) -> Lever:
    name, *values = (value.strip() for value in part.split(":"))
    if not name:
        raise LeverError(f"levers={text!r}: has an empty part; give names with commas between, such as bf16,fused")
    if name not in LEVERS:
        similar = get_close_matches(name, LEVERS, 3, 0.5) or list(LEVERS)
        remedy = "for no levers, leave the text empty" if name == "none" else f"try {', '.join(similar)}"
        raise LeverError(f"{part}: there is no lever {name!r}; {remedy}")
    return LEVERS[name].parse(values)
