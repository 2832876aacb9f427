"""Levers together: which cannot be, and the Trainer that has them all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from ..machine import Machine
from .lever import Lever, LeverError, Reports
from .registry import LEVERS

_FLAT = "lays all weights out as one flat piece, in which"

# What cannot be together, by the beginning of both texts, and why; each with what to do instead.
_APART = (
    ("zero", "adamw8bit", f"zero {_FLAT} embeddings cannot keep 32 bits of state, and which it makes small by itself; "
     "leave adamw8bit out"),
    ("fsdp", "adamw8bit", "fsdp splits weights wherever its ranks' parts end, also inside the blocks of numbers that "
     "8-bit state has one scale for; leave adamw8bit out"),
    ("zero", "channels_last", f"zero {_FLAT} a layout is lost; leave channels_last out"),
    ("fsdp", "channels_last", "fsdp splits weights that lie contiguous alone; leave channels_last out"),
    ("zero:3", "compile", "zero:3 fetches weights from inside the module's calls, where torch.compile cannot follow; "
     "take zero:2, or leave compile out"),
)  # fmt: skip


def refusals(levers: Sequence[Lever], module: LightningModule, machine: Machine | None = None) -> list[str]:
    """Why these levers cannot work, one by one and together, each with what to do instead; empty where they can.

    machine: this one where it is left out.
    """
    machine = machine or Machine.detect()
    found = [lever.refusal(module, machine) for lever in levers]
    found += [_apart(one, other) for one, other in combinations(levers, 2)]
    found += [_freed(levers, module), _alone(levers)]
    return [reason for reason in found if reason]


def trainer(
    module: LightningModule, levers: Sequence[Lever], *, machine: Machine | None = None, **trainer_arguments: Any
) -> tuple[LightningModule, Trainer]:
    """What is to be trained, and a Trainer with the levers: `fit` it with that.

    trainer_arguments: Lightning's own; callbacks and plugins join those of the levers. Raises `LeverError`, with every
    reason there is, where `refusals` has any, or where an argument is a lever's.
    """
    machine = machine or Machine.detect()
    if trainer_arguments.get("accelerator") == "cpu":
        machine = machine.without_gpus()
    given = _adjusted(trainer_arguments, levers)
    settings = [lever.arguments() for lever in levers] if not (found := refusals(levers, module, machine)) else []
    found += _taken(given, levers, settings)
    if found:
        raise LeverError("\n".join(found), figures={"refusals": found})
    for lever in sorted(levers, key=lambda one: list(LEVERS).index(one.name)):  # in whatever order they were named
        module = lever.apply(module)
    return module, Trainer(**_joined([given, *settings]))


def figures(trainer: Trainer) -> dict[str, dict[str, Any]]:
    """What the levers and guards of a Trainer have to tell after a fit, by their names: plain values, for tables."""
    return {callback.name: callback.figures() for callback in trainer.callbacks if isinstance(callback, Reports)}


def _apart(one: Lever, other: Lever) -> str | None:
    if one.kind == other.kind:
        return f"{one} and {other}: both are levers of one kind ({one.kind}); leave one out"
    texts = (str(one), str(other))
    for first, second, reason in _APART:
        if all(any(text.startswith(name) for text in texts) for name in (first, second)):
            return f"{one} and {other}: {reason}"
    return None


def _freed(levers: Sequence[Lever], module: LightningModule) -> str | None:
    """DeepSpeed frees weights that have no gradient while torch still compares them with those of the second pass."""
    texts = [str(lever) for lever in levers]
    if "checkpointing" not in texts or not any(text.startswith("zero:3") for text in texts):
        return None
    if "freeze" not in {lever.name for lever in levers} and all(one.requires_grad for one in module.parameters()):
        return None
    return (
        "zero:3, checkpointing and frozen parameters: DeepSpeed frees frozen weights in the second pass, and torch "
        "stops at what is gone; take zero:2, or leave checkpointing or freeze out"
    )


def _alone(levers: Sequence[Lever]) -> str | None:
    """What exchanges figures between ranks, where there is one rank."""
    if "sync_batchnorm" not in {lever.name for lever in levers} or "strategy" in {lever.kind for lever in levers}:
        return None
    return "sync_batchnorm: is for several ranks, and no lever shares out the work; take ddp beside it, or leave it out"


def _adjusted(arguments: dict[str, Any], levers: Sequence[Lever]) -> dict[str, Any]:
    for lever in levers:
        arguments = lever.adjusted(arguments)
    return arguments


def _taken(given: dict[str, Any], levers: Sequence[Lever], settings: list[dict[str, Any]]) -> list[str]:
    """Arguments that a lever gives too, or takes back."""
    found = [
        f"{name}={given[name]!r}: is what the lever {lever} sets; leave one of them out"
        for lever, setting in zip(levers, settings, strict=False)
        for name in sorted(setting.keys() & given.keys() - _LISTS)
    ]
    if given.get("enable_checkpointing") is False:
        found += [
            f"enable_checkpointing=False: the lever {lever} writes checkpoints; leave one of them out"
            for lever, setting in zip(levers, settings, strict=False)
            if any(isinstance(one, Checkpoint) for one in setting.get("callbacks", []))
        ]
    return found


_LISTS = {"callbacks", "plugins"}


def _joined(settings: list[dict[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for setting in settings:
        for name, value in setting.items():
            joined[name] = [*joined.get(name, []), *_listed(value)] if name in _LISTS else value
    return joined


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
