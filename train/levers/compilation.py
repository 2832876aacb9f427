"""torch.compile, with a report on graphs and graph breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from ..machine import TENSOR_CORES, Machine
from ..torch_internals import choose_calls_to_compile, dynamo_counters
from ..warning import warn
from .lever import Lever


@dataclass(frozen=True)
class Compile(Lever, name="compile"):
    """Compiles the networks that the module calls, in place: names in the state dict do not change.

    Gives: fewer kernels and less memory traffic; most for sequences of many small operations. Costs: seconds to
    minutes in the first step, in the first of validation, and again for each new batch shape; a batch that is only
    smaller than one before it, as the last of an epoch, runs as before. Needs a C++ compiler, and Triton on CUDA. What
    cannot be compiled breaks a graph and runs as before; the numbers of graphs and breaks, with reasons, are reported
    after the fit. `training_step` itself, which logs, is not compiled. Ansel et al., PyTorch 2, ASPLOS 2024.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses without a compiler, on GPUs that Triton does not support, and a module without networks."""
        if machine.compiler is None:
            return "compile: there is no C++ compiler, with which its kernels are built; install g++, or leave it out"
        if machine.gpus and not machine.has("triton"):
            return "compile: Triton, which writes its kernels on CUDA, is not installed; run `pip install triton`"
        if machine.is_older_than(TENSOR_CORES):
            return f"compile: {machine.compute_capability_text}, and Triton needs 7.0; leave it out"
        submodules = list(networks(module))
        if not submodules:
            return f"compile: {type(module).__name__} calls no network that is a part of it; leave it out"
        scripted = next((name for name, submodule in submodules if isinstance(submodule, torch.jit.ScriptModule)), None)
        if scripted is not None:
            return f"compile: {scripted} is TorchScript, which is compiled already; leave it out"
        return None

    def arguments(self) -> dict[str, Any]:
        """Returns a callback that reports graphs and graph breaks."""
        return {"callbacks": [CompileReport()]}

    def apply(self, module: LightningModule) -> LightningModule:
        """Marks each network for compilation at its first call."""
        for _, submodule in networks(module):
            submodule.compile()
            choose_calls_to_compile(submodule, _LargestBatches())
        return module


class _LargestBatches:
    """Whether inputs are no smaller a batch than those of the same shapes before it, with and without gradients."""

    def __init__(self) -> None:
        self._largest: dict[Any, int] = {}

    def __call__(self, *inputs: Any, **options: Any) -> bool:
        tensors = [value for value in (*inputs, *options.values()) if isinstance(value, torch.Tensor) and value.ndim]
        if not tensors:
            return True
        kind = torch.is_grad_enabled(), *(tensor.shape[1:] for tensor in tensors)
        size = len(tensors[0])
        if size < self._largest.get(kind, 0):
            return False
        self._largest[kind] = size
        return True


def networks(module: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields the outermost callable submodules with weights, by name; metrics and losses have none."""
    for name, submodule in module.named_children():
        if isinstance(submodule, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            yield from networks(submodule, f"{prefix}{name}.")
        elif next(submodule.parameters(), None) is not None:
            yield f"{prefix}{name}", submodule


class CompileReport(Callback):  # type: ignore[misc]  # Lightning is not followed
    """Counts graphs and graph breaks of a fit and logs them at its end; many breaks cancel the gain of compilation."""

    name: ClassVar[str] = "compile"

    def __init__(self) -> None:
        self._graphs_before = 0
        self._breaks_before: Counter[str] = Counter()
        self._has_trained = False

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Stores the counts before the fit."""
        self._has_trained = False
        self._graphs_before = _count_graphs()
        self._breaks_before = _count_breaks()

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        """Records that `training_step` was called: in a resumed fit no step may be left."""
        self._has_trained = True

    def metrics(self) -> dict[str, Any]:
        """Returns graphs: number compiled; graph_breaks: number of breaks; reasons: of these, with counts."""
        reasons = _count_breaks() - self._breaks_before
        return {
            "graphs": _count_graphs() - self._graphs_before,
            "graph_breaks": reasons.total(),
            "reasons": dict(reasons.most_common()),
        }

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Logs the counts."""
        metrics = self.metrics()
        if not metrics["graphs"]:
            if self._has_trained:
                warn("compile: nothing was compiled: training_step calls none of the module's networks")
            return
        breaks = "; ".join(f"{count}x {reason.splitlines()[0]}" for reason, count in metrics["reasons"].items())
        rank_zero_info(
            f"compile: {metrics['graphs']} graphs, {metrics['graph_breaks']} graph breaks{': ' * bool(breaks)}{breaks}"
        )


def _count_graphs() -> int:
    return int(dynamo_counters["stats"]["unique_graphs"])


def _count_breaks() -> Counter[str]:
    return Counter({str(reason): int(count) for reason, count in dynamo_counters["graph_break"].items()})
