"""A recipe's levers for the GPUs that there are: what these cannot do is replaced or left out, and said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..machine import Machine
from .recipes import RECIPES, Config

_TENSOR_CORES = (7, 0)
_NEEDS = {"bf16": (8, 0), "tf32": (8, 0), "compile": _TENSOR_CORES, "fp16": _TENSOR_CORES}
"""The compute capability from which on a lever works, or, as fp16, pays."""
_STRATEGIES = ("ddp", "zero", "fsdp")


def fitted(config: Config, machine: Machine) -> tuple[Config, tuple[str, ...]]:
    """The config with levers that the machine's GPUs can take, and what to say of it, a sentence each.

    Only levers that are the recipe's own are changed: those that a user names work or are refused. bf16 becomes fp16 on
    GPUs before Ampere, and fp32 on those without tensor cores; TF32 and compiling are left out where they cannot work.
    """
    parts = [part.strip() for part in config.levers.split(",") if part.strip()]
    kept = parts
    notes = []
    if machine.compute_capability is not None and _is_recipes_own(config, parts):
        kept = [part for one in parts if (part := _able(one, machine))]
        if kept != parts:
            capability = ".".join(map(str, machine.compute_capability))
            notes.append(
                f"recipe {config.recipe}: {', '.join(_changes(parts, machine))}, since {machine.gpus[0]} has compute "
                f"capability {capability}{_missing(parts, machine)}; levers={','.join(kept) or 'none'}"
            )
    if len(machine.gpus) > 1 and not any(part.split(":")[0] in _STRATEGIES for part in kept):
        notes.append(
            f"{len(machine.gpus)} GPUs, of which this run uses one; to use all: --recipe multi-gpu, or the lever ddp"
        )
    return (config if kept == parts else replace(config, levers=",".join(kept))), tuple(notes)


def _is_recipes_own(config: Config, parts: list[str]) -> bool:
    """Whether all levers but those that share out the work are as the recipe has them."""
    if config.recipe not in RECIPES:
        return False
    own = RECIPES[config.recipe]().levers.split(",")
    return [one for one in parts if one.split(":")[0] not in _STRATEGIES] == [
        one for one in own if one and one.split(":")[0] not in _STRATEGIES
    ]


def _able(lever: str, machine: Machine) -> str | None:
    """The lever, what stands in for it, or None."""
    assert machine.compute_capability is not None
    if machine.compute_capability >= _NEEDS.get(lever, (0, 0)) and not _lacks(lever, machine):
        return lever
    return _able("fp16", machine) if lever == "bf16" else None


def _lacks(lever: str, machine: Machine) -> str | None:
    """What compiling needs beside a GPU."""
    if lever != "compile":
        return None
    return "no C++ compiler" if machine.compiler is None else None if machine.has("triton") else "no Triton"


def _changes(parts: list[str], machine: Machine) -> Iterator[str]:
    for part in parts:
        able = _able(part, machine)
        if able is None:
            yield f"{part} left out"
        elif able != part:
            yield f"{able} instead of {part}"


def _missing(parts: list[str], machine: Machine) -> str:
    return "".join(f" and the machine {lacks}" for part in parts if (lacks := _lacks(part, machine)))
