"""Checks of combinations of levers, and construction of a Trainer with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from ..lightning_internals import AVERAGING_CALLBACKS
from ..machine import Machine
from .lever import HasMetrics, Lever, LeverError
from .registry import LEVERS

_SHARDING = ("fsdp", "zero")
_FLATTENS = "lays all weights out as one flat piece, in which"

# Pairs that exclude each other, by prefixes of both texts; why, and what to do instead.
_CONFLICTS = (
    ("zero", "adamw8bit", f"zero {_FLATTENS} embeddings cannot keep 32 bits of state, and which it makes small by "
     "itself; leave adamw8bit out"),
    ("fsdp", "adamw8bit", "fsdp splits weights wherever its ranks' parts end, also inside the blocks of numbers that "
     "8-bit state has one scale for; leave adamw8bit out"),
    ("zero", "channels_last", f"zero {_FLATTENS} a layout is lost; leave channels_last out"),
    ("fsdp", "channels_last", "fsdp splits weights that lie contiguous alone; leave channels_last out"),
    ("zero", "accumulate", "Lightning and DeepSpeed both divide the loss by the number of batches, so gradients are "
     "too small, and DeepSpeed's groups continue across epochs; take fsdp, or leave accumulate out"),
    ("zero:3", "compile", "zero:3 fetches weights from inside the module's calls, where torch.compile cannot follow; "
     "take zero:2, or leave compile out"),
)  # fmt: skip


def refusals(levers: Sequence[Lever], module: LightningModule, machine: Machine | None = None) -> list[str]:
    """Returns why these levers cannot work, alone and together, each with what to do instead; empty if they can.

    machine: None for this one.
    """
    machine = machine or Machine.detect()
    reasons = [lever.refusal(module, machine) for lever in levers]
    has_frozen = not all(parameter.requires_grad for parameter in module.parameters())
    return [*(reason for reason in reasons if reason), *conflicts(levers, has_frozen=has_frozen)]


def conflicts(levers: Sequence[Lever], *, has_frozen: bool = False) -> list[str]:
    """Returns why the levers cannot work together: those of the `refusals` that hold for any machine.

    has_frozen: whether parameters of the module are frozen as it is.
    """
    reasons = [_conflict(lever, other) for lever, other in combinations(levers, 2)]
    reasons += [_freed_weights_refusal(levers, has_frozen), _single_rank_refusal(levers)]
    return [reason for reason in reasons if reason]


def trainer(
    module: LightningModule, levers: Sequence[Lever], *, machine: Machine | None = None, **trainer_arguments: Any
) -> tuple[LightningModule, Trainer]:
    """Applies levers to a module; returns the module to train and a Trainer with the levers.

    trainer_arguments: of Lightning's Trainer; callbacks and plugins are merged with those of the levers. Raises
    `LeverError`, with all reasons at once, if there are `refusals` or an argument that a lever sets.
    """
    machine = machine or Machine.detect()
    if trainer_arguments.get("accelerator") == "cpu":
        machine = machine.without_gpus()
    reasons = refusals(levers, module, machine)
    lever_arguments = [] if reasons else [lever.arguments() for lever in levers]
    reasons += _argument_conflicts(trainer_arguments, levers, lever_arguments)
    if reasons:
        raise LeverError("\n".join(reasons), details={"refusals": reasons})
    for lever in sorted(levers, key=lambda lever: list(LEVERS).index(lever.name)):  # in the registry's order
        module = lever.apply(module)
    return module, Trainer(**_merge([trainer_arguments, *lever_arguments]))


def metrics(trainer: Trainer) -> dict[str, dict[str, Any]]:
    """Returns the metrics that the callbacks of levers report after a fit, by lever: plain values, for tables."""
    return {callback.name: callback.metrics() for callback in trainer.callbacks if isinstance(callback, HasMetrics)}


def _conflict(lever: Lever, other: Lever) -> str | None:
    if lever.kind == other.kind:
        return f"{lever} and {other}: both are levers of one kind ({lever.kind}); leave one out"
    texts = (str(lever), str(other))
    for first, second, reason in _CONFLICTS:
        if all(any(text.startswith(name) for text in texts) for name in (first, second)):
            return f"{lever} and {other}: {reason}"
    return None


def _freed_weights_refusal(levers: Sequence[Lever], has_frozen: bool) -> str | None:
    """Refuses zero:3 with checkpointing and frozen parameters.

    DeepSpeed frees weights without a gradient while torch still compares them with those of the recomputation.
    """
    texts = [str(lever) for lever in levers]
    if "checkpointing" not in texts or not any(text.startswith("zero:3") for text in texts):
        return None
    if "freeze" not in {lever.name for lever in levers} and not has_frozen:
        return None
    return (
        "zero:3, checkpointing and frozen parameters: DeepSpeed frees frozen weights in the second pass, and torch "
        "stops at what is gone; take zero:2, or leave checkpointing or freeze out"
    )


def _single_rank_refusal(levers: Sequence[Lever]) -> str | None:
    """Refuses sync_batchnorm without a strategy of several ranks."""
    if "sync_batchnorm" not in {lever.name for lever in levers} or "strategy" in {lever.kind for lever in levers}:
        return None
    return "sync_batchnorm: is for several ranks, and no lever shares out the work; take ddp beside it, or leave it out"


def _argument_conflicts(
    user_arguments: dict[str, Any], levers: Sequence[Lever], lever_arguments: list[dict[str, Any]]
) -> list[str]:
    """Returns conflicts between the user's arguments and those of levers."""
    reasons = [
        f"{name}={user_arguments[name]!r}: is what the lever {lever} sets; leave one of them out"
        for lever, arguments in zip(levers, lever_arguments, strict=False)
        for name in sorted(arguments.keys() & user_arguments.keys() - _LIST_ARGUMENTS)
        if arguments[name] != user_arguments[name]
    ]
    reasons += [
        f"{type(callback).__name__} and {lever}: the callback averages whole weights, and checkpoints of {lever.name} "
        "would have those in training in place of their average; take ddp, or leave the callback out"
        for callback in _as_list(user_arguments.get("callbacks"))
        for lever in levers
        if isinstance(callback, AVERAGING_CALLBACKS) and lever.name in _SHARDING
    ]
    if user_arguments.get("enable_checkpointing") is False:
        reasons += [
            f"enable_checkpointing=False: the lever {lever} writes checkpoints; leave one of them out"
            for lever, arguments in zip(levers, lever_arguments, strict=False)
            if any(isinstance(callback, Checkpoint) for callback in arguments.get("callbacks", []))
        ]
    return reasons


_LIST_ARGUMENTS = {"callbacks", "plugins"}


def _merge(lever_arguments: list[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for arguments in lever_arguments:
        for name, value in arguments.items():
            merged[name] = [*merged.get(name, []), *_as_list(value)] if name in _LIST_ARGUMENTS else value
    return merged


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
