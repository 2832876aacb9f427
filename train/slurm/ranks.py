"""Validates the options of `facefeed train` and `ladder` for an allocation, and adapts those of train to its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...pipeline.errors import UsageError
from ..config.checked_levers import checked_levers
from ..config.recipes import RECIPES, Config
from ..config.settings import with_overrides
from ..levers.compatibility import conflicts
from ..levers.lever import LeverError
from ..levers.registry import NO_RUNG, STRATEGIES, parse
from .command_options import parse_command


def with_ranks(arguments: Sequence[str], *, nodes: int, gpus_per_node: int) -> list[str]:
    """Returns OUT and the options of `facefeed train`, with the recipe made explicit and levers for these ranks.

    Several ranks need a strategy: without one `ddp:<ranks per node>:<nodes>` is added, and a `ddp`, `fsdp` or `zero`
    without numbers gets them. For one rank a recipe's own `ddp` is left out. The default recipe is chosen for the
    nodes, since this machine may differ. Raises `UsageError` on options that train would refuse, on numbers that differ
    from the allocation's, on levers that exclude each other, and on a `ddp` or `fsdp` of the user's own for one rank.
    """
    options = parse_command("train", arguments)
    recipe = options["recipe"] or _default_recipe(nodes, gpus_per_node)
    init_from = [] if options["init_from"] is None else [f"init_from={options['init_from']}"]
    config = with_overrides(RECIPES[recipe](), [*options["changes"], *init_from])
    levers = _levers(config, nodes, max(gpus_per_node, 1))
    if reasons := conflicts(checked_levers(replace(config, levers=levers))):
        raise LeverError("\n".join(reasons), details={"refusals": reasons})
    with_recipe = [*arguments] if options["recipe"] else [*arguments, "--recipe", recipe]
    return with_recipe if levers == config.levers else [*_without_levers(with_recipe), "--set", f"levers={levers}"]


def check_ladder(arguments: Sequence[str], *, gpus_per_node: int) -> None:
    """Raises `UsageError` on options that `facefeed ladder` would refuse on any node."""
    options = parse_command("ladder", arguments)
    recipe = options["recipe"] or ("fast" if gpus_per_node else "quick")
    with_overrides(RECIPES[recipe](), options["changes"])
    for text in options["levers"]:
        if text != NO_RUNG:
            parse(text)


def _default_recipe(nodes: int, gpus_per_node: int) -> str:
    if not gpus_per_node:
        return "quick"
    return "fast" if nodes * gpus_per_node == 1 else "multi-gpu"


def _levers(config: Config, nodes: int, ranks_per_node: int) -> str:
    text, is_single = config.levers, nodes * ranks_per_node == 1
    parts = [part.strip() for part in text.split(",") if part.strip()]
    strategy = next((part for part in parts if part.split(":")[0] in STRATEGIES), None)
    if strategy is None:
        return text if is_single else ",".join([f"ddp:{ranks_per_node}:{nodes}", *parts])
    lever: Any = parse(strategy)[0]  # all strategies have devices and nodes
    fitted = replace(lever, devices=ranks_per_node, nodes=nodes)
    if lever not in (fitted, replace(lever, devices="auto", nodes=1)):
        raise UsageError(
            f"levers={text}: {strategy} is for other ranks than {nodes} x {ranks_per_node}, those of --nodes and "
            f"--gpus-per-node; leave its numbers out"
        )
    if not is_single:
        return text if lever == fitted else ",".join(str(fitted) if part == strategy else part for part in parts)
    if lever.name == "zero":  # one GPU is enough to offload
        return text
    if text != RECIPES[config.recipe]().levers:
        raise UsageError(
            f"levers={text}: {strategy} is for several ranks, and --nodes and --gpus-per-node give one; leave it out"
        )
    return ",".join(part for part in parts if part != strategy)


def _without_levers(arguments: Sequence[str]) -> Iterator[str]:
    """Yields all arguments but `--set levers=...`."""
    words = iter(arguments)
    for word in words:
        value = word.removeprefix("--set=") if word.startswith("--set=") else None
        if word == "--set":
            value = next(words)
        if value is None or value.partition("=")[0].strip() != "levers":
            yield from (word,) if word != "--set" else (word, str(value))
