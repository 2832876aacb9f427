"""Freezing of parameters by patterns of their names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Self

import torch
from lightning.pytorch import LightningModule
from torch.optim import Optimizer

from ..machine import Machine
from ..torch_internals import NormBase
from .lever import Lever, LeverError
from .optimizers.in_place import transform_optimizers


@dataclass(frozen=True)
class FrozenRow:
    """A row of the table of frozen modules and parameters.

    name: of a module with its submodules, or of a parameter, as in `named_modules` and `named_parameters`. tensors:
    number of parameter tensors; numbers: of their elements. batch_norms: layers whose running statistics are frozen.
    What a pattern matches under several names is counted in the first of its rows.
    """

    pattern: str
    name: str
    tensors: int
    numbers: int
    batch_norms: int


@dataclass(frozen=True)
class Freeze(Lever, name="freeze", form="freeze:PATTERN|PATTERN"):
    """Freezes parameters whose names, or whose modules' names, match a pattern.

    patterns: shell patterns (`*` matches anything, also dots) of full names: `net.layer1*|net.bn1`; tied weights are
    frozen by any of their names. Frozen BatchNorm keeps its running statistics and normalises by them (eval mode), also
    after Lightning calls `train()`. The optimizer gets the other parameters only. `table` lists what each pattern
    matches. Gives: no gradients, no optimizer state and, for the first layers, no stored activations; a good start for
    small data. Costs: what these layers could still have learned.
    """

    patterns: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.patterns or not all(self.patterns) or set("".join(self.patterns)) & set(",:|"):
            raise LeverError(f"{self}: has a pattern without a name; the form is {self.form}")

    @classmethod
    def parse(cls, values: list[str]) -> Self:
        """Constructs the lever from patterns separated by bars."""
        if len(values) != 1:
            raise LeverError(f"{':'.join([cls.name, *values])}: must be {cls.form}")
        return cls(tuple(pattern.strip() for pattern in values[0].split("|")))

    def __str__(self) -> str:
        return f"{self.name}:{'|'.join(self.patterns)}"

    def refusal(self, module: LightningModule, machine: Machine) -> str | None:
        """Refuses a pattern without a match, suggesting similar names, and patterns that freeze everything."""
        names = list(_by_name(module))
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                return f"{self}: {pattern!r} fits no module and no parameter; {_suggestion(pattern, names)}"
        frozen = _frozen_ids(module, self.patterns)
        if not any(parameter.requires_grad for parameter in module.parameters() if id(parameter) not in frozen):
            return f"{self}: freezes all that there is to train; take fewer patterns"
        return None

    def table(self, module: LightningModule) -> list[FrozenRow]:
        """Returns the outermost modules and parameters that each pattern matches."""
        unnamed_norms = _unnamed_norms(module, self.patterns)
        return [row for pattern in self.patterns for row in _table_rows(module, pattern, unnamed_norms)]

    def apply(self, module: LightningModule) -> LightningModule:
        """Freezes, and removes frozen parameters from the optimizers when these are configured."""
        frozen = _frozen_ids(module, self.patterns)
        for parameter in module.parameters():
            if id(parameter) in frozen:
                parameter.requires_grad = False
        for norm in _frozen_norms(module, self.patterns):
            norm.eval()
            norm.train = StayInEval(norm)  # type: ignore[method-assign]
        return transform_optimizers(module, RemoveFrozen(module, self.patterns))


class StayInEval:
    """Replaces the `train` method of a frozen layer, which `train()` of a parent module calls."""

    def __init__(self, layer: torch.nn.Module) -> None:
        self._layer = layer

    def __call__(self, mode: bool = True) -> torch.nn.Module:
        """Returns the layer unchanged, in eval mode."""
        return self._layer


class RemoveFrozen:
    """Removes frozen parameters from an optimizer's groups, and empty groups unless a scheduler counts on them.

    Parameters are identified by name, since a strategy that shards a module replaces its parameters.
    """

    def __init__(self, module: torch.nn.Module, patterns: tuple[str, ...]) -> None:
        self._module, self._patterns = module, patterns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoveFrozen) and self._module is other._module and self._patterns == other._patterns

    def __hash__(self) -> int:
        return hash((id(self._module), self._patterns))

    def __call__(self, optimizer: Optimizer) -> None:
        """Removes them. Raises `LeverError` if nothing is left."""
        frozen = _frozen_ids(self._module, self._patterns)
        for group in optimizer.param_groups:
            group["params"] = [parameter for parameter in group["params"] if id(parameter) not in frozen]
        if not any(group["params"] for group in optimizer.param_groups):
            raise LeverError(
                f"freeze: leaves nothing of what configure_optimizers gives its {type(optimizer).__name__}; take fewer "
                "patterns"
            )
        if "step" not in vars(optimizer):
            optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]


def _by_name(module: torch.nn.Module) -> dict[str, Any]:
    """Returns submodules and parameters under all of their names: tied weights and shared modules have several."""
    modules, parameters = module.named_modules, module.named_parameters
    return dict(item for item in (*modules(remove_duplicate=False), *parameters(remove_duplicate=False)) if item[0])


def _is_frozen(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern matches a name, or that of a parent module."""
    parts = name.split(".")
    prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(fnmatchcase(prefix, pattern) for pattern in patterns for prefix in prefixes)


def _frozen_ids(module: torch.nn.Module, patterns: Iterable[str]) -> set[int]:
    """Returns ids of the parameters that have a frozen name."""
    return {
        id(parameter)
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if _is_frozen(name, patterns)
    }


def _frozen_norms(module: torch.nn.Module, patterns: Iterable[str]) -> list[torch.nn.Module]:
    """Returns frozen layers with running statistics: matched themselves, by a parent, or by all their parameters."""
    frozen_ids = _frozen_ids(module, patterns)
    frozen_norms: dict[int, torch.nn.Module] = {}
    for name, layer in module.named_modules(remove_duplicate=False):
        if isinstance(layer, NormBase) and layer.track_running_stats:
            own = {id(parameter) for parameter in layer.parameters()}
            if _is_frozen(name, patterns) or (own and own <= frozen_ids):
                frozen_norms[id(layer)] = layer
    return list(frozen_norms.values())


def _unnamed_norms(module: torch.nn.Module, patterns: Iterable[str]) -> list[torch.nn.Module]:
    """Returns layers with running statistics that are frozen by all their parameters, not by a name of theirs."""
    named = {id(layer) for name, layer in module.named_modules(remove_duplicate=False) if _is_frozen(name, patterns)}
    return [norm for norm in _frozen_norms(module, patterns) if id(norm) not in named]


def _table_rows(module: torch.nn.Module, pattern: str, unnamed_norms: list[torch.nn.Module]) -> list[FrozenRow]:
    """Returns the rows of a pattern. unnamed_norms: counted and removed in the row of their first parameter."""
    by_name = _by_name(module)
    matched: list[str] = []
    for name in by_name:
        if fnmatchcase(name, pattern) and not any(name.startswith(f"{parent}.") for parent in matched):
            matched.append(name)
    rows = []
    counted: set[int] = set()
    for name in matched:
        module_or_parameter = by_name[name]
        is_parameter = isinstance(module_or_parameter, torch.nn.Parameter)
        tensors = [module_or_parameter] if is_parameter else list(module_or_parameter.parameters())
        norms = [] if is_parameter else _frozen_norms(module_or_parameter, ["*"])
        tensors, norms = ([item for item in items if id(item) not in counted] for items in (tensors, norms))
        counted.update(map(id, (*tensors, *norms)))
        if is_parameter:
            norms = [norm for norm in unnamed_norms if any(own is module_or_parameter for own in norm.parameters())]
            unnamed_norms[:] = [norm for norm in unnamed_norms if norm not in norms]
        rows.append(FrozenRow(pattern, name, len(tensors), sum(tensor.numel() for tensor in tensors), len(norms)))
    return [row for row in rows if row.tensors or row.batch_norms]


def _suggestion(pattern: str, names: list[str]) -> str:
    """Suggests names that a pattern may have meant: with the same ending, or similar."""
    suffix_matches = sorted({name for name in names if fnmatchcase(name, f"*.{pattern}")}, key=len)[:3]
    if suffix_matches:
        return f"try {'|'.join(suffix_matches)}, or '*.{pattern}' for all such"
    similar = get_close_matches(pattern.strip("*"), names, 3, 0.4) or names[:5]
    return f"names here are such as {', '.join(similar)}"
