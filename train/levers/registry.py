"""The levers by name, and their text form: `bf16,accumulate:4`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from .lever import Lever, LeverError

_WHERE = {
    "fp16": ("precision", "Fp16"),
    "bf16": ("precision", "Bf16"),
    "tf32": ("precision", "Tf32"),
    "sync_batchnorm": ("ranks.sync_batchnorm", "SyncBatchNorm"),
    "compile": ("compilation", "Compile"),
    "ddp": ("ranks.ddp", "Ddp"),
    "zero": ("ranks.sharded", "Zero"),
    "fsdp": ("ranks.sharded", "Fsdp"),
    "accumulate": ("accumulate", "Accumulate"),
    "freeze": ("freeze", "Freeze"),
    "adamw8bit": ("optimizers.eightbit", "AdamW8bit"),
    "fused": ("optimizers.fused", "Fused"),
    "checkpointing": ("activation_checkpointing", "Checkpointing"),
    "clip": ("clip", "Clip"),
    "channels_last": ("channels_last", "ChannelsLast"),
    "best": ("best_and_early_stop", "Best"),
    "early_stop": ("best_and_early_stop", "EarlyStop"),
    "deterministic": ("deterministic", "Deterministic"),
}


class _Levers(Mapping[str, type[Lever]]):
    """Imports a lever's module when it is asked for: Lightning takes seconds."""

    def __getitem__(self, name: str) -> type[Lever]:
        module, found = _WHERE[name]
        return cast("type[Lever]", getattr(import_module(f".{module}", __package__), found))

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)

    def __contains__(self, name: object) -> bool:
        return name in _WHERE


LEVERS: Mapping[str, type[Lever]] = _Levers()
"""Every lever's class by the name that texts call it, in the order in which they are applied."""


def parse(text: str) -> tuple[Lever, ...]:
    """The levers of a text such as `bf16,accumulate:4,zero:2:offload`, in its order; none of an empty one.

    Raises `LeverError` on a name that is none, or values that its lever cannot take.
    """
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    return tuple(_lever(part, text) for part in parts)


def _lever(part: str, text: str) -> Lever:
    name, *values = (value.strip() for value in part.split(":"))
    if not name:
        raise LeverError(f"levers={text!r}: has an empty part; give names with commas between, such as bf16,fused")
    if name not in LEVERS:
        near = get_close_matches(name, LEVERS, 3, 0.5) or list(LEVERS)
        raise LeverError(f"{part}: there is no lever {name!r}; try {', '.join(near)}")
    return LEVERS[name].parse(values)
