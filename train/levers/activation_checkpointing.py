"""Activations computed again in the backward pass instead of kept: memory for time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from lightning.pytorch import LightningModule
from torch.nn.modules.batchnorm import _NormBase
from torch.utils.checkpoint import checkpoint

from ..machine import Machine
from .lever import Lever


@dataclass(frozen=True)
class Checkpointing(Lever):
    """Keeps the inputs of blocks alone, and computes what is inside them again when their gradient is due.

    By a part's own way where it has one (Hugging Face's `gradient_checkpointing_enable`, timm's
    `set_grad_checkpointing`), else block by block in `nn.Sequential` and `nn.ModuleList`. Gives: activations of about
    the square root of the depth, and so larger images, batches and models on a card. Costs: a third more arithmetic.
    Gradients are the same, dropout too; BatchNorm's running figures take each batch once. Chen et al., Training Deep
    Nets with Sublinear Memory Cost, 2016.
    """

    name: ClassVar[str] = "checkpointing"
    kind: ClassVar[str] = "checkpointing"
    form: ClassVar[str] = "checkpointing"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Where there are no blocks."""
        if next(places(module), None) is None:
            return (
                f"checkpointing: {type(module).__name__} has no blocks to compute again: no nn.Sequential of several "
                "layers, no list of blocks, and no way of its own; leave it out"
            )
        return None

    def apply(self, module: LightningModule) -> LightningModule:
        """Has every block do so, in its place: names in checkpoints stay."""
        for _, begin in list(places(module)):
            begin()
        for part in module.modules():
            if isinstance(part, _NormBase) and part.track_running_stats:
                _once(part)
        return module


def places(module: torch.nn.Module, prefix: str = "") -> Iterator[tuple[str, Callable[[], Any]]]:
    """Where activations can be computed again, outermost first: the part's name, and what begins it there."""
    begin = _own_way(module) or _by_blocks(module)
    if begin is not None:
        yield prefix, begin
        return
    for name, part in module.named_children():
        yield from places(part, f"{prefix}.{name}" if prefix else name)


def _own_way(part: torch.nn.Module) -> Callable[[], Any] | None:
    """How a part of Hugging Face's or timm's begins by itself; None where it cannot."""
    if not getattr(part, "supports_gradient_checkpointing", True):
        return None
    for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):  # the newer name first
        enable = getattr(part, name, None)
        if callable(enable):
            option = name.replace("enable", "kwargs")
            takes = option in inspect.signature(enable).parameters
            return partial(enable, **{option: {"use_reentrant": False}} if takes else {})
    enable = getattr(part, "set_grad_checkpointing", None)
    if not callable(enable):
        return None
    try:
        enable(True)  # some of timm's refuse, and only when they are called
        enable(False)
    except (AssertionError, NotImplementedError, RuntimeError):
        return None
    return partial(enable, True)


def _by_blocks(part: torch.nn.Module) -> Callable[[], Any] | None:
    """How a sequence of layers, or a list of blocks, begins."""
    blocks = list(part.children())
    if len(blocks) < 2:
        return None
    if type(part).forward is torch.nn.Sequential.forward and _has_weights(part):
        return partial(_replace, {part: Segments(part)})
    if isinstance(part, torch.nn.ModuleList) and all(any(map(_has_weights, block.children())) for block in blocks):
        return partial(_replace, {block: Again(block) for block in blocks})
    return None


def _has_weights(part: torch.nn.Module) -> bool:
    return next(part.parameters(), None) is not None


def _replace(forwards: dict[torch.nn.Module, Again | Segments]) -> None:
    for part, forward in forwards.items():
        if not isinstance(part.forward, (Again, Segments)):
            part.forward = forward


class Again:
    """Stands for a block's `forward`; can be copied and pickled with it."""

    def __init__(self, block: torch.nn.Module) -> None:
        self._forward = block.forward

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """The block's outputs, of which nothing is kept but its inputs."""
        if not torch.is_grad_enabled():
            return self._forward(*inputs, **named)
        return checkpoint(self._forward, *inputs, use_reentrant=False, **named)


class Segments:
    """Stands for the `forward` of a sequence: block by block, or some layers at a time where these are small."""

    def __init__(self, sequence: torch.nn.Module) -> None:
        self._sequence = sequence

    def __call__(self, inputs: Any) -> Any:
        """The sequence's output, of which nothing is kept but each segment's inputs."""
        layers = list(self._sequence.children())
        has_blocks = any(next(layer.children(), None) is not None for layer in layers)
        size = 1 if has_blocks else math.isqrt(len(layers))
        for start in range(0, len(layers), size):
            segment = layers[start : start + size]
            if torch.is_grad_enabled():
                inputs = checkpoint(_run, segment, inputs, use_reentrant=False)
            else:
                inputs = _run(segment, inputs)
        return inputs


def _run(layers: list[torch.nn.Module], inputs: Any) -> Any:
    for layer in layers:
        inputs = layer(inputs)
    return inputs


def _once(norm: torch.nn.Module) -> None:
    """Has a BatchNorm's running figures take a batch once, although it is computed twice."""
    if _hold not in norm._forward_pre_hooks.values():  # noqa: SLF001 (torch has no question for it)
        norm.register_forward_pre_hook(_hold)
        norm.register_forward_hook(_let_go, always_call=True)  # torch ends a second pass early, by an exception


def _hold(norm: Any, inputs: Any) -> None:  # noqa: ARG001 (torch's signature)
    if torch.compiler.is_compiling() or not norm.training or torch._C._current_graph_task_id() == -1:  # noqa: SLF001
        return  # not within a backward pass
    norm.momentum_kept = norm.momentum
    norm.momentum = 0.0
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.sub_(1)


def _let_go(norm: Any, inputs: Any, outputs: Any) -> None:  # noqa: ARG001
    if "momentum_kept" in vars(norm):
        norm.momentum = vars(norm).pop("momentum_kept")
