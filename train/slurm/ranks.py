"""The options of `facefeed train` for the ranks of an allocation, checked before the job waits in a queue for hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...pipeline.errors import UsageError
from ..config.recipes import RECIPES
from ..config.settings import with_overrides
from ..levers.registry import STRATEGIES, parse
from .parsed import parsed


def with_ranks(arguments: Sequence[str], *, nodes: int, gpus_per_node: int) -> list[str]:
    """OUT and the options of `facefeed train`, with the recipe named and the levers those of so many ranks.

    Several ranks need a lever that shares the work: where there is none `ddp:<ranks of a node>:<nodes>` is added, and
    a `ddp`, `fsdp` or `zero` without numbers gets them. A recipe that was left out is chosen for the nodes, since this
    machine may be another. Raises `UsageError` on options that train would refuse, and on numbers that are not the
    allocation's.
    """
    asked = parsed("train", arguments)
    recipe = asked["recipe"] or _recipe(nodes, gpus_per_node)
    config = with_overrides(RECIPES[recipe](), asked["changes"])
    levers = _levers(config.levers, nodes, max(gpus_per_node, 1))
    kept = [*arguments] if asked["recipe"] else [*arguments, "--recipe", recipe]
    return kept if levers == config.levers else [*_without_levers(kept), "--set", f"levers={levers}"]


def _recipe(nodes: int, gpus_per_node: int) -> str:
    if not gpus_per_node:
        return "quick"
    return "fast" if nodes * gpus_per_node == 1 else "multi-gpu"


def _levers(text: str, nodes: int, ranks_per_node: int) -> str:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    found = next((part for part in parts if part.split(":")[0] in STRATEGIES), None)
    if found is None:
        return text if nodes * ranks_per_node == 1 else ",".join([f"ddp:{ranks_per_node}:{nodes}", *parts])
    lever: Any = parse(found)[0]  # with devices and nodes, as all of them have
    fitted = replace(lever, devices=ranks_per_node, nodes=nodes)
    if lever == replace(lever, devices="auto", nodes=1):
        alone = nodes * ranks_per_node == 1
        return text if alone else ",".join(str(fitted) if part == found else part for part in parts)
    if lever != fitted:
        raise UsageError(
            f"levers={text}: {found} is for other ranks than {nodes} x {ranks_per_node}, those of --nodes and "
            f"--gpus-per-node; leave its numbers out"
        )
    return text


def _without_levers(arguments: Sequence[str]) -> Iterator[str]:
    """All but `--set levers=...`, of which there may be one."""
    words = iter(arguments)
    for word in words:
        value = word.removeprefix("--set=") if word.startswith("--set=") else None
        if word == "--set":
            value = next(words)
        if value is None or value.partition("=")[0].strip() != "levers":
            yield from (word,) if word != "--set" else (word, str(value))
