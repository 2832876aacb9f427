"""Sharding of optimizer state, gradients and weights over devices: DeepSpeed's ZeRO and torch's FSDP2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from lightning.pytorch import LightningModule

from ...machine import Machine
from ..lever import Lever, LeverError, require_int
from .ddp import MultiProcess
from .fsdp_strategy import FSDP2Strategy
from .zero_strategy import ZeroStrategy

_NO_INFERENCE_MODE = {"inference_mode": False}
"""A run that validates first would gather weights into tensors made in that mode, in which none can be trained."""


@dataclass(frozen=True)
class Zero(Lever, name="zero", kind="strategy", form="zero:1|2|3[:offload][:devices[:nodes]]"):
    """DeepSpeed's ZeRO: shards optimizer state (stage 1), also gradients (2), also weights (3) over devices.

    offload: "offload" keeps optimizer state, and at stage 3 weights, in host memory, and steps there. devices, nodes:
    as for ddp. Gives: with AdamW and fp16, 12 bytes per parameter are divided by the number of devices at stage 1, 14
    at stage 2, 16 at stage 3, for larger models or batches; 3.15 min instead of 8.75 on 4 GPUs, and 2153 % in all with
    fp16 and precomputed data. On one device only offload saves memory. Costs: the communication of DDP, half as much
    again at stage 3; with offload a slow step over the bus. A single optimizer; checkpoints are folders, from which
    only the same stage on as many ranks can resume. Rajbhandari et al., ZeRO, SC 2020, and ZeRO-Offload, ATC 2021.
    """

    stage: int
    offload: str = ""
    devices: int | str = "auto"
    nodes: int = 1

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """Constructs the lever; `offload` may be left out before devices."""
        omits_offload = len(values) > 1 and (values[1].isdigit() or values[1] == "auto")
        return super().parse([values[0], "", *values[1:]] if omits_offload else values)

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
        """Refuses without DeepSpeed or a GPU, and more devices than GPUs."""
        if not machine.has("deepspeed"):
            return f"{self}: DeepSpeed is not installed; run `pip install deepspeed`, or take fsdp"
        if not machine.gpus:
            return f"{self}: Lightning runs DeepSpeed on CUDA alone, and there is no GPU; take fsdp:2 on CPUs"
        if self.devices != "auto" and int(self.devices) > len(machine.gpus):
            return f"{self}: there are {len(machine.gpus)} GPUs; take as many devices or fewer"
        return None

    def arguments(self) -> dict[str, Any]:
        """Returns Lightning's strategy for DeepSpeed."""
        offload = bool(self.offload)
        strategy = ZeroStrategy(
            stage=self.stage, offload_optimizer=offload, offload_parameters=offload and self.stage == 3,
            logging_batch_size_per_gpu=1,  # only scales its log; Lightning asks a batch sampler, which not all have
        )  # fmt: skip
        # Otherwise DeepSpeed requires its own optimizer with offload, which needs the CUDA toolkit to compile.
        strategy.config["zero_force_ds_cpu_optimizer"] = False
        return {"strategy": strategy, "devices": self.devices, "num_nodes": self.nodes, **_NO_INFERENCE_MODE}


@dataclass(frozen=True)
class Fsdp(MultiProcess, name="fsdp", form="fsdp[:devices[:nodes]]"):
    """torch's FSDP2: shards weights, gradients and optimizer state, and gathers weights submodule by submodule.

    Gives: the memory of ZeRO stage 3 without another library; 3.62 min instead of 8.75 on 4 GPUs. Submodules with a
    million parameters or more are gathered one at a time. Results equal those of DDP within rounding, also with
    clipping and weight decay; runs on CPUs too. Checkpoints are interchangeable with DDP's and those of one process:
    `facefeed train` has each rank write its shards, into a folder; a Trainer of your own saves single files, for which
    rank 0 gathers the whole model and optimizer state in host memory. Costs: the communication of ZeRO stage 3; to load
    a checkpoint, each rank reads all of it. A step has to call the module's networks themselves (`self.net(images)`):
    weights are gathered only during a call. Zhao et al., PyTorch FSDP, VLDB 2023.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses as for all strategies, and parameters that cannot be split."""
        scalar = next((name for name, parameter in module.named_parameters() if parameter.ndim == 0), None)
        if scalar is not None:
            return f"{self}: {scalar} is one number without a dimension, which cannot be split; make its shape (1,)"
        return super().refusal(module, machine)

    def arguments(self) -> dict[str, Any]:
        """Returns the FSDP2 strategy."""
        return {"strategy": FSDP2Strategy(), "devices": self.devices, "num_nodes": self.nodes, **_NO_INFERENCE_MODE}
