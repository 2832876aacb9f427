"""The optimizers that a module configures, changed in their place: its schedulers, and whoever holds one, go on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from lightning.pytorch import LightningModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..lever import Lever, LeverError


@dataclass(frozen=True)
class Fused(Lever):
    """The optimizer's step as one kernel over all parameters, instead of several over lists of them.

    Gives: a shorter step where a model has many small parameters; AdamW's takes some 3 to 20 % of a training step.
    Works with torch's Adam, AdamW, SGD and Adagrad, on CUDA and on the CPU; groups, schedulers and rates stay. Costs:
    nothing; sums in another order.
    """

    name: ClassVar[str] = "fused"
    kind: ClassVar[str] = "optimizer"
    form: ClassVar[str] = "fused"

    def apply(self, module: LightningModule) -> LightningModule:
        """Has every optimizer fused as it is configured; raises `LeverError` there of one that has no such form."""
        return change_optimizers(module, fuse)


def fuse(optimizer: Optimizer) -> None:
    """Gives an optimizer that has taken no step its fused form. Raises `LeverError` where it has none."""
    kind = type(optimizer)
    takes = inspect.signature(kind).parameters
    if "fused" not in takes:
        raise LeverError(f"fused: {kind.__name__} has no fused form; leave fused out, or take torch.optim.AdamW")
    defaults = {name: value for name, value in optimizer.defaults.items() if name in takes}
    for group in optimizer.param_groups:
        group.update(fused=True, foreach=False)
    try:
        become(optimizer, kind(optimizer.param_groups, **{**defaults, "fused": True, "foreach": False}))
    except (RuntimeError, TypeError) as error:
        raise LeverError(f"fused: {kind.__name__} cannot be fused: {error}; leave fused out") from error


Change = Callable[[Optimizer], None]


def change_optimizers(module: LightningModule, change: Change) -> LightningModule:
    """Has every optimizer that `configure_optimizers` makes, in any of Lightning's forms, changed in its place."""
    found: Any = module.configure_optimizers
    while isinstance(found, ChangedOptimizers):
        if found.change == change:
            return module
        found = found.configure
    module.configure_optimizers = ChangedOptimizers(module.configure_optimizers, change)
    return module


class ChangedOptimizers:
    """Stands in a module for its `configure_optimizers`; can be copied and pickled with it."""

    def __init__(self, configure: Callable[[], Any], change: Change) -> None:
        self.configure = configure
        self.change = change
        # By this Lightning sees whether the module has one of its own.
        self.__wrapped__ = getattr(configure, "__wrapped__", configure)

    def __call__(self) -> Any:
        """What the module configures, changed."""
        configured = self.configure()
        for optimizer in optimizers_of(configured):
            self.change(optimizer)
        return configured


def optimizers_of(configured: Any) -> Iterator[Optimizer]:
    """The optimizers in what `configure_optimizers` returns: one, a list, dicts, or a list beside schedulers."""
    if isinstance(configured, Optimizer):
        yield configured
    elif isinstance(configured, dict):
        yield from optimizers_of(configured.get("optimizer"))
    elif isinstance(configured, (list, tuple)):
        for one in configured:
            yield from optimizers_of(one)


def become(optimizer: Optimizer, other: Optimizer) -> None:
    """Makes an optimizer that has taken no step another one, made of its groups, and stays the same object.

    So whatever refers to it goes on: schedulers of any kind, lists, the module itself. Hooks on its steps stay.
    """
    if any(float(state.get("step", 0)) > 0 for state in optimizer.state.values()):
        raise LeverError(f"{type(optimizer).__name__}: has taken steps already; take the lever before training")
    followed = vars(optimizer).pop("step", None) is not None
    hooks = {name: value for name, value in vars(optimizer).items() if name.startswith("_optimizer_")}
    vars(optimizer).update({**vars(other), **hooks})
    optimizer.__class__ = type(other)
    if followed:
        _follow(optimizer)


def _follow(optimizer: Optimizer) -> None:
    """Has schedulers see whether steps were taken, which each new one arranges; the rates stay what they are."""
    rates = [group["lr"] for group in optimizer.param_groups]
    LambdaLR(optimizer, lambda _: 1.0)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
