"""How the learning rate goes, by optimizer step; and which weights decay."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from torch import nn

from ..config.options import Schedule


def factor(step: int, *, warmup_steps: int, total_steps: float, kind: Schedule) -> float:
    """What the learning rate is multiplied by in optimizer step `step`, from 0.

    Rises evenly over `warmup_steps`, so that the first step trains already and step `warmup_steps` has 1. From there
    to `total_steps`, behind the last step, it stays ("constant"), or falls to 0 along half a cosine (Loshchilov and
    Hutter, SGDR, ICLR 2017, without restarts) or a straight line. Never below 0.

    >>> [factor(step, warmup_steps=2, total_steps=6, kind="linear") for step in range(6)]
    [0.3333333333333333, 0.6666666666666666, 1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if kind == "constant" or math.isinf(total_steps):
        return 1.0
    done = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    return 1 - done if kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def decaying(module: nn.Module, spared: Collection[str] = ()) -> frozenset[str]:
    """Full names of a module's parameters that weight decay is for: to be asked while they have their own shapes.

    Norms, biases and scalars, which have one dimension or none, do not decay (as in Goyal et al., Accurate, Large
    Minibatch SGD, 2017), nor do those in `spared`, by full name: tokens and positions, which are no weights either.
    """
    return frozenset(name for name, one in module.named_parameters() if one.ndim > 1 and name not in spared)


def decay_groups(module: nn.Module, weight_decay: float, decays: Collection[str]) -> list[dict[str, Any]]:
    """An optimizer's groups of the parameters that are trained: those in `decays`, by full name, and the others.

    By name, since a strategy may have laid out parameters anew by the time optimizers are made. Frozen parameters are
    in no group. A group that would be empty is left out.
    """
    trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    with_decay = [parameter for name, parameter in trained if name in decays]
    others = [parameter for name, parameter in trained if name not in decays]
    groups = ({"params": with_decay, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]
