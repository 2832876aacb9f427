"""Lightning's DeepSpeed strategy, with buffers as 16-bit weights need them and checkpoints loaded as plain data."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from ...checkpoints.parts import write_parts
from ...checkpoints.plain import force_weights_only
from ...checkpoints.staging import copied_to_host
from ...deepspeed_internals import let_load_without_optimizer, staging_files
from ...torch_internals import NormBase, unsaved_buffers
from .buffers import broadcast_buffers

_REMEDY = "continue without it in a run of its own (--run), or give a folder that training saved"


class ZeroStrategy(DeepSpeedStrategy):  # type: ignore[misc]  # Lightning is not followed
    """DeepSpeed strategy that computes BatchNorm in fp32, and loads checkpoints as plain data.

    By default DeepSpeed unpickles any object. With 16 bits it casts weights but no buffers: neither running statistics,
    with which no BatchNorm of torch's computes then, nor tables by which weights are multiplied. Checkpoints can be
    written in the background (`storage_options`, as of `SafeCheckpointIO`).
    """

    _group_of_saves: Any = None

    @property
    def offloads(self) -> bool:
        """Whether optimizer state is in host memory, which has hardly room for a second one."""
        return "offload_optimizer" in self.config["zero_optimization"]

    def setup(self, trainer: Trainer) -> None:
        """Sets up DeepSpeed for a module whose BatchNorm layers compute in fp32."""
        module = self.lightning_module
        assert module is not None
        normalise_in_fp32(module)
        if trainer.state.fn != TrainerFn.FITTING:
            # A fit ends with the module on the host, and DeepSpeed leaves one that it has split where it is.
            module.to(self.root_device)
        super().setup(trainer)
        cast_constants_of_timm(module)

    def on_validation_start(self) -> None:
        """Gives all ranks rank 0's buffers: all validate the module that is saved, as under DDP."""
        broadcast_buffers(self.lightning_module)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None) -> None:
        """Saves a folder of parts, or has them saved from copies in host memory. A collective call."""
        if storage_options is None:
            super().save_checkpoint(checkpoint, filepath)
            return
        if self._group_of_saves is None:  # gloo's, apart from the training's: used by another thread
            self._group_of_saves = torch.distributed.new_group(backend="gloo")
        with staging_files(self.deepspeed_engine, copied_to_host) as files:
            super().save_checkpoint(checkpoint, filepath)
        storage_options(partial(write_parts, files, self._group_of_saves))

    def load_checkpoint(self, checkpoint_path: str | Path, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Loads a checkpoint. Raises `UsageError` if a file of the folder would run code."""
        let_load_without_optimizer(self.deepspeed_engine)
        with force_weights_only(checkpoint_path, _deepspeed_classes(), remedy=_REMEDY):
            contents: dict[str, Any] = super().load_checkpoint(checkpoint_path, *arguments, **options)
        return contents


def normalise_in_fp32(module: nn.Module) -> None:
    """Makes layers with running statistics compute in fp32 where their inputs, and so their weights, are of 16 bits.

    As under autocast; their outputs are of the inputs' dtype again. Changes the layers in place, once.
    """
    for layer in module.modules():
        if isinstance(layer, NormBase) and layer.track_running_stats and "forward" not in vars(layer):
            layer.forward = _ForwardInFp32(layer)


def cast_constants_of_timm(module: nn.Module) -> None:
    """Casts constants of timm's networks, in place, to the dtype of weights of 16 bits, as their `half()` would.

    Position tables and attention masks, without which Swin cannot compute in 16 bits. They are no part of a checkpoint.
    Other libraries may count on theirs in fp32, such as the frequencies of rotary positions.
    """
    dtype = next((weight.dtype for weight in module.parameters() if weight.is_floating_point()), torch.float32)
    if dtype.itemsize >= 4:
        return
    for layer in module.modules():
        if type(layer).__module__.split(".")[0] == "timm":
            for name, constant in unsaved_buffers(layer):
                if constant.is_floating_point():
                    setattr(layer, name, constant.to(dtype))


class _ForwardInFp32:
    """The forward of a layer in fp32; of a deep copy of the layer it is the copy's."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer, self._in_fp32 = layer, copy.copy(layer)

    def __reduce__(self) -> tuple[type[_ForwardInFp32], tuple[nn.Module]]:
        return _ForwardInFp32, (self._layer,)

    def __call__(self, inputs: Tensor) -> Tensor:
        layer = self._layer
        weights = {name: getattr(layer, name) for name in vars(layer)["_parameters"]}
        if all(tensor is None or tensor.dtype.itemsize >= 4 for tensor in (inputs, *weights.values())):
            return type(layer).forward(layer, inputs)  # type: ignore[no-any-return]
        # All is the layer's, buffers and submodules too, but its weights.
        for name, value in vars(layer).items():
            if name != "forward":
                self._in_fp32.__dict__[name] = value
        self._in_fp32.__dict__["_parameters"] = {
            name: None if weight is None else weight.float() for name, weight in weights.items()
        }
        outputs: Tensor = type(layer).forward(self._in_fp32, inputs.float())
        return outputs.to(inputs.dtype)


def _deepspeed_classes() -> list[Any]:
    """Returns the classes in DeepSpeed's optimizer state: plain records, whose constructors have no side effects."""
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler  # noqa: PLC0415 (optional)
    from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: PLC0415
    from deepspeed.utils.tensor_fragment import fragment_address  # noqa: PLC0415

    return [DynamicLossScaler, LossScaler, ZeroStageEnum, fragment_address, (_zero_stage, "builtins.getattr")]


def _zero_stage(enumeration: Any, name: str) -> Any:
    """Stands for `getattr` in a checkpoint: Python before 3.11.4 saves a member of an enumeration by it.

    Returns a member of DeepSpeed's enumeration of stages. Raises `UnpicklingError` for any other attribute.
    """
    from deepspeed.runtime.zero.config import ZeroStageEnum  # noqa: PLC0415

    if enumeration is not ZeroStageEnum or name not in ZeroStageEnum.__members__:
        raise pickle.UnpicklingError("Unsupported global: GLOBAL getattr was not an allowed global by default.")
    return ZeroStageEnum[name]
