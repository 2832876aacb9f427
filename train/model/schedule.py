"""Learning-rate schedule by optimizer step, and parameter groups for weight decay."""

from __future__ import annotations

import math
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from ..config.options import Schedule


def learning_rate_factor(step: int, *, warmup_steps: int, total_steps: float, kind: Schedule) -> float:
    """Returns the factor of the learning rate in optimizer step `step`, counted from 0.

    Rises linearly over `warmup_steps`: above 0 in the first step, and 1 in step `warmup_steps`. From there to
    `total_steps`, one past the last step, it is constant, or falls to 0 along half a cosine (Loshchilov and Hutter,
    SGDR, ICLR 2017, without restarts) or a straight line. Never below 0.

    >>> [learning_rate_factor(step, warmup_steps=2, total_steps=6, kind="linear") for step in range(6)]
    [0.3333333333333333, 0.6666666666666666, 1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    if kind == "constant" or math.isinf(total_steps):
        return 1.0
    progress = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    return 1 - progress if kind == "linear" else 0.5 * (1 + math.cos(math.pi * progress))


def decaying_parameters(module: nn.Module, excluded: Collection[str] = ()) -> frozenset[str]:
    """Returns full names of the parameters that weight decay applies to; call it before parameters are sharded.

    Norms, biases and scalars, which have one dimension or none, do not decay (as in Goyal et al., Accurate, Large
    Minibatch SGD, 2017), nor do tokens, position embeddings and the like, whose full names match one of `excluded`:
    shell patterns, as timm's `no_weight_decay` may have them.
    """
    return frozenset(
        name for name, parameter in module.named_parameters()
        if parameter.ndim > 1 and not any(fnmatchcase(name, pattern) for pattern in excluded)
    )  # fmt: skip


def decay_groups(module: nn.Module, weight_decay: float, decays: Collection[str]) -> list[dict[str, Any]]:
    """Returns parameter groups of the trainable parameters: those whose full names are in `decays`, and the others.

    By name, since a strategy may have changed the shapes of parameters by the time optimizers are configured. Frozen
    parameters are in no group. Empty groups are left out.
    """
    trainable = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    with_decay = [parameter for name, parameter in trainable if name in decays]
    others = [parameter for name, parameter in trainable if name not in decays]
    groups = ({"params": with_decay, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]
