"""Adapts a recipe's levers to the GPUs of a machine: unsupported levers are replaced or left out, with a note."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from ..levers.registry import STRATEGIES, min_compute_capability
from ..machine import AMPERE, PACKAGES, TENSOR_CORES, Machine
from .recipes import RECIPES, Config

_KINDS = tuple(
    Machine(gpus=("",), compute_capability=capability, packages=frozenset(PACKAGES), compiler=compiler)
    for capability, compiler in product(((0, 0), TENSOR_CORES, AMPERE), (None, "c++"))
)
"""A machine of each kind that levers are fitted to."""


def fit_to_machine(
    config: Config, machine: Machine, *, begun_levers: str | None = None
) -> tuple[Config, tuple[str, ...]]:
    """Returns the config with levers that the machine's GPUs support, and notes for the user, a sentence each.

    Only a recipe's own levers are changed: levers that a user names work or are refused. bf16 becomes fp16 on GPUs
    before Ampere, and fp32 on GPUs without tensor cores; TF32 and compilation are left out if unsupported.

    begun_levers: those of the run that is resumed (`RunFolder.begun_levers`), None for a new one. They stay, supported
    or not, where the recipe was fitted to another machine then: a run has the same levers to its end.
    """
    parts = _split(config.levers)
    kept, notes = parts, list[str]()
    if _has_recipe_levers(config, parts):
        kept = _fitted(parts, machine)
        begun = kept if begun_levers is None else _fitted_before(parts, begun_levers) or kept
        if begun != kept:
            notes.append(
                f"recipe {config.recipe}: levers={','.join(begun)}, with which the run began; a new run would have "
                f"{','.join(kept)} here"
            )
            kept = begun
        elif kept != parts:
            notes.append(
                f"recipe {config.recipe}: {', '.join(_describe_changes(parts, machine))}, since "
                f"{machine.compute_capability_text}{_missing_text(parts, machine)}; levers={','.join(kept)}"
            )
    if len(machine.gpus) > 1 and not any(map(_is_strategy, kept)):
        notes.append(
            f"{len(machine.gpus)} GPUs, of which this run uses one; to use all: --recipe multi-gpu, or the lever ddp"
        )
    return (config if kept == parts else replace(config, levers=",".join(kept))), tuple(notes)


def _split(levers: str) -> list[str]:
    return [part.strip() for part in levers.split(",") if part.strip()]


def _is_strategy(lever: str) -> bool:
    return lever.partition(":")[0] in STRATEGIES


def _without_strategy(parts: list[str]) -> list[str]:
    return [part for part in parts if not _is_strategy(part)]


def _has_recipe_levers(config: Config, parts: list[str]) -> bool:
    """Whether all levers but the strategies are those of the recipe."""
    if config.recipe not in RECIPES:
        return False
    return _without_strategy(parts) == _without_strategy(_split(RECIPES[config.recipe]().levers))


def _fitted(parts: list[str], machine: Machine) -> list[str]:
    if machine.compute_capability is None:
        return parts
    return [supported for part in parts if (supported := _supported(part, machine))]


def _fitted_before(parts: list[str], levers: str) -> list[str] | None:
    """Returns a recipe's levers as fitted to the kind of machine on which they were `levers`, None if on no kind.

    The strategy is not compared: a run may continue with another.
    """
    fits = (_fitted(parts, kind) for kind in _KINDS)
    return next((fit for fit in fits if _without_strategy(fit) == _without_strategy(_split(levers))), None)


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
