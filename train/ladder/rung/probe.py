"""Checks which levers can run here and which work together, on the module itself in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ....pipeline.errors import UsageError
from ... import levers
from ...machine import Machine
from ..messages import RungRequest, Subject
from ..scheduler import Combination
from .subject import create_module, has_train_dataloader, load_config


def probe(request: RungRequest) -> dict[str, Any]:
    """Returns recipe, module size and machine, and for each text of levers why it cannot run here.

    The texts include the recipe's own levers. Raises `UsageError` if the module cannot be created, a text cannot be
    parsed, there are no batches, or no rung could load them.
    """
    subject = request.subject
    config = load_config(subject)
    module, machine = create_module(subject, config), Machine.detect()
    has_own_data = has_train_dataloader(module)
    if has_own_data and subject.out is not None:
        raise UsageError(f"{subject.out}: --module {subject.module} brings its own batches; leave OUT out")
    if not has_own_data and subject.out is None:
        raise UsageError(f"--module {subject.module}: has no train_dataloader, so it needs batches of faces; give OUT")
    if subject.module is not None:
        _check_used(subject, has_own_data=has_own_data)
    if not has_own_data:
        from .batches import RungDataModule  # noqa: PLC0415 (a module with its own batches needs none)

        RungDataModule(subject, config, naive=False).check()
    texts = dict.fromkeys(["", *request.levers, config.levers])
    return {
        "recipe": config.recipe,
        "recipe_levers": config.levers,
        "own_data": has_own_data,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "batches": {text: _batches_per_update(text, machine) for text in texts},
        "refusals": {text: levers.refusals(levers.parse(text), module, machine) for text in texts},
        "machine": {**asdict(machine), "packages": sorted(machine.packages)},
    }


def _check_used(subject: Subject, *, has_own_data: bool) -> None:
    """Raises `UsageError` on a setting that no rung of the user's module depends on."""
    replaced = {"model": "model", "init_from": "weights", **({"data": "data"} if has_own_data else {})}
    for change in subject.changes:
        name, _, value = change.partition("=")
        if (part := name.strip().split(".")[0]) in replaced:
            raise UsageError(f"--set {change}: --module {subject.module} brings its own {replaced[part]}; leave it out")
        if part == "levers" and has_own_data:
            raise UsageError(
                f"--set {change}: --module {subject.module} brings its own batches, so it has no recipe, of whose "
                f"levers a rung would be; take --levers {value}"
            )
    if subject.run_changes:
        raise UsageError(
            f"--set {subject.run_changes[0]}: no rung depends on it; leave it out, or take --steps for the number of "
            "steps that are measured"
        )


def _batches_per_update(text: str, machine: Machine) -> tuple[int, int]:
    """Returns of how many ranks the rung of some levers is, and how many batches each rank accumulates."""
    chosen: dict[str, Any] = {lever.kind: lever for lever in levers.parse(text)}
    strategy, accumulate = chosen.get("strategy"), chosen.get("accumulate")
    if strategy is None:
        return 1, 1 if accumulate is None else accumulate.batches
    devices = max(len(machine.gpus), 1) if strategy.devices == "auto" else strategy.devices
    return devices * strategy.nodes, 1 if accumulate is None else accumulate.batches


def combine(request: RungRequest) -> dict[str, Any]:
    """Returns `Combination` as plain values, for levers that each can run here."""
    module = create_module(request.subject, load_config(request.subject))
    return asdict(greedy_combination(request.levers, module, Machine.detect()))


def greedy_combination(texts: Sequence[str], module: Any, machine: Machine) -> Combination:
    """Adds the levers of texts that are not in yet, text by text, if they work with those added before."""
    chosen: list[str] = []
    left_out: dict[str, str] = {}
    for text in texts:
        added = ",".join(part for part in text.split(",") if part not in ",".join(chosen).split(","))
        if not added:
            continue
        reasons = levers.refusals(levers.parse(",".join([*chosen, added])), module, machine)
        if reasons:
            left_out[text] = "; ".join(reasons)
        else:
            chosen.append(added)
    return Combination(tuple(chosen), left_out)
