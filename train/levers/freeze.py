"""Parameters that stay as they are, by the patterns of their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import torch
from lightning.pytorch import LightningModule
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from ..machine import Machine
from .lever import Lever, LeverError
from .optimizers.fused import change_optimizers


@dataclass(frozen=True)
class FrozenRow:
    """A line of the table of what is frozen.

    name: a module with all below it, or a parameter, as `named_modules` and `named_parameters` call it. tensors: how
    many parameters that are; numbers: of how many numbers in all. batch_norms: layers that keep their running figures.
    """

    pattern: str
    name: str
    tensors: int
    numbers: int
    batch_norms: int


@dataclass(frozen=True)
class Freeze(Lever):
    """Parameters whose names, or whose module's names, fit a pattern get no gradient and no step.

    patterns: as shells have them (`*` stands for anything, dots too), over whole names: `net.layer1*|net.bn1`. Frozen
    BatchNorm keeps its running figures and normalises by them (eval), also after Lightning calls `train()`. The
    optimizer gets only the rest. `table` says what a pattern takes. Gives: no gradient, no optimizer state and, for the
    first layers, no activations kept; a good start for small data. Costs: what these layers could still have learned.
    """

    name: ClassVar[str] = "freeze"
    kind: ClassVar[str] = "freeze"
    form: ClassVar[str] = "freeze:PATTERN|PATTERN"

    patterns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.patterns or not all(self.patterns) or set("".join(self.patterns)) & set(",:|"):
            raise LeverError(f"{self}: has a pattern without a name; the form is {self.form}")

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """The patterns with a bar between them."""
        if len(values) != 1:
            raise LeverError(f"{':'.join([cls.name, *values])}: must be {cls.form}")
        return cls(tuple(pattern.strip() for pattern in values[0].split("|")))

    def __str__(self) -> str:
        return f"{self.name}:{'|'.join(self.patterns)}"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Where a pattern fits nothing, with names that are near; where all is frozen."""
        names = _names(module)
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                return f"{self}: {pattern!r} fits no module and no parameter; {_near(pattern, names)}"
        if not any(one.requires_grad for one in _rest(module, self.patterns)):
            return f"{self}: freezes all that there is to train; take fewer patterns"
        return None

    def table(self, module: LightningModule) -> list[FrozenRow]:
        """What is frozen: of every pattern the modules and parameters that it takes, the widest alone."""
        return [row for pattern in self.patterns for row in _rows(module, pattern)]

    def apply(self, module: LightningModule) -> LightningModule:
        """Freezes, and has the optimizers leave the frozen out as they are configured."""
        for name, parameter in module.named_parameters():
            if _is_frozen(name, self.patterns):
                parameter.requires_grad = False
        for norm in _norms(module, self.patterns):
            norm.eval()
            norm.train = StaysInEval(norm)  # type: ignore[method-assign]
        return change_optimizers(module, WithoutFrozen(module, self.patterns))


class StaysInEval:
    """Stands for a layer's `train`, which every `train()` of a module above it calls."""

    def __init__(self, layer: torch.nn.Module) -> None:
        self._layer = layer

    def __call__(self, mode: bool = True) -> torch.nn.Module:
        """Changes nothing."""
        return self._layer


class WithoutFrozen:
    """Takes the frozen out of an optimizer's groups. One that is then empty goes, unless schedulers count it.

    They are known by name: a strategy that shards a module puts other parameters in the place of those there were.
    """

    def __init__(self, module: torch.nn.Module, patterns: tuple[str, ...]) -> None:
        self._module, self._patterns = module, patterns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WithoutFrozen) and self._module is other._module and self._patterns == other._patterns

    def __hash__(self) -> int:
        return hash((id(self._module), self._patterns))

    def __call__(self, optimizer: Optimizer) -> None:
        """Raises `LeverError` where nothing is left."""
        frozen = {id(one) for name, one in self._module.named_parameters() if _is_frozen(name, self._patterns)}
        for group in optimizer.param_groups:
            group["params"] = [one for one in group["params"] if id(one) not in frozen]
        if not any(group["params"] for group in optimizer.param_groups):
            raise LeverError(
                f"freeze: leaves nothing of what configure_optimizers gives its {type(optimizer).__name__}; take fewer "
                "patterns"
            )
        if "step" not in vars(optimizer):
            optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


def _names(module: torch.nn.Module) -> list[str]:
    return [name for name, _ in (*module.named_modules(), *module.named_parameters()) if name]


def _is_frozen(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern fits a name, or that of a module around it."""
    parts = name.split(".")
    above = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(fnmatchcase(one, pattern) for pattern in patterns for one in above)


def _rest(module: torch.nn.Module, patterns: Iterable[str]) -> list[torch.nn.Parameter]:
    return [one for name, one in module.named_parameters() if not _is_frozen(name, patterns)]


def _norms(module: torch.nn.Module, patterns: Iterable[str]) -> list[torch.nn.Module]:
    """The layers with running figures that are frozen: by their own or their module's name, or by all they have."""
    found: list[torch.nn.Module] = []
    for name, layer in module.named_modules():
        if isinstance(layer, _NormBase) and layer.track_running_stats:
            own = [f"{name}.{one}" for one, _ in layer.named_parameters()]
            if _is_frozen(name, patterns) or (own and all(_is_frozen(one, patterns) for one in own)):
                found.append(layer)
    return found


def _rows(module: torch.nn.Module, pattern: str) -> list[FrozenRow]:
    parts: dict[str, Any] = {**dict(module.named_modules()), **dict(module.named_parameters())}
    taken: list[str] = []
    for name in _names(module):
        if fnmatchcase(name, pattern) and not any(name.startswith(f"{above}.") for above in taken):
            taken.append(name)
    rows = []
    for name in taken:
        part = parts[name]
        tensors = [part] if isinstance(part, torch.nn.Parameter) else list(part.parameters())
        norms = 0 if isinstance(part, torch.nn.Parameter) else len(_norms(part, ["*"]))
        rows.append(FrozenRow(pattern, name, len(tensors), sum(one.numel() for one in tensors), norms))
    return [row for row in rows if row.tensors or row.batch_norms]


def _near(pattern: str, names: list[str]) -> str:
    """What a pattern may have meant: names that end so, or look like it."""
    below = sorted({name for name in names if fnmatchcase(name, f"*.{pattern}")}, key=len)[:3]
    if below:
        return f"try {'|'.join(below)}, or '*.{pattern}' for all such"
    near = get_close_matches(pattern.strip("*"), names, 3, 0.4) or names[:5]
    return f"names here are such as {', '.join(near)}"
