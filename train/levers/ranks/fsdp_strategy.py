"""Lightning's strategy for torch's FSDP2: DDP's processes, each of which keeps a part of every weight."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ..lever import LeverError

UNIT_NUMBERS = 1_000_000
"""From this many parameters on, a part of the module is gathered and released on its own."""


class ShardedStrategy(DDPStrategy):  # type: ignore[misc]  # Lightning is not followed
    """Weights, gradients and optimizer state sharded over all ranks, by `fully_shard` (FSDP2).

    Every parameter stays one of its own, a DTensor with its full shape, split along its first dimension: what an
    optimizer, clipping or weight decay decides by name, shape or norm is the same as on one process. Runs on CUDA and,
    by gloo, on the CPU; Lightning's own FSDPStrategy (FSDP1) takes CUDA only, and its ModelParallelStrategy has every
    module shard itself. As under DDP, gradients are averaged, and buffers are those of rank 0.

    Checkpoints hold full tensors, in the one file of DDP and of a single process: any of them resumes from it. Rank 0
    gathers them one by one in host memory. After a fit the module stays sharded.
    """

    strategy_name = "fsdp2"

    def __init__(self) -> None:
        super().__init__()
        self._root: _Root | None = None

    def setup(self, trainer: Any) -> None:
        """Shards the module, at the first call, and makes the optimizers of a fit, over what is sharded."""
        fits = trainer.state.fn == TrainerFn.FITTING
        self.accelerator.setup(trainer)
        self.model = self._sharded(self.lightning_module, fits=fits)
        if fits:
            self.setup_optimizers(trainer)
        self.setup_precision_plugin()

    def teardown(self) -> None:
        """Leaves the weights where they are: a test after a fit goes on with them."""
        self.cluster_environment.teardown()
        self.precision_plugin.teardown()
        self.accelerator.teardown()

    def _sharded(self, module: LightningModule, *, fits: bool) -> _Root:
        if self._root is not None and self._root.module is module:
            return self._root
        if any(isinstance(one, DTensor) for one in module.parameters()):
            raise LeverError(
                f"fsdp: {type(module).__name__} was sharded by another Trainer; make the module anew for this one"
            )
        if fits and self._layer_sync:
            module = self._layer_sync.apply(module)
        self.precision_plugin.convert_module(module)
        module.to(self.root_device)
        for one in (*module.parameters(), *module.buffers()):
            torch.distributed.broadcast(one.detach(), 0)
        mesh = init_device_mesh(self.root_device.type, (self.world_size,))
        _shard_parts(module, _tied(module), mesh)
        self._root = _Root(module)
        fully_shard(self._root, mesh=mesh)
        return self._root

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """The module's state with full tensors, on rank 0; empty on others. All ranks have to call it."""
        return self._gathered(self.lightning_module.state_dict())

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Takes up full tensors, each rank its part of them."""
        module = self.lightning_module
        for part in () if self._root is None else self._root.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # after a validation the root's weights are still gathered
        own = dict(module.named_parameters(remove_duplicate=False))  # weights of several names too
        state = {name: _part(value, own.get(name)) for name, value in checkpoint["state_dict"].items()}
        module.load_state_dict(state, strict=strict)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """As `lightning_module_state_dict`, in the form of `Optimizer.state_dict`."""
        held = getattr(optimizer, "_optimizer", optimizer).state_dict()
        state = {number: self._gathered(tensors) for number, tensors in held["state"].items()}
        return {**held, "state": state} if self.is_global_zero else {}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Takes up full tensors, each rank its part of them."""
        for optimizer, held in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            own = [one for group in optimizer.param_groups for one in group["params"]]
            state = {
                number: {name: _part(value, own[number]) for name, value in tensors.items()}
                for number, tensors in held["state"].items()
            }
            optimizer.load_state_dict({**held, "state": state})

    def _gathered(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """One after the other, so that no device ever holds two of them whole."""
        whole = {}
        for name, value in tensors.items():
            full = value.full_tensor() if isinstance(value, DTensor) else value
            if self.is_global_zero:
                whole[name] = full.cpu() if isinstance(full, Tensor) else full
        return whole


class _Root(nn.Module):
    """What FSDP's hooks gather weights before: Lightning has its `forward` call a step of the module."""

    def __init__(self, module: LightningModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """A step, with rank 0's buffers on all ranks, as DDP does it: a validation is of one module then."""
        kinds: dict[torch.dtype, list[Tensor]] = defaultdict(list)
        for buffer in self.module.buffers():
            kinds[buffer.dtype].append(buffer.detach())
        for buffers in kinds.values():
            flat = torch.cat([one.reshape(-1) for one in buffers])
            torch.distributed.broadcast(flat, 0)
            values = torch.split(flat, [one.numel() for one in buffers])
            for one, value in zip(buffers, values, strict=True):
                one.copy_(value.view_as(one))
        return self.module(*arguments, **named)


def _shard_parts(module: nn.Module, tied: set[int], mesh: DeviceMesh) -> int:
    """Shards each part with `UNIT_NUMBERS` or more, from the leaves up; returns how many numbers are left for above.

    A part has to be called for its weights to be there: lists and dicts of modules are not, nor what is in attention,
    whose weights torch takes out of them.
    """
    if isinstance(module, nn.MultiheadAttention):
        left = sum(one.numel() for one in module.parameters())
    else:
        left = sum(one.numel() for one in module.parameters(recurse=False))
        left += sum(_shard_parts(part, tied, mesh) for part in module.children())
    called = not isinstance(module, (nn.ModuleList, nn.ModuleDict, LightningModule))
    if left < UNIT_NUMBERS or not called or any(id(one) in tied for one in module.parameters()):
        return left
    fully_shard(module, mesh=mesh)
    return 0


def _tied(module: nn.Module) -> set[int]:
    """Parameters with several names; FSDP2 has them in one unit, and the root is one of all names."""
    names: dict[int, int] = defaultdict(int)
    for _, one in module.named_parameters(remove_duplicate=False):
        names[id(one)] += 1
    return {key for key, count in names.items() if count > 1}


def _part(full: Any, like: Any) -> Any:
    """The rank's part of a tensor that belongs to a sharded parameter; anything else as it is.

    Without communication: every rank has read the same file. `fully_shard` splits the first dimension as `chunk` does.
    """
    if not isinstance(like, DTensor) or not isinstance(full, Tensor) or full.ndim != like.ndim:
        return full
    parts = full.chunk(like.device_mesh.size())
    rank = like.device_mesh.get_local_rank()
    mine = parts[rank] if rank < len(parts) else full[:0]
    return DTensor.from_local(
        mine.to(like.device), like.device_mesh, like.placements, run_check=False, shape=full.shape, stride=full.stride()
    )
