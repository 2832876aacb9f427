"""Activation checkpointing: recomputes activations in the backward pass instead of storing them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch.utils.checkpoint import checkpoint

from ..machine import Machine
from ..torch_internals import NormBase, has_forward_pre_hook, is_in_backward_pass
from .lever import Lever


@dataclass(frozen=True)
class Checkpointing(Lever, name="checkpointing"):
    """Stores only the inputs of blocks, and recomputes their activations in the backward pass.

    By the submodule's own method if it has one (Hugging Face's `gradient_checkpointing_enable`, timm's
    `set_grad_checkpointing`), else block by block in `nn.Sequential` and `nn.ModuleList`. Gives: activation memory of
    about the square root of the depth, for larger images, batches and models on a GPU. Costs: a third more arithmetic.
    Gradients and dropout masks are the same; BatchNorm's running statistics count each batch once. Chen et al.,
    Training Deep Nets with Sublinear Memory Cost, 2016.
    """

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses a module without blocks."""
        if next(checkpointable_modules(module), None) is None:
            return (
                f"checkpointing: {type(module).__name__} has no blocks to compute again: no nn.Sequential of several "
                "layers, no list of blocks, and no way of its own; leave it out"
            )
        return None

    def apply(self, module: LightningModule) -> LightningModule:
        """Enables checkpointing of every block in place; names in the state dict do not change."""
        for _, enable in list(checkpointable_modules(module)):
            enable()
        for submodule in module.modules():
            if isinstance(submodule, NormBase) and submodule.track_running_stats:
                _update_statistics_once(submodule)
        return module


def checkpointable_modules(module: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields the outermost submodules that can be checkpointed: name, and a function that enables it."""
    enable = _native_checkpointing(module) or _block_checkpointing(module)
    if enable is not None:
        yield prefix, enable
        return
    for name, submodule in module.named_children():
        yield from checkpointable_modules(submodule, f"{prefix}.{name}" if prefix else name)


def _native_checkpointing(submodule: torch.nn.Module) -> Callable[[], Any] | None:
    """Returns what enables a Hugging Face or timm module's own checkpointing; None if it has none."""
    if not getattr(submodule, "supports_gradient_checkpointing", True):
        return None
    for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):  # the newer name first
        enable = getattr(submodule, name, None)
        if callable(enable):
            option = name.replace("enable", "kwargs")
            accepts_option = option in inspect.signature(enable).parameters
            return partial(enable, **{option: {"use_reentrant": False}} if accepts_option else {})
    enable = getattr(submodule, "set_grad_checkpointing", None)
    if not callable(enable):
        return None
    try:
        enable(True)  # some timm models raise, and only when called
        enable(False)
    except (AssertionError, NotImplementedError, RuntimeError):
        return None
    return partial(enable, True)


def _block_checkpointing(submodule: torch.nn.Module) -> Callable[[], Any] | None:
    """Returns what enables checkpointing of a sequence of layers, or of a list of blocks; None for other modules."""
    blocks = list(submodule.children())
    if len(blocks) < 2:
        return None
    if type(submodule).forward is torch.nn.Sequential.forward and _has_weights(submodule):
        return partial(_replace_forwards, {submodule: CheckpointedSequence(submodule)})
    if isinstance(submodule, torch.nn.ModuleList) and all(any(map(_has_weights, block.children())) for block in blocks):
        return partial(_replace_forwards, {block: CheckpointedBlock(block) for block in blocks})
    return None


def _has_weights(submodule: torch.nn.Module) -> bool:
    return next(submodule.parameters(), None) is not None


def _replace_forwards(forwards: dict[torch.nn.Module, CheckpointedBlock | CheckpointedSequence]) -> None:
    for submodule, forward in forwards.items():
        if not isinstance(submodule.forward, (CheckpointedBlock, CheckpointedSequence)):
            submodule.forward = forward


class CheckpointedBlock:
    """Replaces the `forward` of a block by a checkpointed call; can be copied and pickled with the block."""

    def __init__(self, block: torch.nn.Module) -> None:
        self._forward = block.forward

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        """Returns the block's outputs; stores only its inputs for the backward pass."""
        if not torch.is_grad_enabled():
            return self._forward(*inputs, **kwargs)
        return checkpoint(self._forward, *inputs, use_reentrant=False, **kwargs)


class CheckpointedSequence:
    """Replaces the `forward` of a sequence: checkpoints each block, or groups of layers if they are simple layers."""

    def __init__(self, sequence: torch.nn.Module) -> None:
        self._sequence = sequence

    def __call__(self, inputs: Any) -> Any:
        """Returns the sequence's output; stores only each segment's inputs for the backward pass."""
        layers = list(self._sequence.children())
        has_blocks = any(next(layer.children(), None) is not None for layer in layers)
        size = 1 if has_blocks else math.isqrt(len(layers))
        for start in range(0, len(layers), size):
            segment = layers[start : start + size]
            if torch.is_grad_enabled():
                inputs = checkpoint(_forward_through, segment, inputs, use_reentrant=False)
            else:
                inputs = _forward_through(segment, inputs)
        return inputs


def _forward_through(layers: list[torch.nn.Module], inputs: Any) -> Any:
    for layer in layers:
        inputs = layer(inputs)
    return inputs


def _update_statistics_once(norm: torch.nn.Module) -> None:
    """Makes a BatchNorm update its running statistics once per batch, although it runs twice."""
    if not has_forward_pre_hook(norm, _suspend_statistics):
        norm.register_forward_pre_hook(_suspend_statistics)
        # always: torch ends the recomputation early, by an exception
        norm.register_forward_hook(_resume_statistics, always_call=True)


def _suspend_statistics(norm: Any, inputs: Any) -> None:  # noqa: ARG001 (torch's signature)
    if torch.compiler.is_compiling() or not norm.training or not is_in_backward_pass():
        return  # not a recomputation within a backward pass
    norm.suspended_momentum = norm.momentum
    norm.momentum = 0.0
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.sub_(1)


def _resume_statistics(norm: Any, inputs: Any, outputs: Any) -> None:  # noqa: ARG001
    if "suspended_momentum" in vars(norm):
        norm.momentum = vars(norm).pop("suspended_momentum")
