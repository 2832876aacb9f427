"""Adapts a recipe's levers to the GPUs of a machine: unsupported levers are replaced or left out, with a note."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..levers.registry import STRATEGIES, min_compute_capability
from ..machine import Machine
from .recipes import RECIPES, Config


def fit_to_machine(config: Config, machine: Machine) -> tuple[Config, tuple[str, ...]]:
    """Returns the config with levers that the machine's GPUs support, and notes for the user, a sentence each.

    Only a recipe's own levers are changed: levers that a user names work or are refused. bf16 becomes fp16 on GPUs
    before Ampere, and fp32 on GPUs without tensor cores; TF32 and compilation are left out if unsupported.
    """
    parts = [part.strip() for part in config.levers.split(",") if part.strip()]
    kept, notes = parts, list[str]()
    if machine.compute_capability is not None and _has_recipe_levers(config, parts):
        kept = [supported for part in parts if (supported := _supported(part, machine))]
        if kept != parts:
            notes.append(
                f"recipe {config.recipe}: {', '.join(_describe_changes(parts, machine))}, since "
                f"{machine.compute_capability_text}{_missing_text(parts, machine)}; levers={','.join(kept) or 'none'}"
            )
    if len(machine.gpus) > 1 and not any(part.split(":")[0] in STRATEGIES for part in kept):
        notes.append(
            f"{len(machine.gpus)} GPUs, of which this run uses one; to use all: --recipe multi-gpu, or the lever ddp"
        )
    return (config if kept == parts else replace(config, levers=",".join(kept))), tuple(notes)


def _has_recipe_levers(config: Config, parts: list[str]) -> bool:
    """Whether all levers but the strategies are those of the recipe."""
    if config.recipe not in RECIPES:
        return False
    recipe_levers = RECIPES[config.recipe]().levers.split(",")
    return [part for part in parts if part.split(":")[0] not in STRATEGIES] == [
        part for part in recipe_levers if part and part.split(":")[0] not in STRATEGIES
    ]


def _supported(lever: str, machine: Machine) -> str | None:
    """Returns the lever, its replacement, or None."""
    if not machine.is_older_than(min_compute_capability(lever)) and not _missing_requirement(lever, machine):
        return lever
    return _supported("fp16", machine) if lever == "bf16" else None


def _missing_requirement(lever: str, machine: Machine) -> str | None:
    """Returns what compilation misses on the machine, else None."""
    if lever != "compile":
        return None
    return "no C++ compiler" if machine.compiler is None else None if machine.has("triton") else "no Triton"


def _describe_changes(parts: list[str], machine: Machine) -> Iterator[str]:
    for part in parts:
        supported = _supported(part, machine)
        if supported is None:
            yield f"{part} left out"
        elif supported != part:
            yield f"{supported} instead of {part}"


def _missing_text(parts: list[str], machine: Machine) -> str:
    return "".join(f" and the machine {missing}" for part in parts if (missing := _missing_requirement(part, machine)))
