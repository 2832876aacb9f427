"""State, gradients and weights shared out over devices: DeepSpeed's ZeRO, and torch's FSDP2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from lightning.pytorch import LightningModule

from ...machine import Machine
from ..lever import Lever, LeverError, require_int
from .ddp import OnRanks
from .fsdp_strategy import ShardedStrategy
from .zero_strategy import ZeroStrategy


@dataclass(frozen=True)
class Zero(Lever):
    """ZeRO of DeepSpeed: a device keeps a part of the optimizer's state (1), of gradients too (2), of weights too (3).

    offload: "offload" keeps that state, and at stage 3 the weights, in the host's memory, and steps there. devices and
    nodes: as of ddp. Gives: 12 bytes a parameter of AdamW divided by the devices at stage 1, 14 and 16 at 2 and 3 (with
    fp16), for larger models or batches; 3.15 min instead of 8.75 on 4 GPUs, and 2153 % in all with fp16 and data made
    before. On one device only offload saves memory. Costs: as DDP to the network, half as much again at stage 3; with
    offload a slow step over the bus. One optimizer; checkpoints are folders, which the same stage on as many ranks
    resumes from. Rajbhandari et al., ZeRO, SC 2020, and ZeRO-Offload, ATC 2021.
    """

    name: ClassVar[str] = "zero"
    kind: ClassVar[str] = "strategy"
    form: ClassVar[str] = "zero:1|2|3[:offload][:devices[:nodes]]"

    stage: int
    offload: str = ""
    devices: int | str = "auto"
    nodes: int = 1

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """Of a text that may leave `offload` out before devices."""
        leaves_out = len(values) > 1 and (values[1].isdigit() or values[1] == "auto")
        return super().parse([values[0], "", *values[1:]] if leaves_out else values)

    def __str__(self) -> str:
        return super().__str__().replace("::", ":")

    def __post_init__(self) -> None:
        require_int(self, "stage")
        if self.devices != "auto":
            require_int(self, "devices")
        require_int(self, "nodes")
        if self.stage > 3 or self.offload not in ("", "offload"):
            raise LeverError(f"{self}: stage must be 1, 2 or 3, with :offload after it or nothing; try zero:2")

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Without DeepSpeed or a GPU."""
        if not machine.has("deepspeed"):
            return f"{self}: DeepSpeed is not installed; run `pip install deepspeed`, or take fsdp"
        if not machine.gpus:
            return f"{self}: Lightning runs DeepSpeed on CUDA alone, and there is no GPU; take fsdp:2 on CPUs"
        if self.devices != "auto" and int(self.devices) > len(machine.gpus):
            return f"{self}: there are {len(machine.gpus)} GPUs; take as many devices or fewer"
        return None

    def arguments(self) -> dict[str, Any]:
        """Lightning's strategy, on all devices that there are."""
        offload = bool(self.offload)
        strategy = ZeroStrategy(
            stage=self.stage, offload_optimizer=offload, offload_parameters=offload and self.stage == 3
        )
        # DeepSpeed would take no optimizer but its own with offload: that one must be compiled with CUDA's tools.
        strategy.config["zero_force_ds_cpu_optimizer"] = False
        return {"strategy": strategy, "devices": self.devices, "num_nodes": self.nodes}


@dataclass(frozen=True)
class Fsdp(OnRanks):
    """torch's FSDP2: every device keeps a part of weights, gradients and state, and fetches the rest part by part.

    Gives: as ZeRO's third stage, without another library; 3.62 min instead of 8.75 on 4 GPUs. Parts of the module with
    a million parameters or more are fetched one at a time. Same figures as DDP, within rounding, also clipped and with
    weight decay; runs on CPUs too. Checkpoints are those of DDP and of one process, in one file. Costs: as ZeRO's third
    stage; rank 0 has the whole model and its optimizer state in host memory while it saves. A step has to call the
    module's networks themselves (`self.net(images)`): weights are there for as long as a call lasts. Zhao et al.,
    PyTorch FSDP, VLDB 2023.
    """

    name: ClassVar[str] = "fsdp"
    form: ClassVar[str] = "fsdp[:devices[:nodes]]"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """As of other ranks; with parameters that cannot be split."""
        single = next((name for name, one in module.named_parameters() if one.ndim == 0), None)
        if single is not None:
            return f"{self}: {single} is one number without a dimension, which cannot be split; make its shape (1,)"
        return super().refusal(module, machine)

    def arguments(self) -> dict[str, Any]:
        """The strategy, on as many ranks."""
        return {"strategy": ShardedStrategy(), "devices": self.devices, "num_nodes": self.nodes}
