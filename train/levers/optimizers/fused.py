"""Fused optimizers."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from lightning.pytorch import LightningModule
from torch.optim import Optimizer

from ..lever import Lever, LeverError
from .in_place import replace_in_place, transform_optimizers


@dataclass(frozen=True)
class Fused(Lever, name="fused", kind="optimizer"):
    """Runs the optimizer's step as one fused kernel over all parameters, instead of several `foreach` kernels.

    Gives: a shorter step for models with many small parameters; AdamW's takes some 3 to 20 % of a training step.
    Works with torch's Adam, AdamW, SGD and Adagrad, on CUDA and CPUs; groups, schedulers and learning rates stay.
    Costs: nothing; sums in another order.
    """

    def apply(self, module: LightningModule) -> LightningModule:
        """Replaces every optimizer when it is configured, which raises `LeverError` on one without a fused form."""
        return transform_optimizers(module, fuse)


def fuse(optimizer: Optimizer) -> None:
    """Replaces an optimizer without state by its fused form. Raises `LeverError` if it has none."""
    optimizer_class = type(optimizer)
    accepted = inspect.signature(optimizer_class).parameters
    if "fused" not in accepted:
        raise LeverError(
            f"fused: {optimizer_class.__name__} has no fused form; leave fused out, or take torch.optim.AdamW"
        )
    defaults = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    for group in optimizer.param_groups:
        group.update(fused=True, foreach=False)
    try:
        replace_in_place(
            optimizer, optimizer_class(optimizer.param_groups, **{**defaults, "fused": True, "foreach": False})
        )
    except (RuntimeError, TypeError) as error:
        raise LeverError(f"fused: {optimizer_class.__name__} cannot be fused: {error}; leave fused out") from error
    optimizer.register_load_state_dict_post_hook(_lay_out_as_weights)


def _lay_out_as_weights(optimizer: Optimizer) -> None:
    """Gives loaded state the memory layout of its weights, say channels_last, which a checkpoint may not have.

    Fused kernels go through both in the order of memory: on CPUs each weight would get the state of another.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            is_like_weight = isinstance(value, torch.Tensor) and value.shape == parameter.shape
            if is_like_weight and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
