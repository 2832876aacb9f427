"""One kernel for many operations: torch.compile, with what it made of a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.utilities.rank_zero import rank_zero_info, rank_zero_warn
from torch._dynamo.utils import counters

from ..machine import Machine
from .lever import Lever

_VOLTA = (7, 0)


@dataclass(frozen=True)
class Compile(Lever):
    """Compiles the networks that the module calls, each in its place: names in checkpoints stay.

    Gives: fewer kernels and fewer ways to memory, for one line; most where many small operations follow each other.
    Costs: seconds to minutes in the first step, and again for each new shape of batch; a C compiler, and Triton on
    CUDA. What cannot be compiled breaks a graph in two and runs as before: how many graphs and breaks there were, and
    why, is told after the fit. `training_step` itself, which logs, is not compiled. Ansel et al., PyTorch 2, ASPLOS
    2024.
    """

    name: ClassVar[str] = "compile"
    kind: ClassVar[str] = "compile"
    form: ClassVar[str] = "compile"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Without a compiler; on GPUs that Triton has no code for; where there is nothing to compile."""
        if machine.compiler is None:
            return "compile: there is no C++ compiler, with which its kernels are built; install g++, or leave it out"
        if machine.gpus and not machine.has("triton"):
            return "compile: Triton, which writes its kernels on CUDA, is not installed; run `pip install triton`"
        if machine.compute_capability is not None and machine.compute_capability < _VOLTA:
            least = ".".join(map(str, machine.compute_capability))
            return f"compile: {machine.gpus[0]} has compute capability {least}, and Triton needs 7.0; leave it out"
        parts = list(networks(module))
        if not parts:
            return f"compile: {type(module).__name__} calls no network that is a part of it; leave it out"
        scripted = next((name for name, part in parts if isinstance(part, torch.jit.ScriptModule)), None)
        if scripted is not None:
            return f"compile: {scripted} is TorchScript, which is compiled already; leave it out"
        return None

    def arguments(self) -> dict[str, Any]:
        """A callback that tells what came of it."""
        return {"callbacks": [CompileReport()]}

    def apply(self, module: LightningModule) -> LightningModule:
        """Has each network compiled at its first call."""
        for _, part in networks(module):
            part.compile()
        return module


def networks(module: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """The outermost parts that have weights and can be called, by name; metrics and losses without weights are none."""
    for name, part in module.named_children():
        if isinstance(part, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            yield from networks(part, f"{prefix}{name}.")
        elif next(part.parameters(), None) is not None:
            yield f"{prefix}{name}", part


class CompileReport(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Counts a fit's graphs and graph breaks, and says them at its end; many breaks eat up what compiling gives."""

    name: ClassVar[str] = "compile"

    def __init__(self) -> None:
        self._graphs_before = 0
        self._breaks_before: Counter[str] = Counter()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to count."""
        self._graphs_before = _graphs()
        self._breaks_before = _breaks()

    def figures(self) -> dict[str, Any]:
        """graphs: how many were compiled; graph_breaks: how often one ended early; reasons: of these, with counts."""
        reasons = _breaks() - self._breaks_before
        return {
            "graphs": _graphs() - self._graphs_before,
            "graph_breaks": reasons.total(),
            "reasons": dict(reasons.most_common()),
        }

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Says it."""
        figures = self.figures()
        if not figures["graphs"]:
            rank_zero_warn("compile: nothing was compiled: training_step calls none of the module's networks")
            return
        breaks = "; ".join(f"{count}x {reason.splitlines()[0]}" for reason, count in figures["reasons"].items())
        rank_zero_info(
            f"compile: {figures['graphs']} graphs, {figures['graph_breaks']} graph breaks{': ' * bool(breaks)}{breaks}"
        )


def _graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def _breaks() -> Counter[str]:
    return Counter({str(reason): int(count) for reason, count in counters["graph_break"].items()})
