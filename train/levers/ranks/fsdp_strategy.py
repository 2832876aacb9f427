"""A Lightning strategy for torch's FSDP2 (`fully_shard`), on top of DDPStrategy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ...checkpoints.shards import StagedShards, write_shards
from ...checkpoints.staging import copied
from ..lever import LeverError
from .buffers import broadcast_buffers

MIN_UNIT_PARAMETERS = 1_000_000
"""Submodules with at least this many parameters are gathered and released separately."""


class FSDP2Strategy(DDPStrategy):  # type: ignore[misc]  # Lightning is not followed
    """Shards weights, gradients and optimizer state over all ranks by `fully_shard` (FSDP2).

    Every parameter stays separate, a DTensor with its full shape, sharded along its first dimension: optimizers,
    clipping and weight decay that go by name, shape or norm do the same as on one process. Runs on CUDA and, by gloo,
    on CPUs; Lightning's own FSDPStrategy (FSDP1) supports CUDA only, and its ModelParallelStrategy requires modules to
    shard themselves. As under DDP, gradients are averaged, and buffers are those of rank 0.

    Checkpoints hold full tensors, in a single file as of DDP and of one process: each can resume from the others'.
    Rank 0 gathers the tensors one by one in host memory. With `saves_shards`, those that are written in the background
    (`storage_options`, as of `SafeCheckpointIO`) are folders instead, into which each rank writes its shards, without
    gathering; `read_checkpoint` reads both alike. After a fit the module stays sharded.
    """

    strategy_name = "fsdp2"

    def __init__(self) -> None:
        super().__init__()
        self.saves_shards = False
        self._root: _ShardedRoot | None = None
        self._mesh_of_saves: DeviceMesh | None = None

    def setup(self, trainer: Any) -> None:
        """Shards the module at the first call, and for a fit configures the optimizers over the sharded parameters."""
        is_fit = trainer.state.fn == TrainerFn.FITTING
        self.accelerator.setup(trainer)
        self.model = self._shard_module(self.lightning_module, is_fit=is_fit)
        if is_fit:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def teardown(self) -> None:
        """Leaves weights on the device, sharded, for a test after a fit."""
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()

    def _shard_module(self, module: LightningModule, *, is_fit: bool) -> _ShardedRoot:
        if self._root is not None and self._root.module is module:
            return self._root
        if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
            raise LeverError(
                f"fsdp: {type(module).__name__} was sharded by another Trainer; make the module anew for this one"
            )
        if is_fit and self._layer_sync:
            module = self._layer_sync.apply(module)
        self.precision_plugin.convert_module(module)
        module.to(self.root_device)
        for tensor in (*module.parameters(), *module.buffers()):
            torch.distributed.broadcast(tensor.detach(), 0)
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        _shard_submodules(module, _tied_parameter_ids(module), mesh)
        self._root = _ShardedRoot(module)
        fully_shard(self._root, mesh=mesh)
        return self._root

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        """Saves a file of full tensors, or in the background a folder of shards. A collective call."""
        if not self.saves_shards or storage_options is None:
            full = copied(checkpoint, self._gathered) if self.saves_shards else checkpoint
            super().save_checkpoint(full, filepath, storage_options=storage_options)
            return
        if self._mesh_of_saves is None:  # gloo's, apart from the training's: used by another thread
            group: Any = torch.distributed.new_group(backend="gloo")
            self._mesh_of_saves = DeviceMesh.from_group(group, "cpu")
        staged = StagedShards(checkpoint, self._mesh_of_saves)
        storage_options(partial(write_shards, staged, Path(filepath), self._mesh_of_saves.get_group()))

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Returns the module's state with full tensors on rank 0, empty on others. A collective call.

        With `saves_shards`, the state with DTensors.
        """
        state = self.lightning_module.state_dict()
        return dict(state) if self.saves_shards else self._gather_full(state)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Loads full tensors; each rank takes its shard of them."""
        module = self.lightning_module
        for submodule in () if self._root is None else self._root.modules():
            if isinstance(submodule, FSDPModule):
                submodule.reshard()  # after a validation the root's weights are still gathered
        parameters = dict(module.named_parameters(remove_duplicate=False))  # tied weights under each of their names
        state = {name: _local_shard(value, parameters.get(name)) for name, value in checkpoint["state_dict"].items()}
        module.load_state_dict(state, strict=strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Returns `Optimizer.state_dict` with full tensors on rank 0, empty on others. A collective call.

        With `saves_shards`, the state with DTensors.
        """
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer.optimizer
        state_dict: dict[str, Any] = optimizer.state_dict()
        if self.saves_shards:
            return state_dict
        state = {number: self._gather_full(tensors) for number, tensors in state_dict["state"].items()}
        return {**state_dict, "state": state} if self.is_global_zero else {}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Loads full tensors; each rank takes its shard of them."""
        for optimizer, state_dict in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            state = {
                number: {name: _local_shard(value, parameters[number]) for name, value in tensors.items()}
                for number, tensors in state_dict["state"].items()
            }
            optimizer.load_state_dict({**state_dict, "state": state})

    def _gather_full(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Gathers tensors one by one, so that no device holds two full ones."""
        full_tensors = {}
        for name, value in tensors.items():
            full = self._gathered(name, value) if isinstance(value, Tensor) else value
            if self.is_global_zero:
                full_tensors[name] = full
        return full_tensors

    def _gathered(self, name: str, tensor: Tensor) -> Tensor | None:
        """Returns the full tensor on rank 0, None on others. A collective call."""
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        return full.cpu() if self.is_global_zero else None


class _ShardedRoot(nn.Module):
    """Root module that FSDP hooks into; Lightning redirects its `forward` to a step of the module."""

    def __init__(self, module: LightningModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any, **kwargs: Any) -> Any:
        """Runs a step after broadcasting rank 0's buffers, as DDP does: all ranks validate the same module."""
        broadcast_buffers(self.module)
        return self.module(*arguments, **kwargs)


def _shard_submodules(module: nn.Module, tied_ids: set[int], mesh: DeviceMesh) -> int:
    """Shards submodules with `MIN_UNIT_PARAMETERS` or more, leaves first; returns the number left unsharded.

    FSDP gathers weights when a submodule is called. Lists and dicts of modules are never called, nor the submodules of
    attention, whose weights torch reads directly.
    """
    if isinstance(module, nn.MultiheadAttention):
        unsharded = sum(parameter.numel() for parameter in module.parameters())
    else:
        unsharded = sum(parameter.numel() for parameter in module.parameters(recurse=False))
        unsharded += sum(_shard_submodules(submodule, tied_ids, mesh) for submodule in module.children())
    is_called = not isinstance(module, (nn.ModuleList, nn.ModuleDict, LightningModule))
    is_tied = any(id(parameter) in tied_ids for parameter in module.parameters())
    if unsharded < MIN_UNIT_PARAMETERS or not is_called or is_tied:
        return unsharded
    fully_shard(module, mesh=mesh)
    return 0


def _tied_parameter_ids(module: nn.Module) -> set[int]:
    """Returns ids of tied parameters, which FSDP2 requires in one unit: that of the root."""
    counts: dict[int, int] = defaultdict(int)
    for _, parameter in module.named_parameters(remove_duplicate=False):
        counts[id(parameter)] += 1
    return {key for key, count in counts.items() if count > 1}


def _local_shard(full: Any, like: Any) -> Any:
    """Returns the rank's shard of a full tensor if `like` is a sharded parameter, else the value itself.

    Without communication, since every rank has read the file. `fully_shard` splits the first dimension as `chunk` does.
    """
    if not isinstance(like, DTensor) or not isinstance(full, Tensor) or full.ndim != like.ndim:
        return full
    shards = full.chunk(like.device_mesh.size())
    rank = like.device_mesh.get_local_rank()
    shard = shards[rank] if rank < len(shards) else full[:0]
    return DTensor.from_local(
        shard.to(like.device),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=full.shape,
        stride=full.stride(),
    )
