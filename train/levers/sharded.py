"""State, gradients and weights shared out over devices: DeepSpeed's ZeRO, and torch's FSDP."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

from ..machine import Machine
from .lever import Lever, LeverError, whole

_UNIT_NUMBERS = 1_000_000


@dataclass(frozen=True)
class Zero(Lever):
    """ZeRO of DeepSpeed: a device keeps a part of the optimizer's state (1), of gradients too (2), of weights too (3).

    offload: "offload" keeps that state, and at stage 3 the weights, in the host's memory, and steps there. Gives: 12
    bytes a parameter of AdamW divided by the devices at stage 1, 14 and 16 at 2 and 3 (with fp16), for larger models or
    batches; 3.15 min instead of 8.75 on 4 GPUs, and 2153 % in all with fp16 and data made before. On one device only
    offload saves memory. Costs: as DDP to the network, half as much again at stage 3; with offload a slow step over
    the bus. One optimizer; checkpoints are folders. Rajbhandari et al., ZeRO, SC 2020, and ZeRO-Offload, ATC 2021.
    """

    name: ClassVar[str] = "zero"
    kind: ClassVar[str] = "strategy"
    form: ClassVar[str] = "zero:1|2|3[:offload]"

    stage: int
    offload: str = ""

    def __post_init__(self) -> None:
        whole(self, "stage")
        if self.stage > 3 or self.offload not in ("", "offload"):
            raise LeverError(f"{self}: stage must be 1, 2 or 3, with :offload after it or nothing; try zero:2")

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:  # noqa: ARG002 (any module)
        """Without DeepSpeed or a GPU."""
        if not machine.has("deepspeed"):
            return f"{self}: DeepSpeed is not installed; run `pip install deepspeed`, or take fsdp"
        if not machine.gpus:
            return f"{self}: Lightning runs DeepSpeed on CUDA alone, and there is no GPU; take ddp:2 on CPUs"
        return None

    def arguments(self) -> dict[str, Any]:
        """Lightning's strategy, on all devices that there are."""
        offload = bool(self.offload)
        strategy = DeepSpeedStrategy(
            stage=self.stage, offload_optimizer=offload, offload_parameters=offload and self.stage == 3
        )
        # DeepSpeed would take no optimizer but its own with offload: that one must be compiled with CUDA's tools.
        strategy.config["zero_force_ds_cpu_optimizer"] = False
        return {"strategy": strategy}


@dataclass(frozen=True)
class Fsdp(Lever):
    """torch's FSDP: every device keeps a part of weights, gradients and state, and fetches the rest layer by layer.

    Gives: as ZeRO's third stage, without another library; 3.62 min instead of 8.75 on 4 GPUs. Layers of a million
    numbers or more are a piece each. Costs: as ZeRO's third stage. Zhao et al., PyTorch FSDP, VLDB 2023.
    """

    name: ClassVar[str] = "fsdp"
    kind: ClassVar[str] = "strategy"
    form: ClassVar[str] = "fsdp"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:  # noqa: ARG002 (any module)
        """Without a GPU."""
        if not machine.gpus:
            return "fsdp: Lightning runs FSDP on CUDA alone, and there is no GPU; take ddp:2 on CPUs"
        return None

    def arguments(self) -> dict[str, Any]:
        """Lightning's strategy, on all devices that there are."""
        policy = partial(size_based_auto_wrap_policy, min_num_params=_UNIT_NUMBERS)
        return {"strategy": FSDPStrategy(auto_wrap_policy=policy)}
