"""A process a device, with the mean of their gradients: DDP on one node and on several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import DDPStrategy

from ...machine import Machine
from ..lever import Lever, require_int


@dataclass(frozen=True)
class OnRanks(Lever):
    """A strategy for several processes: `devices` on each of `nodes` machines; all GPUs where devices are left out."""

    kind: ClassVar[str] = "strategy"

    devices: int | str = "auto"
    nodes: int = 1

    def __post_init__(self) -> None:
        if self.devices != "auto":
            require_int(self, "devices")
        require_int(self, "nodes")

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """With one process in all; with more than there are GPUs."""
        if self.devices == "auto":
            if self.nodes == 1 and len(machine.gpus) < 2:
                there = f"one GPU ({machine.gpus[0]})" if machine.gpus else "no GPU"
                least = f"{self.name}:2"
                return f"{self}: there is {there}, and so one process; leave it out, or on CPUs say how many: {least}"
        elif machine.gpus and int(self.devices) > len(machine.gpus):
            most = len(machine.gpus)
            ranks = f"{self.name}:{most}" if self.nodes == 1 else f"{self.name}:{most}:{self.nodes}"
            advice = f"take {ranks}{' or fewer' * (most > 1)}" if most * self.nodes > 1 else "leave it out"
            return f"{self}: there {'are' if most > 1 else 'is'} {most} GPU{'s' * (most > 1)}; {advice}"
        elif int(self.devices) * self.nodes == 1:
            return f"{self}: is one process, which has nobody to share with; leave it out, or take {self.name}:2"
        return None


@dataclass(frozen=True)
class Ddp(OnRanks):
    """A copy of the module on every device; each takes its own batches, and the gradients' mean is the same on all.

    devices: processes on this node; all GPUs where left out. nodes: machines, each of which runs the same command
    (Slurm's `srun` does that). Gives: 363 % on 4 nodes, 3.52 min instead of 8.75 on 4 GPUs; the loader's ranks take
    equal steps. Costs: the batch is `devices x nodes` times as large, so the learning rate may want to grow; a
    gradient's bytes over the network each step, mostly beside the backward pass. Parameters that take no part in the
    loss are an error in the second step: freeze them. Li et al., PyTorch Distributed, VLDB 2020.
    """

    name: ClassVar[str] = "ddp"
    form: ClassVar[str] = "ddp[:devices[:nodes]]"

    def arguments(self) -> dict[str, Any]:
        """The strategy DDP of torch, whose gradients are views of what is sent: one copy less of them."""
        return {
            "strategy": DDPStrategy(gradient_as_bucket_view=True),
            "devices": self.devices,
            "num_nodes": self.nodes,
        }
