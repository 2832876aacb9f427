"""Replacement of the optimizers that a module configures, in place: schedulers that refer to them stay valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lightning.pytorch import LightningModule
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ..lever import LeverError

OptimizerTransform = Callable[[Optimizer], None]


def transform_optimizers(module: LightningModule, transform: OptimizerTransform) -> LightningModule:
    """Makes `configure_optimizers` apply `transform` to every optimizer it returns, in any of Lightning's forms."""
    current: Any = module.configure_optimizers
    while isinstance(current, TransformedConfigureOptimizers):
        if current.transform == transform:
            return module
        current = current.configure
    module.configure_optimizers = TransformedConfigureOptimizers(module.configure_optimizers, transform)
    return module


class TransformedConfigureOptimizers:
    """Replaces the `configure_optimizers` of a module; can be copied and pickled with it."""

    def __init__(self, configure: Callable[[], Any], transform: OptimizerTransform) -> None:
        self.configure = configure
        self.transform = transform
        # Lightning reads it to see whether the module overrides the method.
        self.__wrapped__ = getattr(configure, "__wrapped__", configure)

    def __call__(self) -> Any:
        """Returns what the module configures, with transformed optimizers."""
        configured = self.configure()
        for optimizer in optimizers_of(configured):
            self.transform(optimizer)
        return configured


def optimizers_of(configured: Any) -> Iterator[Optimizer]:
    """Yields the optimizers in a result of `configure_optimizers`: one, a list, dicts, or a pair with schedulers."""
    if isinstance(configured, Optimizer):
        yield configured
    elif isinstance(configured, dict):
        yield from optimizers_of(configured.get("optimizer"))
    elif isinstance(configured, (list, tuple)):
        for item in configured:
            yield from optimizers_of(item)


def replace_in_place(optimizer: Optimizer, replacement: Optimizer) -> None:
    """Turns an optimizer that has taken no step into another one over the same groups, keeping its identity.

    Schedulers, lists and the module that refer to it stay valid. Step hooks are kept.
    """
    if any(float(state.get("step", 0)) > 0 for state in optimizer.state.values()):
        raise LeverError(f"{type(optimizer).__name__}: has taken steps already; take the lever before training")
    is_patched_by_scheduler = vars(optimizer).pop("step", None) is not None
    hooks = {name: value for name, value in vars(optimizer).items() if name.startswith("_optimizer_")}
    vars(optimizer).update({**vars(replacement), **hooks})
    optimizer.__class__ = type(replacement)
    if is_patched_by_scheduler:
        _patch_step(optimizer)


def _patch_step(optimizer: Optimizer) -> None:
    """Patches `step` as schedulers do to see whether steps were taken; learning rates do not change."""
    learning_rates = [group["lr"] for group in optimizer.param_groups]
    LambdaLR(optimizer, lambda _: 1.0)
    for group, learning_rate in zip(optimizer.param_groups, learning_rates, strict=True):
        group["lr"] = learning_rate
